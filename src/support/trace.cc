#include "support/trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "support/communicator.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"

namespace ws {
namespace {

struct Event {
  std::string name, category, arguments;
  int64_t begin_ns, end_ns;
  long thread;
};

struct Recorder;
Recorder& recorder();

// Leaked on purpose: threads may still add events while the process exits.
struct Recorder {
  std::mutex mutex;
  std::vector<Event> events;
  int rank = 0, num_ranks = 1;  // at the last event: when the file is written, the job may have ended
  bool is_written = true;       // or has failed to be, which was said
  Recorder() {
    std::atexit([] {
      try {
        if (!recorder().is_written) flush_trace();
      } catch (const std::exception& problem) {
        write_note(problem.what());
      }
    });
  }
};
Recorder& recorder() {
  static Recorder* instance = new Recorder;
  return *instance;
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string trace_file_of(int rank) {
  std::filesystem::path path = flags().trace;
  std::error_code ignored;
  if (rank == 0 || std::filesystem::is_character_file(path, ignored)) return path.string();  // /dev/null is everybody's
  return path.replace_extension(fmt::format("rank{}{}", rank, path.extension().string())).string();
}

bool tracing() { return !flags().trace.empty(); }

int64_t trace_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void trace_event(std::string_view name, std::string_view category, int64_t begin_ns, int64_t end_ns, std::string arguments_json) {
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  r.events.push_back(
      {std::string(name), std::string(category), std::move(arguments_json), begin_ns, end_ns, ::syscall(SYS_gettid)});
  r.is_written = false;
  r.rank = communicator().rank(), r.num_ranks = communicator().num_ranks();
}

void flush_trace() {
  if (!tracing()) return;
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  if (r.events.empty()) return;  // whoever started ranks has none, and they have written theirs
  r.is_written = true;
  std::error_code ignored;  // the file says what is wrong
  const std::string path = trace_file_of(r.rank);
  if (auto folder = std::filesystem::path(path).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  std::ofstream file(path, std::ios::binary);
  file << fmt::format(
      "{{\"traceEvents\":[\n"
      R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":"wholestep{}"}}}})",
      ::getpid(), r.num_ranks > 1 ? fmt::format(" rank {}", r.rank) : "");
  for (const Event& e : r.events) {
    file << fmt::format(
        ",\n"
        R"({{"name":{},"cat":{},"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
        quoted(e.name), quoted(e.category), ::getpid(), e.thread, static_cast<double>(e.begin_ns) / 1e3,
        static_cast<double>(e.end_ns - e.begin_ns) / 1e3, e.arguments);
  }
  file << "\n],\"displayTimeUnit\":\"ns\"}\n";
  if (!file.flush()) fail("cannot write the trace to {}", path);
}

}  // namespace ws
