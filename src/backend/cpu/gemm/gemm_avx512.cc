// AVX-512: 14 x 32 register tiles (28 accumulators, 2 vectors of B, 1 broadcast of 32 registers).
#if defined(__x86_64__)
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/gemm/squares_avx512.h"

namespace ws::cpu {
namespace {

struct Avx512 : SingleWords<Avx512Squares> {
  static constexpr int kRows = 14, kVectors = 2, kDepth = 512;
};

}  // namespace

const GemmCode& gemm_code_avx512() {
  static constexpr GemmCode code = gemm_code<Avx512>();
  return code;
}

}  // namespace ws::cpu
#endif
