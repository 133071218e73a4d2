// Words of two bf16 in AVX-512 registers, two steps of k an instruction, for files compiled with bf16 dot products.
//
// vdpbf16ps adds to each sum the product of the upper halves of two words, then that of the lower ones, each with one rounding, and
// takes and leaves no denormals. With the earlier step of k in the upper half that is the ascending chain of FMAs of the widened
// values: the bits of all other paths.
#pragma once
#include <bit>

#include "backend/cpu/gemm/squares_avx512.h"
#include "backend/cpu/gemm/words.h"

namespace ws::cpu {
namespace {

struct Avx512Pairs : Avx512Squares {
  using UnitScope = NoScope;
  static constexpr bool kRowsOnly = false, kOneChain = true;
  static constexpr int kRows = 14, kVectors = 2, kDepth = 256, kSteps = 2;
  static constexpr int64_t words(int64_t depth) { return (depth + 1) / 2; }

  static Reg fma(Reg a, Reg b, Reg c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }

  /// Makes the later element -0.
  static void neutralize_later(float& word) {
    word = std::bit_cast<float>((std::bit_cast<uint32_t>(word) & 0xFFFF0000u) | 0x8000u);
  }

  using Avx512Squares::store, Avx512Squares::store_part;
  static __m256i narrow(Reg r) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(r)); }
  static void store(Bf16* p, Reg r) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(r)); }
  static void store_part(Bf16* p, Reg r, int lanes) { _mm256_mask_storeu_epi16(p, mask(lanes), narrow(r)); }

  // Of memory order, the earlier step is in the lower half.
  static Reg swap_halves(__m512i x) { return _mm512_castsi512_ps(_mm512_rol_epi32(x, 16)); }
  static Reg load_depth(const Bf16* src) { return swap_halves(_mm512_loadu_si512(src)); }
  static Reg load_depth_part(const Bf16* src, int elements) {
    return swap_halves(_mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << elements) - 1), src));
  }

  static Reg pair(__m256i earlier, __m256i later) {
    const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(earlier), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(upper, _mm512_cvtepu16_epi32(later)));
  }
  static __m256i load_half(const Bf16* src) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src)); }
  static Reg load_lines(const Bf16* src, int64_t depth_stride, int64_t steps) {
    return pair(load_half(src), steps > 1 ? load_half(src + depth_stride) : _mm256_setzero_si256());
  }
  static Reg load_lines_part(const Bf16* src, int64_t depth_stride, int64_t steps, int lanes) {
    const __m256i earlier = _mm256_maskz_loadu_epi16(mask(lanes), src);
    return pair(earlier, steps > 1 ? _mm256_maskz_loadu_epi16(mask(lanes), src + depth_stride) : _mm256_setzero_si256());
  }
  static float word(const Bf16* src, int64_t depth_stride, int64_t steps) {
    const uint32_t later = steps > 1 ? src[depth_stride].bits : 0;
    return std::bit_cast<float>(uint32_t{src->bits} << 16 | later);
  }
};

}  // namespace
}  // namespace ws::cpu
