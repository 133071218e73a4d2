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
