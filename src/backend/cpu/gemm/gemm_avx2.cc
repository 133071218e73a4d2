// AVX2 with FMA: 6 x 16 register tiles (12 accumulators, 2 vectors of B, 1 broadcast of 16 registers).
#if defined(__x86_64__)
#include <immintrin.h>

#include "backend/cpu/gemm/nest.h"

namespace ws::cpu {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8, kRows = 6, kVectors = 2, kDepth = 256;
  using Reg = __m256;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static __m256i mask(int lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load_part(const float* p, int lanes) { return _mm256_maskload_ps(p, mask(lanes)); }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static void store(float* p, Reg r) { _mm256_storeu_ps(p, r); }
  static void store_part(float* p, Reg r, int lanes) { _mm256_maskstore_ps(p, mask(lanes), r); }
  static void transpose(Reg (&r)[kLanes]) {
    Reg t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
      r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
  }
};

}  // namespace

const GemmCode& gemm_code_avx2() {
  static constexpr GemmCode code = gemm_code<Avx2>();
  return code;
}

}  // namespace ws::cpu
#endif
