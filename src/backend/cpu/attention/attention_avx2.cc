// AVX2: 6 x 16 register tiles (12 accumulators, 2 vectors of B, 1 broadcast of 16 registers).
#if defined(__x86_64__)
#include "backend/cpu/attention/head.h"
#include "backend/cpu/attention/transpose8.h"

namespace ws::cpu {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8, kRows = 6, kVectors = 2;
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
  static void transpose8(float* to, int64_t to_stride, const float* from, int64_t from_stride) {
    transpose8_avx(to, to_stride, from, from_stride);
  }
};

}  // namespace

const AttentionIsaCode& attention_code_avx2() {
  static constexpr AttentionIsaCode code = attention_code<Avx2>();
  return code;
}

}  // namespace ws::cpu
#endif
