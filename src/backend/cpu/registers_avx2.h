// AVX2 with FMA registers of floats, as GEMM's and attention's register tiles use them. Only for files compiled for that instruction set;
// each has its own copy (unnamed namespace), so that no other file can be linked to its code.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

struct Avx2Registers {
  static constexpr int kLanes = 8;
  using Reg = __m256;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static __m256i mask(int lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load_part(const float* p, int lanes) { return _mm256_maskload_ps(p, mask(lanes)); }
  static Reg widen_bf16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  static Reg load(const ws::Bf16* p) { return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static Reg load_part(const ws::Bf16* p, int lanes) {
    if (lanes <= 0) return zero();
    // Pairs, as masks of 32 bits allow, then the last one, which may have no pair
    const __m128i pairs = _mm_cmpgt_epi32(_mm_set1_epi32(lanes / 2), _mm_setr_epi32(0, 1, 2, 3)),
                  last = _mm_cmpeq_epi16(_mm_set1_epi16(static_cast<int16_t>(lanes - 1)), _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7)),
                  x = _mm_maskload_epi32(reinterpret_cast<const int*>(p), pairs);
    return widen_bf16(_mm_blendv_epi8(x, _mm_set1_epi16(static_cast<int16_t>(p[lanes - 1].bits)), last));
  }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  /// Pinned to the form that adds in place: left to choose, g++ 12 rotates accumulators through all 16 registers and the stack.
  static Reg fma(Reg a, Reg b, Reg c) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
  }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static void store(float* p, Reg r) { _mm256_storeu_ps(p, r); }
  /// By halves: a masked store takes some processors tens of cycles.
  static void store_part(float* p, Reg r, int lanes) {
    if (lanes >= kLanes) return store(p, r);
    __m128 left = _mm256_castps256_ps128(r);
    if ((lanes & 4) != 0) _mm_storeu_ps(p, left), p += 4, left = _mm256_extractf128_ps(r, 1);
    if ((lanes & 2) != 0) _mm_storel_pi(reinterpret_cast<__m64*>(p), left), p += 2, left = _mm_movehl_ps(left, left);
    if ((lanes & 1) != 0) _mm_store_ss(p, left);
  }
  /// To nearest even; a NaN stays one.
  static __m128i narrow(Reg r) {
    const __m256i bits = _mm256_castps_si256(r), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
    const __m256 kept = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, _mm256_cmp_ps(r, r, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
  static void store(ws::Bf16* p, Reg r) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(r)); }
  static void store_part(ws::Bf16* p, Reg r, int lanes) {
    ws::Bf16 whole[kLanes];
    store(whole, r);
    std::memcpy(p, whole, static_cast<size_t>(lanes) * sizeof(ws::Bf16));
  }
};

}  // namespace
}  // namespace ws::cpu
