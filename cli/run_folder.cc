#include "run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "io/checkpoint.h"
#include "support/error.h"

namespace ws::cli {
namespace {

std::string lock_path(const std::string& folder) { return folder + "/.wholestep-lock"; }

bool is_there(const std::string& path) {
  std::error_code ignored;  // what cannot be looked at is refused when it is written
  return std::filesystem::exists(path, ignored);
}

/// Takes the lock, or says whose it is. False where the file system has none.
bool lock_or_fail(int file, const std::string& folder) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK) return false;
  std::array<char, 32> text = {};
  const ssize_t length = ::pread(file, text.data(), text.size(), 0);
  std::string_view process(text.data(), length > 0 ? static_cast<size_t>(length) : 0);
  process = process.substr(0, process.find_first_not_of("0123456789"));
  ::close(file);
  fail("{} is in use by another run{}: wait until it ends, or give another --out", folder,
       process.empty() ? "" : fmt::format(" (process {})", process));
}

/// Whether the name still stands for this file: who ends removes it.
bool is_current(int file, const std::string& path) {
  struct stat of_file = {}, of_path = {};
  return ::fstat(file, &of_file) == 0 && ::stat(path.c_str(), &of_path) == 0 && of_file.st_ino == of_path.st_ino &&
         of_file.st_dev == of_path.st_dev;
}

}  // namespace

bool holds_saved_run(const std::string& folder) { return is_there(folder + "/checkpoint"); }
bool holds_metrics(const std::string& folder) { return is_there(folder + "/metrics.jsonl"); }

bool holds_report(const std::string& folder) { return is_there(folder + "/ladder.json"); }

bool holds_ladder(const std::string& folder) {
  if (!holds_report(folder)) return false;
  const std::string checkpoint = folder + "/checkpoint";
  try {
    const Json config = load_checkpoint_config(checkpoint);
    return config.contains("model") && !config.contains("options") && !load_checkpoint_state(checkpoint).contains("first_losses");
  } catch (const Error&) {
    return false;  // whatever it is, nobody's to replace
  }
}

void check_can_keep(const std::string& out) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string checkpoint = out + "/checkpoint";
  if (fs::is_symlink(checkpoint, ignored) && !is_there(checkpoint))
    fail("cannot write {}: it is a link to nowhere; remove it, or give another --out", checkpoint);
  fs::path whole = fs::weakly_canonical(fs::absolute(out, ignored), ignored);
  if (!whole.has_filename()) whole = whole.parent_path();
  for (fs::path at = whole; at.has_relative_path(); at = at.parent_path()) {
    const std::string name = at.string();
    if (!is_there(name + "/config.json") || !is_there(name + "/state.json") || !is_there(name + "/model.safetensors")) continue;
    if (at.filename() == "checkpoint") {
      const fs::path run = at.parent_path();
      fail("{} is {} the checkpoint of the run in {}, which replaces it whole: give the folder of a run by --out", out,
           at == whole ? "itself" : "within", fs::path(out).is_absolute() ? run.string() : fs::proximate(run, ignored).string());
    }
    if (at == whole)
      fail("{} is itself a checkpoint: give another --out; to continue it, name it DIR/checkpoint and give --out DIR", out);
  }
}

void check_not_in_use(const std::string& folder) {
  const int file = ::open(lock_path(folder).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  lock_or_fail(file, folder);
  ::close(file);
}

RunFolder::RunFolder(const std::string& path) : folder_(path), lock_path_(lock_path(path)) {
  for (;;) {
    descriptor_ = ::open(lock_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("cannot write {}: {}", lock_path_, std::strerror(errno));
    if (!lock_or_fail(descriptor_, path) || is_current(descriptor_, lock_path_)) break;
    ::close(descriptor_);
  }
  const std::string process = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) == 0) static_cast<void>(!::pwrite(descriptor_, process.data(), process.size(), 0));
}

RunFolder::~RunFolder() {
  ::unlink(lock_path_.c_str());  // before the lock ends: the next one makes a file of its own
  ::close(descriptor_);
}

}  // namespace ws::cli
