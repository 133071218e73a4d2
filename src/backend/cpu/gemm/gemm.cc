#include "backend/cpu/gemm/gemm.h"

#include <algorithm>

#include "backend/cpu/gemm/code.h"
#include "backend/cpu/gemm/micro.h"
#include "backend/cpu/isa.h"

namespace ws::cpu {
namespace {

const GemmCode& code_for(GemmIsa isa) {
#if defined(__x86_64__)
  if (isa >= GemmIsa::avx512) {
    static const GemmCode& code = code_or_model(Isa::avx512, gemm_code_avx512, gemm_code_avx512_model);
    return code;
  }
  if (isa == GemmIsa::avx2) return gemm_code_avx2();
#else
  static_cast<void>(isa);
#endif
  return gemm_code_portable();
}

/// For products that are not tiny.
const GemmCode& blocked_code_for(const Gemm& g, GemmIsa isa) {
  const bool is_bf16 = g.operand_dtype == DType::bf16;
  if (is_bf16 && isa == GemmIsa::amx_model) return gemm_code_amx_model();
#if defined(__x86_64__)
  if (isa == GemmIsa::amx && uses_amx_tiles(g)) return gemm_code_amx();
  if (is_bf16 && isa >= GemmIsa::avx512_bf16) {
    static const GemmCode& code = code_or_model(Isa::avx512_bf16, gemm_code_avx512_bf16, gemm_code_avx512_bf16_model);
    return code;
  }
#endif
  return code_for(isa);
}

bool is_empty(const Gemm& g) { return g.batch == 0 || g.m == 0 || g.n == 0; }

}  // namespace

NarrowBlock narrow_block_for(GemmIsa isa) { return code_for(isa).narrow; }

int64_t gemm_workspace_bytes(const Gemm& g, GemmIsa isa, int num_threads) {
  if (is_empty(g) || is_tiny_gemm(g)) return 0;
  // gemm() may get fewer threads than promised, and plans for those.
  int64_t bytes = 0;
  for (int threads = 1; threads <= num_threads; ++threads)
    bytes = std::max(bytes, plan_gemm(g, blocked_code_for(g, isa).shape, threads).total_bytes);
  return bytes;
}

void gemm(const Gemm& g, GemmIsa isa, void* workspace, Workers& workers) {
  if (is_empty(g)) return;
  if (is_tiny_gemm(g)) return code_for(isa).tiny(g, workers);
  const GemmCode& code = blocked_code_for(g, isa);
  code.blocked(g, plan_gemm(g, code.shape, workers.num_threads()), workspace, workers);
}

int64_t gemm_chain_scratch_bytes(int64_t m, int64_t n, int64_t k) {
  static_cast<void>(n);  // columns are packed a panel at a time
  constexpr int64_t kMostColumns = 32, kMostLanes = 16, kFewestRows = 4;
  return (k * kMostColumns + row_area_floats(m, k, kFewestRows, kMostLanes)) * static_cast<int64_t>(sizeof(float));
}

void gemm_chain(GemmIsa isa, int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row_stride, int64_t a_col_stride,
                const float* b, int64_t b_row_stride, int64_t b_col_stride, float* c, int64_t c_row_stride, bool from_zero,
                void* scratch) {
  if (m == 0 || n == 0) return;
  code_for(isa).chain(m, n, k, a, a_row_stride, a_col_stride, b, b_row_stride, b_col_stride, c, c_row_stride, from_zero, scratch);
}

}  // namespace ws::cpu
