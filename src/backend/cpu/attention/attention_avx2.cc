// AVX2: 6 x 16 register tiles (12 accumulators, 2 vectors of B, 1 broadcast of 16 registers).
#if defined(__x86_64__)
#include "backend/cpu/attention/head.h"
#include "backend/cpu/attention/transpose8.h"
#include "backend/cpu/registers_avx2.h"

namespace ws::cpu {
namespace {

struct Avx2 : Avx2Registers {
  using Copies = ElementCopies<Avx2>;
  static constexpr int kRows = 6, kVectors = 2;
  template <class T>
  static void transpose8(float* to, int64_t to_stride, const T* from, int64_t from_stride) {
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
