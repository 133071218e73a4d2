// AVX-512 registers of floats, as GEMM's and attention's register tiles use them. Only for files compiled for that instruction set;
// each has its own copy (unnamed namespace), so that no other file can be linked to its code.
#pragma once
#include <immintrin.h>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

struct Avx512Registers {
  static constexpr int kLanes = 16;
  using Reg = __m512;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static __mmask16 mask(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1); }
  static Reg load_part(const float* p, int lanes) { return _mm512_maskz_loadu_ps(mask(lanes), p); }
  static Reg widen_bf16(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
  static Reg load(const ws::Bf16* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static Reg load_part(const ws::Bf16* p, int lanes) { return widen_bf16(_mm256_maskz_loadu_epi16(mask(lanes), p)); }
  static Reg broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static void store(float* p, Reg r) { _mm512_storeu_ps(p, r); }
  static void store_part(float* p, Reg r, int lanes) { _mm512_mask_storeu_ps(p, mask(lanes), r); }
  /// To nearest even; a NaN stays one.
  static __m256i narrow(Reg r) {
    const __m512i bits = _mm512_castps_si512(r), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(r, r, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
  }
  static void store(ws::Bf16* p, Reg r) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(r)); }
  static void store_part(ws::Bf16* p, Reg r, int lanes) { _mm256_mask_storeu_epi16(p, mask(lanes), narrow(r)); }
};

}  // namespace
}  // namespace ws::cpu
