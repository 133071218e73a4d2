// Calls of a compiled row loop on the rows of a stripe, each row as long as the keys it sees.
#pragma once
#include <array>
#include <bit>

#include "backend/cpu/attention/attention_plan.h"

namespace ws::cpu {

template <int kAccesses, int kScalars>
class RowCalls {
 public:
  RowCalls(const LoopCode& code, const std::array<float, kScalars>& scalars, void* scratch) : code_(code), scratch_(scratch) {
    args_.fill(0);
    for (int i = 0; i < kScalars; ++i) args_[word(kLayout.scalar(i))] = std::bit_cast<uint32_t>(scalars[static_cast<size_t>(i)]);
  }
  void rows_of(int access, void* data, int64_t row_stride) { set(access, data, row_stride, 1); }
  void one_a_row(int access, float* data) { set(access, data, 1, 0); }

  /// Rows are queries t0, t0 + 1, ..; one that sees no key is left alone. They lie in L2: several are swept side by side.
  void run(const Attention& a, int64_t t0, int64_t rows) {
    args_[word(kLayout.dim(0))] = rows;
    for (int64_t i = 0; i < rows;) {
      const int64_t sees = visible_keys(a, t0 + i);
      int64_t end = i + 1;
      if (sees == a.keys) end = rows;  // later rows see no less
      args_[word(kLayout.dim(1))] = sees;
      if (sees > 0) code_.fn(args_.data(), i, end, 1, sees, scratch_);
      i = end;
    }
  }

 private:
  static constexpr LoopArgsLayout kLayout{kAccesses, 2, kScalars};
  static constexpr size_t kWords = 2 + kScalars + 5 * kAccesses;  // dims and scalars; pointer, strides and fold of each access
  static constexpr size_t word(int index) { return static_cast<size_t>(index); }
  void set(int access, void* data, int64_t outer, int64_t inner) {
    args_[word(kLayout.pointer(access))] = static_cast<int64_t>(reinterpret_cast<intptr_t>(data));
    args_[word(kLayout.stride(access, 0))] = outer;
    args_[word(kLayout.stride(access, 1))] = inner;
  }

  const LoopCode& code_;
  void* scratch_;
  std::array<int64_t, kWords> args_;
};

}  // namespace ws::cpu
