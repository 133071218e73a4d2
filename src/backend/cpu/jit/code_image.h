// CodeImage: the machine code and constants of one kernel as a block of bytes that runs wherever it is put, because all its
// references are relative. So a cached kernel needs no linker, and no LLVM, to load.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ws::cpu {

struct CodeImage {
  std::vector<uint8_t> bytes;  // to be placed at a multiple of kCodeAlignment
  uint64_t entry = 0;          // offset of the function
  int scratch_slots = 0;
};
constexpr uint64_t kCodeAlignment = 64;

/// Links an ELF object by itself. Throws InternalError where it refers to anything outside, or in a way that is not relative.
CodeImage link_object(std::span<const uint8_t> object, std::string_view entry_name);

/// Executable memory that holds images for as long as it lives. Not thread-safe.
class CodeMemory {
 public:
  CodeMemory() = default;
  ~CodeMemory();
  CodeMemory(const CodeMemory&) = delete;
  CodeMemory& operator=(const CodeMemory&) = delete;
  /// Addresses of the entry of each; never writable and executable at once. Throws RuntimeError where the system gives no memory.
  std::vector<void*> place(std::span<const CodeImage* const> images);

 private:
  struct Mapping {
    void* address;
    size_t size;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace ws::cpu
