#include "io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "support/error.h"

namespace ws {
namespace fs = std::filesystem;
namespace {

std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter{0};
  return fmt::format("{}.tmp-{}-{}", path, ::getpid(), counter++);
}

// Removes the temporary folders of `path` that processes left which were killed while they wrote.
void remove_stale_folders_of(const std::string& path) {
  std::string prefix = fs::path(path).filename().string() + ".tmp-";
  fs::path parent = fs::path(path).parent_path();
  std::vector<fs::path> stale;
  std::error_code ignored;
  fs::directory_iterator entries(parent.empty() ? "." : parent, ignored), end;
  for (; !ignored && entries != end; entries.increment(ignored)) {
    std::string name = entries->path().filename().string();
    int pid = 0, number = 0, length = 0;
    if (!name.starts_with(prefix)) continue;
    std::string rest = name.substr(prefix.size());
    if (std::sscanf(rest.c_str(), "%9d-%9d%n", &pid, &number, &length) != 2 || length != static_cast<int>(rest.size())) continue;
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) stale.push_back(entries->path());
  }
  for (const fs::path& folder : stale) fs::remove_all(folder, ignored);
}

// Makes a rename last over a power cut; on file systems that cannot, there is nothing to do.
void flush_folder_of(const std::string& path) {
  std::string folder = fs::path(path).parent_path().string();
  int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer is refused, not waited for
  if (fd < 0) fail("cannot read {}: {}", path_, std::strerror(errno));
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail("cannot read {}: it is {}", path_,
         S_ISDIR(info.st_mode)    ? "a folder, not a file"
         : S_ISFIFO(info.st_mode) ? "a pipe, not a file; write what comes from it into one"
                                  : "not a file");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address_ == MAP_FAILED) {
      int problem = errno;
      ::close(fd);
      fail("cannot read {}: {}", path_, std::strerror(problem));
    }
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(address_, size_);
}

NewFolder::NewFolder(const std::string& path) {
  std::error_code problem;
  std::vector<fs::path> missing;                                                              // the outermost last
  for (fs::path at = path; !at.empty() && !fs::exists(at, problem); at = at.parent_path()) {  // "a/../b" makes a as well
    if (fs::is_symlink(fs::symlink_status(at, problem)))
      fail("cannot write {}: {} is a link to nowhere; make what it points to, or give another name", path,
           at == path ? "it" : at.string());
    if (at.has_filename()) missing.push_back(at);
  }
  problem.clear();
  for (; !missing.empty() && !problem; missing.pop_back())
    if (fs::create_directory(missing.back(), problem)) made_.push_back(missing.back());  // what another made first stays
  if (!path.empty() && !problem) fs::create_directories(path, problem);                  // says what else is wrong
  if (problem) {
    remove_made();
    fail("cannot write {}: {}", path, problem.message());
  }
}

NewFolder::~NewFolder() { remove_made(); }

void NewFolder::remove_made() {
  std::error_code ignored;
  for (; !made_.empty(); made_.pop_back()) fs::remove(made_.back(), ignored);  // leaves one that is not empty
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(temporary_name(path_)), folder_(fs::path(path_).parent_path().string()) {
  // A rename would replace a folder's or a device's entry by a file.
  if (std::error_code ignored; fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored))
    fail("cannot write {}: it is there already and not a file", path_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot write {}: {}", path_, std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(Bytes bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("cannot write {}: {}", path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot write {}: {}", path_, std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot write {}: {}", path_, std::strerror(errno));
  ::close(std::exchange(descriptor_, -1));
  folder_.keep();
  flush_folder_of(path_);
}

bool has_extension(std::string_view path, std::string_view extension) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return path.size() >= extension.size() &&
         std::ranges::equal(path.substr(path.size() - extension.size()), extension, {}, lower, lower);
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void check_can_write(const std::string& path) { AtomicFile file(path); }

void write_folder(const std::string& given_path, const std::function<void(const std::string&)>& fill) {
  fs::path normal = fs::path(given_path).lexically_normal();
  std::string path = (normal.has_filename() ? normal : normal.parent_path()).string();
  std::error_code problem;
  if (fs::path parent = fs::path(path).parent_path(); !parent.empty()) fs::create_directories(parent, problem);
  remove_stale_folders_of(path);
  std::string temporary = temporary_name(path);
  if (problem || !fs::create_directory(temporary, problem)) fail("cannot write {}: {}", path, problem.message());
  struct Remover {
    std::string what;
    ~Remover() {
      std::error_code ignored;
      fs::remove_all(what, ignored);
    }
  } remover{temporary};  // after the exchange it removes the old folder
  fill(temporary);
  bool exists = fs::exists(path, problem);
  int failed = exists ? ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE)
                      : ::rename(temporary.c_str(), path.c_str());
  if (failed != 0 && exists && (errno == EINVAL || errno == ENOSYS)) {
    // No exchange on this file system: for a moment the old folder stands under another name only.
    std::string old = temporary_name(path);
    failed = ::rename(path.c_str(), old.c_str()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0;
    remover.what = old;
  }
  if (failed != 0) fail("cannot write {}: {}", path, std::strerror(errno));
  flush_folder_of(path);
}

}  // namespace ws
