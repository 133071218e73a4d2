// AVX-512: 14 x 32 register tiles (28 accumulators, 2 vectors of B, 1 broadcast of 32 registers).
#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/cpu/gemm/nest.h"

namespace ws::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16, kRows = 14, kVectors = 2, kDepth = 512;
  using Reg = __m512;
  static Reg zero() { return _mm512_setzero_ps(); }
  static Reg load(const float* p) { return _mm512_loadu_ps(p); }
  static __mmask16 mask(int lanes) { return static_cast<__mmask16>((1u << lanes) - 1); }
  static Reg load_part(const float* p, int lanes) { return _mm512_maskz_loadu_ps(mask(lanes), p); }
  static Reg broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static void store(float* p, Reg r) { _mm512_storeu_ps(p, r); }
  static void store_part(float* p, Reg r, int lanes) { _mm512_mask_storeu_ps(p, mask(lanes), r); }
  static void transpose(Reg (&r)[kLanes]) {
    Reg t[16];
    // Pairs, then fours inside each 128-bit quarter.
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
    // Then quarters: t[i] and t[i + 8] of rows 0-7, the others of rows 8-15.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xDD);
      t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
      t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xDD);
      r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
      r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xDD);
    }
  }
};

}  // namespace

const GemmCode& gemm_code_avx512() {
  static constexpr GemmCode code = gemm_code<Avx512>();
  return code;
}

}  // namespace ws::cpu
#endif
