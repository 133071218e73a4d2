// What each ISA's file offers to gemm.cc: the same entry points, compiled with that ISA's flags.
#pragma once
#include "backend/cpu/gemm/parts.h"
#include "backend/cpu/gemm/plan.h"

namespace ws::cpu {

struct GemmCode {
  MicroShape shape;
  /// A product for which is_tiny_gemm() holds.
  void (*tiny)(const Gemm& g, Workers& workers);
  /// Any product, as planned for this shape.
  void (*blocked)(const Gemm& g, const GemmPlan& plan, void* workspace, Workers& workers);
  void (*chain)(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row_stride, int64_t a_col_stride, const float* b,
                int64_t b_row_stride, int64_t b_col_stride, float* c, int64_t c_row_stride, bool from_zero, void* scratch);
  NarrowBlock narrow;
};

const GemmCode& gemm_code_portable();
const GemmCode& gemm_code_avx2();
const GemmCode& gemm_code_avx512();
NarrowBlock narrow_block_for(GemmIsa isa);
// Operands in bf16; only `blocked`.
const GemmCode& gemm_code_avx512_bf16();
const GemmCode& gemm_code_amx();
const GemmCode& gemm_code_amx_model();

// Models of instructions, linked into tests (tests/avx512_model): what runs where the processor lacks them and a test asks for them.
[[gnu::weak]] const GemmCode& gemm_code_avx512_model();
[[gnu::weak]] const GemmCode& gemm_code_avx512_bf16_model();

}  // namespace ws::cpu
