// Blocks of fp32 as their bf16 parts (parts.h), templated on a vector type. Columns adjacent in memory are taken as they lie, adjacent
// rows by squares transposed in registers.
#pragma once
#include <algorithm>

#include "backend/cpu/gemm/pack.h"

namespace ws::cpu {
namespace {

template <class V>
[[gnu::always_inline]] inline void narrow_vector(Bf16* dst, typename V::Reg x, int lanes, bool low) {
  const auto put = [&](typename V::Reg r) __attribute__((always_inline)) {
    lanes == V::kLanes ? V::store(dst, r) : V::store_part(dst, r, lanes);
  };
  put(x);
  if (!low) return;
  const float minus_one = -1;
  const typename V::Reg high = lanes == V::kLanes ? V::load(dst) : V::load_part(dst, lanes);
  put(V::fma(V::broadcast(&minus_one), high, x));
}

template <class V>
void narrow_block(Bf16* dst, int64_t ld, const float* src, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols,
                  bool low) {
  constexpr int64_t kLanes = V::kLanes;
  const auto lanes_of = [](int64_t left) { return static_cast<int>(std::min<int64_t>(left, V::kLanes)); };
  if (col_stride == 1) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; j += kLanes) {
        const int lanes = lanes_of(cols - j);
        const float* from = src + i * row_stride + j;
        narrow_vector<V>(dst + i * ld + j, lanes == kLanes ? V::load(from) : V::load_part(from, lanes), lanes, low);
      }
    return;
  }
  for (int64_t i = 0; i < rows; i += kLanes)
    for (int64_t j = 0; j < cols; j += kLanes) {
      const int64_t height = lanes_of(rows - i);
      const int width = lanes_of(cols - j);
      typename V::Reg square[kLanes];
      float line[kLanes] = {};
      for (int64_t c = 0; c < kLanes; ++c) {
        const float* from = src + i * row_stride + (j + c) * col_stride;
        if (c >= width) {
          square[c] = V::zero();
        } else if (row_stride == 1) {
          square[c] = height == kLanes ? V::load(from) : V::load_part(from, static_cast<int>(height));
        } else {
          for (int64_t r = 0; r < height; ++r) line[r] = from[r * row_stride];
          square[c] = V::load(line);
        }
      }
      V::transpose(square);
      for (int64_t r = 0; r < height; ++r) narrow_vector<V>(dst + (i + r) * ld + j, square[r], width, low);
    }
}

}  // namespace
}  // namespace ws::cpu
