#include "backend/cpu/jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "backend/cpu/jit/fingerprint.h"

namespace ws::cpu {
namespace {

constexpr char kMagic[8] = {'w', 's', 'l', 'o', 'o', 'p', '2', '\n'};

/// Start of a file; the key and the code follow, then nothing.
struct Header {
  char magic[8];
  uint64_t key_bytes, code_bytes, entry;
  int64_t scratch_slots;
  uint64_t checksum;  // of all fields above, the key and the code
};

uint64_t checksum(const Header& header, std::string_view key, std::span<const uint8_t> code) {
  Hash hash;
  hash.add_bytes(&header, offsetof(Header, checksum));
  hash.add_bytes(key.data(), key.size());
  hash.add_bytes(code.data(), code.size());
  return hash.value();
}

class File {
 public:
  File(const std::string& path, int flags) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return descriptor_ >= 0; }

  bool read_all(std::string& out) {
    struct stat info {};
    if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) return false;
    out.resize(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::read(descriptor_, out.data() + done, out.size() - done);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  bool write_all(const void* data, size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t n = ::write(descriptor_, at, size);
      if (n <= 0) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int descriptor_;
};

}  // namespace

DiskCache::DiskCache(std::string directory) : directory_(std::move(directory)) {
  if (directory_.empty()) return;
  std::error_code ignored;  // a folder that cannot be made shows as entries that are not there
  std::filesystem::create_directories(directory_, ignored);
}

std::string DiskCache::path_of(std::string_view key) const {
  Hash first, second;
  first.add(key);
  second.add(uint64_t{0x9e3779b97f4a7c15u});
  second.add(key);
  return fmt::format("{}/{:016x}{:016x}.loop", directory_, first.value(), second.value());
}

std::optional<CodeImage> DiskCache::find(std::string_view key) const {
  if (!enabled()) return std::nullopt;
  File file(path_of(key), O_RDONLY);
  std::string text;
  if (!file || !file.read_all(text) || text.size() < sizeof(Header)) return std::nullopt;
  Header header;
  std::memcpy(&header, text.data(), sizeof header);
  const size_t room = text.size() - sizeof header;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_bytes != key.size() || key.size() > room ||
      header.code_bytes != room - key.size() || header.entry >= header.code_bytes || header.scratch_slots < 0)
    return std::nullopt;
  const std::string_view stored_key(text.data() + sizeof header, key.size());
  const auto* code = reinterpret_cast<const uint8_t*>(text.data()) + sizeof header + key.size();
  if (stored_key != key || checksum(header, key, {code, header.code_bytes}) != header.checksum) return std::nullopt;
  return CodeImage{{code, code + header.code_bytes}, header.entry, static_cast<int>(header.scratch_slots)};
}

bool DiskCache::insert(std::string_view key, const CodeImage& image) const {
  if (!enabled()) return false;
  static std::atomic<int> counter{0};
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key_bytes = key.size();
  header.code_bytes = image.bytes.size();
  header.entry = image.entry;
  header.scratch_slots = image.scratch_slots;
  header.checksum = checksum(header, key, image.bytes);
  const std::string path = path_of(key);
  const std::string temporary = fmt::format("{}.{}.{}.tmp", path, getpid(), counter++);
  bool written = false;
  {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!file) return false;
    written = file.write_all(&header, sizeof header) && file.write_all(key.data(), key.size()) &&
              file.write_all(image.bytes.data(), image.bytes.size());
  }
  if (written && rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

}  // namespace ws::cpu
