// Products and copies of one head, on the register tiles of V. Products skip what causal masking makes zero: see attention.h.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/copies.h"
#include "backend/cpu/attention/tiles.h"

namespace ws::cpu {
namespace {

template <class V>
struct Products {
  using Copies = typename V::Copies;
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors, kSteps = Copies::kSteps;

  /// c[rows, columns] of one tile's height at most; k, in words, in blocks of 512 elements (one block where the chain goes on from c).
  template <bool kAdjacentRows>
  static void tile_rows(int64_t rows, int64_t columns, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t ldb,
                        float* c, int64_t ldc, Sum how) {
    constexpr int64_t kBlock = kChainBlock / kSteps;
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int64_t width = std::min(kColumns, columns - j), vectors = (width + V::kLanes - 1) / V::kLanes;
      const int last = static_cast<int>(width - (vectors - 1) * V::kLanes);
      const Tile f = Tiles<V, kAdjacentRows>::table[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)];
      f(std::min(k, kBlock), a, a_stride, b + j, ldb, c + j, ldc, last, how);
      for (int64_t p = kBlock; p < k; p += kBlock)
        f(std::min(k - p, kBlock), a + (kAdjacentRows ? p * a_stride : p), a_stride, b + p * ldb + j, ldb, c + j, ldc, last,
          Sum::kAdd);
    }
  }

  /// One row of c, of exactly the terms [begin, end) of k: what shares a word with them is left out, whatever it is. weight(p) is
  /// element p of A.
  template <class Weight>
  static void exact_row(int64_t columns, int64_t begin, int64_t end, const Weight& weight, const float* b, int64_t ldb, float* c,
                        Sum how) {
    for (int64_t p0 = begin, p1 = begin; p0 == begin || p0 < end; p0 = p1, how = Sum::kAdd) {
      p1 = how == Sum::kChain ? end : std::min(end, (p0 / kChainBlock + 1) * kChainBlock);
      for (int64_t d0 = 0; d0 < columns; d0 += kColumns) {
        const int64_t width = std::min(kColumns, columns - d0);
        float sums[kColumns] = {};
        if (how == Sum::kChain) std::copy_n(c + d0, width, sums);
        for (int64_t p = p0; p < p1; ++p)
          for (int64_t d = 0; d < width; ++d) sums[d] = std::fma(weight(p), Copies::across(b, ldb, p, d0 + d), sums[d]);
        for (int64_t d = 0; d < width; ++d) c[d0 + d] = how == Sum::kAdd ? c[d0 + d] + sums[d] : sums[d];
      }
      if (p1 == end) return;
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

  /// Sets right the sign of zeros in c [rows, size] = weights x `x` where the keys from `seen` on were left out; x is words across
  /// rows, ld apart; the weights left out are zeros of the sign of `zero`.
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
        for (int64_t s = seen; s < keys && !plus; ++s) plus = std::signbit(Copies::across(x, ld, s, d)) == std::signbit(zero);
        if (plus) sum = 0.0f;
      }
    }
  }
};

}  // namespace
}  // namespace ws::cpu
