// Attention's operands as words of two bf16 (gemm/pairs_avx512.h): the interface of copies.h, and weights made into words. Only for
// files compiled with bf16 dot products.
//
// Where a sum has an odd number of terms its last word is half empty. One factor's half is then +0 and the other's -0: their product
// -0 leaves every sum as it is, where +0 would turn a sum of -0 into +0.
#pragma once
#include <bit>
#include <cmath>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/gemm/pack.h"
#include "backend/cpu/gemm/pairs_avx512.h"

namespace ws::cpu {
namespace {

struct PairCopies {
  using V = Avx512Pairs;
  static constexpr int64_t kSteps = 2, kLanes = V::kLanes, kColumns = kLanes * V::kVectors;
  static constexpr int64_t words(int64_t elements) { return (elements + 1) / 2; }

  static void pack_transposed(float* panels, const HeadRows& x, int64_t rows, int64_t size) {
    for (int64_t s0 = 0; s0 < rows; s0 += kColumns, panels += words(size) * kColumns)
      pack_adjacent_depth<V>(panels, kColumns, std::min(kColumns, rows - s0), size, elements(x, s0), x.stride());
  }

  static void copy_along(float* to, int64_t ld, const HeadRows& x, int64_t begin, int64_t rows, int64_t size) {
    constexpr int64_t kElements = kLanes * kSteps;
    for (int64_t t = begin; t < begin + rows; ++t, to += ld) {
      const Bf16* const row = elements(x, t);
      int64_t d = 0;
      for (; d + kElements <= size; d += kElements) V::store(to + d / kSteps, V::load_depth(row + d));
      if (d < size) V::store(to + d / kSteps, V::load_depth_part(row + d, static_cast<int>(size - d)));
      if (size % kSteps != 0) V::neutralize_later(to[size / kSteps]);
    }
  }
  static void copy_across(float* to, int64_t ld, const HeadRows& x, int64_t begin, int64_t rows, int64_t size, float missing) {
    pack_adjacent_lines<V>(to, ld, size, rows, elements(x, begin), x.stride());
    if (rows % kSteps != 0) set_later(to + rows / kSteps * ld, ld, missing);
  }
  static float across(const float* x, int64_t ld, int64_t t, int64_t d) { return half(x[t / kSteps * ld + d], t); }
  static float along(const float* x, int64_t i) { return half(x[i / kSteps], i); }

  static bool all_finite(const float* x, int64_t count) {
    constexpr uint32_t kUpper = 0x7F800000u, kLower = 0x7F80u;
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto word = std::bit_cast<uint32_t>(x[i]);
      bad |= (word & kUpper) == kUpper || (word & kLower) == kLower ? 1u : 0u;
    }
    return bad == 0;
  }

  /// n floats of a row of weights, rounded to bf16, to words along the row; `to` may be the row. n counts whole vectors.
  static void weights_along(float* to, const float* row, int64_t n) {
    for (int64_t i = 0; i < n; i += kColumns) store_along(to, i, n, rounded(row, i, n));
  }
  /// The same of two rows: words across them take the place of the earlier one; words along them too, where that is asked for.
  /// Without a later row its half is +0.
  static void weights_of_rows(float* earlier, const float* later, float* earlier_along, float* later_along, int64_t n) {
    // Of two vectors of bf16, those at the same place become a word; the upper halves of such vectors follow `next` later.
    const __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i first = _mm512_or_si512(place, _mm512_slli_epi32(_mm512_add_epi32(place, _mm512_set1_epi32(32)), 16));
    const __m512i next = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    for (int64_t i = 0; i < n; i += kColumns) {
      const __m512i up = rounded(earlier, i, n), low = later == nullptr ? _mm512_setzero_si512() : rounded(later, i, n);
      if (earlier_along != nullptr) store_along(earlier_along, i, n, up);
      if (later_along != nullptr) store_along(later_along, i, n, low);
      V::store(earlier + i, _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, first, up)));
      if (i + kLanes < n) V::store(earlier + i + kLanes, _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, next, up)));
    }
  }

 private:
  static constexpr uint32_t kEarlier = 0xFFFF0000u;
  static float half(float word, int64_t step) {
    const auto bits = std::bit_cast<uint32_t>(word);
    return std::bit_cast<float>(step % kSteps == 0 ? bits & kEarlier : bits << 16);
  }
  // Two vectors of a row from float i on, of which it has n; what it has not is 0. To nearest even, NaN stays NaN, denormals are zeros.
  static __m512i rounded(const float* row, int64_t i, int64_t n) {
    const V::Reg more = i + kLanes < n ? V::load(row + i + kLanes) : V::zero();
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(more, V::load(row + i)));
  }
  static void store_along(float* to, int64_t i, int64_t n, __m512i elements) {
    const __m512i words = _mm512_rol_epi32(elements, 16);  // of memory order, the earlier one is in the lower half
    if (i + kLanes < n)
      _mm512_storeu_si512(to + i / kSteps, words);
    else
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i / kSteps), _mm512_castsi512_si256(words));
  }
  static const Bf16* elements(const HeadRows& x, int64_t t) { return reinterpret_cast<const Bf16*>(x.row(t)); }
  static void set_later(float* words, int64_t count, float zero) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t earlier = std::bit_cast<uint32_t>(words[i]) & kEarlier;
      words[i] = std::bit_cast<float>(earlier | std::bit_cast<uint32_t>(zero) >> 16);
    }
  }
};

}  // namespace
}  // namespace ws::cpu
