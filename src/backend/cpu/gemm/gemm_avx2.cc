// AVX2 with FMA: 6 x 16 register tiles (12 accumulators, 2 vectors of B, 1 broadcast of 16 registers).
#if defined(__x86_64__)
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/registers_avx2.h"

namespace ws::cpu {
namespace {

struct Avx2 : SingleWords<Avx2Registers> {
  static constexpr int kRows = 6, kVectors = 2, kDepth = 512;
  static void transpose(Reg (&r)[kLanes]) {
    transpose_halves(r);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Reg low = r[i], high = r[i + 4];
      r[i] = _mm256_permute2f128_ps(low, high, 0x20);
      r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
  }
  /// As transposing whole lines, but halves change places on the way from memory, which needs no shuffle.
  static void load_whole_square(Reg (&r)[kLanes], const float* src, int64_t line_stride) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const float *upper = src + i * line_stride, *lower = upper + 4 * line_stride;
      r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(upper)), _mm_loadu_ps(lower), 1);
      r[i + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(upper + 4)), _mm_loadu_ps(lower + 4), 1);
    }
    transpose_halves(r);
  }

 private:
  /// Each 4 x 4 part of each 128-bit half.
  static void transpose_halves(Reg (&r)[kLanes]) {
    Reg t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
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
