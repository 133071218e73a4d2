// Asks for rows of memory a few at a time while products keep the arithmetic busy: rows of a packed q, k, v lie pages apart, where
// the hardware's own prefetch stops, and a head's worth of them takes longer to arrive than its softmax takes to compute.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/cpu/attention/attention_plan.h"

namespace ws::cpu {

class Prefetcher {
 public:
  explicit Prefetcher(int64_t head_size) : head_size_(head_size) {}

  /// Rows [begin, begin + rows) of x are to be asked for too. At most kMost calls.
  void add(const HeadRows& x, int64_t begin, int64_t rows) {
    if (rows <= 0) return;
    ranges_[count_++] = {x.row(begin), x.stride_bytes, head_size_ * static_cast<int64_t>(size_of(x.dtype)), rows};
    total_ += rows;
  }
  /// The work over which the rows are spread: so many calls of step().
  void spread(int64_t steps) { rows_a_step_ = steps > 0 ? (total_ + steps - 1) / steps : 0; }

  void step() {
    for (int64_t left = rows_a_step_; left > 0 && current_ < count_;) {
      Range& range = ranges_[current_];
      const int64_t rows = std::min(left, range.rows);
      for (int64_t t = 0; t < rows; ++t, range.next += range.stride)
        for (int64_t i = 0; i < range.bytes; i += kLine) __builtin_prefetch(range.next + i, 0, 2);
      left -= rows;
      if ((range.rows -= rows) == 0) ++current_;
    }
  }

 private:
  static constexpr size_t kMost = 4;
  static constexpr int64_t kLine = 64;
  struct Range {
    const char* next = nullptr;
    int64_t stride = 0, bytes = 0, rows = 0;  // bytes of one row
  };
  int64_t head_size_, rows_a_step_ = 0, total_ = 0;
  size_t count_ = 0, current_ = 0;
  std::array<Range, kMost> ranges_;
};

}  // namespace ws::cpu
