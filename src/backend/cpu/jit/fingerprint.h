// What the ops of a LoopKernel emit, heard by a builder that only listens: a hash, so that a cached kernel is not found again
// after an op's formula changed, and a count, which is the op's weight. Costs microseconds and no LLVM.
#pragma once
#include <cstdint>
#include <string_view>

#include "schedule/loop_kernel.h"

namespace ws::cpu {

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add_bytes(const void* data, size_t size) {
    for (const auto* p = static_cast<const unsigned char*>(data); size > 0; --size, ++p) value_ = (value_ ^ *p) * 0x100000001b3u;
  }
  void add(uint64_t word) { add_bytes(&word, sizeof word); }
  void add(std::string_view text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

uint64_t emission_fingerprint(const LoopKernel& kernel);
/// Operations, constants not counted, that a kOp emits for one element.
int emitted_operations(const LoopKernel& kernel, const LoopInstr& instr);

}  // namespace ws::cpu
