#include "support/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <mutex>

namespace ws {
namespace {
std::atomic<bool> is_quiet{false};
std::mutex sink_mutex;
std::function<void(std::string_view)>& sink() {
  static std::function<void(std::string_view)> instance;
  return instance;
}
}  // namespace

void write_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void write_note(std::string_view text) {
  std::lock_guard lock(sink_mutex);
  if (sink()) return sink()(text);
  if (quiet()) return;
  write_stderr(fmt::format("wholestep: {}\n", text));
}

void set_quiet(bool quiet) { is_quiet = quiet; }
bool quiet() { return is_quiet; }

void set_note_sink(std::function<void(std::string_view)> to) {
  std::lock_guard lock(sink_mutex);
  sink() = std::move(to);
}

void dump(std::string_view name, std::string_view text) {
  if (flags().dump.empty()) return;
  std::error_code problem;
  std::filesystem::create_directories(flags().dump, problem);
  std::ofstream file(std::filesystem::path(flags().dump) / name, std::ios::binary);
  file << text;
  if (!file.flush()) note("cannot write {}/{}", flags().dump, name);
}

}  // namespace ws
