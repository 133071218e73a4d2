// AVX-512: 14 x 32 register tiles (28 accumulators, 2 vectors of B, 1 broadcast of 32 registers).
#if defined(__x86_64__)
#include "backend/cpu/attention/head.h"
#include "backend/cpu/attention/transpose8.h"

namespace ws::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16, kRows = 14, kVectors = 2;
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
  static void transpose8(float* to, int64_t to_stride, const float* from, int64_t from_stride) {
    transpose8_avx(to, to_stride, from, from_stride);
  }
};

}  // namespace

const AttentionIsaCode& attention_code_avx512() {
  static constexpr AttentionIsaCode code = attention_code<Avx512>();
  return code;
}

}  // namespace ws::cpu
#endif
