// AVX-512: 14 x 32 register tiles (28 accumulators, 2 vectors of B, 1 broadcast of 32 registers).
#if defined(__x86_64__)
#include "backend/cpu/attention/head.h"
#include "backend/cpu/attention/transpose8.h"
#include "backend/cpu/registers_avx512.h"

namespace ws::cpu {
namespace {

struct Avx512 : Avx512Registers {
  using Copies = ElementCopies<Avx512>;
  static constexpr int kRows = 14, kVectors = 2;
  template <class T>
  static void transpose8(float* to, int64_t to_stride, const T* from, int64_t from_stride) {
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
