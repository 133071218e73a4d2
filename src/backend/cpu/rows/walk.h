// How the row routines walk strided arrays: axes that lie end to end in every array are merged, axes of one element dropped, so
// that most calls become a few long rows.
#pragma once
#include <array>
#include <cstdint>

#include "backend/cpu/rows/rows.h"

namespace ws::cpu {

/// A common index space of `kArrays` arrays, simplified. Strides are in bytes. rank >= 1.
template <int kArrays>
struct IndexSpace {
  int rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  std::array<std::array<int64_t, kArrays>, kMaxRank> strides{};  // [axis][array]

  void push(int64_t dim, std::array<int64_t, kArrays> stride) {
    if (dim == 1 && rank > 0) return;
    if (rank > 0) {
      const auto last = static_cast<size_t>(rank - 1);
      bool joins = true;
      for (size_t a = 0; a < kArrays; ++a) joins = joins && strides[last][a] == stride[a] * dim;
      if (joins || dims[last] == 1) {
        dims[last] *= dim;
        strides[last] = stride;
        return;
      }
    }
    dims[static_cast<size_t>(rank)] = dim;
    strides[static_cast<size_t>(rank)] = stride;
    ++rank;
  }
  int64_t dim(int axis) const { return dims[static_cast<size_t>(axis)]; }
  int64_t stride(int axis, int array) const { return strides[static_cast<size_t>(axis)][static_cast<size_t>(array)]; }
  /// Elements outside the last `inner` axes.
  int64_t outer(int inner) const {
    int64_t n = 1;
    for (int i = 0; i + inner < rank; ++i) n *= dim(i);
    return n;
  }
  /// Byte offsets of outer index `i` (row-major over the axes before the last `inner`).
  std::array<int64_t, kArrays> offset(int64_t i, int inner) const {
    std::array<int64_t, kArrays> at{};
    for (int axis = rank - inner - 1; axis >= 0; --axis) {
      const int64_t d = dim(axis), q = i / d, r = i - q * d;
      for (size_t a = 0; a < kArrays; ++a) at[a] += r * strides[static_cast<size_t>(axis)][a];
      i = q;
    }
    return at;
  }
};

/// Fewest outer rows worth handing to a thread at once, for rows of that many bytes.
inline int64_t rows_per_grain(int64_t row_bytes) {
  constexpr int64_t kGrainBytes = 32 << 10;
  return row_bytes >= kGrainBytes ? 1 : (kGrainBytes + row_bytes) / (row_bytes + 1);
}

}  // namespace ws::cpu
