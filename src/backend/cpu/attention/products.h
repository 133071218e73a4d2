// Products and copies of one head, on the register tiles of V. Products skip what causal masking makes zero: see attention.h.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/rounding.h"
#include "backend/cpu/attention/tiles.h"

namespace ws::cpu {
namespace {

template <class V>
struct Products {
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;

  /// c[rows, columns] of one tile's height at most; k in blocks of 512 (one block where the chain goes on from c).
  template <bool kAdjacentRows>
  static void tile_rows(int64_t rows, int64_t columns, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t ldb,
                        float* c, int64_t ldc, Sum how) {
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int64_t width = std::min(kColumns, columns - j), vectors = (width + V::kLanes - 1) / V::kLanes;
      const int last = static_cast<int>(width - (vectors - 1) * V::kLanes);
      const Tile f = Tiles<V, kAdjacentRows>::table[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)];
      f(std::min(k, kChainBlock), a, a_stride, b + j, ldb, c + j, ldc, last, how);
      for (int64_t p = kChainBlock; p < k; p += kChainBlock)
        f(std::min(k - p, kChainBlock), a + (kAdjacentRows ? p * a_stride : p), a_stride, b + p * ldb + j, ldb, c + j, ldc, last,
          Sum::kAdd);
    }
  }

  static int64_t num_tiles(int64_t rows, int64_t height) { return (rows + height - 1) / height; }
  /// Calls body(first, rows) on nearly equal runs of at most `height` rows.
  template <class Body>
  static void for_each_tile(int64_t rows, int64_t height, const Body& body) {
    const int64_t tiles = num_tiles(rows, height);
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t first = rows * i / tiles;
      body(first, rows * (i + 1) / tiles - first);
    }
  }

  /// The transposed of x[rows, size] in panels of kColumns columns, each [size][kColumns]; columns past the end are zero.
  static void pack_transposed(float* panels, const HeadRows& x, int64_t rows, int64_t size) {
    if (x.dtype == DType::bf16)
      pack_transposed(panels, reinterpret_cast<const uint16_t*>(x.data), x.stride(), rows, size);
    else
      pack_transposed(panels, reinterpret_cast<const float*>(x.data), x.stride(), rows, size);
  }

  /// Rows [begin, begin + rows) of x in f32, ld apart; zeros up to whole vectors.
  static void copy_dense(float* to, int64_t ld, const HeadRows& x, int64_t begin, int64_t rows, int64_t size) {
    for (int64_t t = 0; t < rows; ++t, to += ld) {
      if (x.dtype == DType::bf16)
        Bf16::widen(to, reinterpret_cast<const uint16_t*>(x.row(begin + t)), size);
      else
        std::memcpy(to, x.row(begin + t), static_cast<size_t>(size) * sizeof(float));
      for (int64_t d = size; d < ld; ++d) to[d] = 0.0f;
    }
  }

  /// Neither NaN nor infinity in rows of `ld` floats.
  static bool all_finite(const float* x, int64_t floats) {
    constexpr uint32_t kExponent = 0x7F800000u;
    uint32_t bad = 0;
    for (int64_t i = 0; i < floats; ++i) bad |= (std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent ? 1u : 0u;
    return bad == 0;
  }

  /// Sets right the sign of zeros in c [rows, size] = weights x `x` where the keys from `seen` on were left out; x is dense, ld
  /// apart; the weights left out are zeros of the sign of `zero`.
  static void add_skipped_zeros(float* c, int64_t ldc, int64_t rows, int64_t size, const float* x, int64_t ld, int64_t seen,
                                int64_t keys, float zero) {
    constexpr uint32_t kMinusZero = 0x80000000u;
    if (seen >= keys) return;
    uint32_t found = 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t d = 0; d < size; ++d) found |= std::bit_cast<uint32_t>(c[i * ldc + d]) == kMinusZero ? 1u : 0u;
    if (found == 0) return;
    const bool block_left_out = (seen + kChainBlock - 1) / kChainBlock * kChainBlock < keys;  // its sum is +0
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t d = 0; d < size; ++d) {
        float& sum = c[i * ldc + d];
        if (std::bit_cast<uint32_t>(sum) != kMinusZero) continue;
        bool plus = block_left_out;
        for (int64_t s = seen; s < keys && !plus; ++s) plus = std::signbit(x[s * ld + d]) == std::signbit(zero);
        if (plus) sum = 0.0f;
      }
    }
  }

 private:
  template <class T>
  static void pack_transposed(float* panels, const T* x, int64_t stride, int64_t rows, int64_t size) {
    for (int64_t s0 = 0; s0 < rows; s0 += kColumns, panels += size * kColumns) {
      const int64_t columns = std::min(kColumns, rows - s0);
      const T* const from = x + s0 * stride;
      int64_t done = 0;
      for (; done + 8 <= columns; done += 8) {
        int64_t d = 0;
        for (; d + 8 <= size; d += 8) V::transpose8(panels + d * kColumns + done, kColumns, from + done * stride + d, stride);
        for (; d < size; ++d)
          for (int64_t i = 0; i < 8; ++i) panels[d * kColumns + done + i] = Bf16::widened(from[(done + i) * stride + d]);
      }
      for (int64_t d = 0; d < size; ++d) {
        for (int64_t i = done; i < columns; ++i) panels[d * kColumns + i] = Bf16::widened(from[i * stride + d]);
        for (int64_t i = columns; i < kColumns; ++i) panels[d * kColumns + i] = 0.0f;
      }
    }
  }
};

}  // namespace
}  // namespace ws::cpu
