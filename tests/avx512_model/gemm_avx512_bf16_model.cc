// Products of bf16 pairs on the model, in tiles of few rows, as in gemm_avx512_model.cc.
#include "avx512_model.h"
//
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/gemm/pairs_avx512.h"

namespace ws::cpu {
namespace {

struct FewRows : Avx512Pairs {
  static constexpr int kRows = 4;
};

}  // namespace

const GemmCode& gemm_code_avx512_bf16_model() {
  static constexpr GemmCode code = blocked_code<FewRows>();
  return code;
}

}  // namespace ws::cpu
