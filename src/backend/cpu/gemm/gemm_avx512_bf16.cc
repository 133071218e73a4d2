// AVX-512 with bf16 dot products: 14 x 32 register tiles.
#if defined(__x86_64__)
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/gemm/pairs_avx512.h"

namespace ws::cpu {

const GemmCode& gemm_code_avx512_bf16() {
  static constexpr GemmCode code = blocked_code<Avx512Pairs>();
  return code;
}

}  // namespace ws::cpu
#endif
