// AVX2 with FMA: 6 x 16 register tiles (12 accumulators, 2 vectors of B, 1 broadcast of 16 registers).
#if defined(__x86_64__)
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/registers_avx2.h"

namespace ws::cpu {
namespace {

struct Avx2 : SingleWords<Avx2Registers> {
  static constexpr int kRows = 6, kVectors = 2, kDepth = 512;
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
