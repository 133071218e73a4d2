// AVX-512's products on the model of its instructions, in tiles of few rows: 14 would take the compiler ten minutes, and what
// differs from AVX2's code, which takes the same templates, is how registers are read, written and transposed.
#include "avx512_model.h"
//
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/gemm/squares_avx512.h"

namespace ws::cpu {
namespace {

struct Avx512 : SingleWords<Avx512Squares> {
  static constexpr int kRows = 4, kVectors = 2, kDepth = 512;
};

}  // namespace

const GemmCode& gemm_code_avx512_model() {
  static constexpr GemmCode code = gemm_code<Avx512>();
  return code;
}

}  // namespace ws::cpu
