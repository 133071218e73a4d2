// Files read whole by mapping, and files and folders written beside their place, flushed, then renamed: a reader sees the old
// or the new content, never a part.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ws {

using Bytes = std::span<const std::byte>;

/// A file's bytes, mapped read-only; nothing is copied. Throws ws::Error naming the file where it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  Bytes bytes() const { return {static_cast<const std::byte*>(address_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(address_), size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  void* address_ = nullptr;
  size_t size_ = 0;
};

/// A folder that is made, with those above it, where it is not there yet. Unless keep() is called, those made here go again where they
/// are still empty: a failure leaves no trace. Throws ws::Error naming the folder.
class NewFolder {
 public:
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  void keep() { made_.clear(); }

 private:
  void remove_made();
  std::vector<std::filesystem::path> made_;  // the innermost last
};

/// Writes a file in pieces under a temporary name; commit() flushes it to disk and renames it. Without commit() nothing is left.
/// Folders above it are made. Every failure is a ws::Error naming the file.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(Bytes bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::string path_, temporary_;
  NewFolder folder_;
  int descriptor_ = -1;
};

/// Whether a name ends in `extension` (".csv"), in whatever case.
bool has_extension(std::string_view path, std::string_view extension);

void write_file(const std::string& path, std::string_view text);

/// An Error where `path` could not be written now; leaves nothing. For long work whose result goes there.
void check_can_write(const std::string& path);

/// Calls `fill(temporary folder)`, then puts the folder in place of `path` in one step; the old one is removed. If `fill` throws,
/// nothing is left and `path` is as it was.
void write_folder(const std::string& path, const std::function<void(const std::string&)>& fill);

}  // namespace ws
