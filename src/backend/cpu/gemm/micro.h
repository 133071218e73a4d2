// A single-threaded product whose FMA chains can be continued, for kernels that build a sum piece by piece inside one block of
// 512 (attention adds to dK and dV stripe by stripe). Bits: for each element acc = (from_zero ? +0 : c), then
// acc = fma(a, b, acc) for k ascending, stored to c; so a run of calls equals one call on the joined k.
#pragma once
#include <cstdint>

#include "backend/cpu/gemm/gemm.h"

namespace ws::cpu {

/// Bytes of 64-byte aligned scratch for products of up to these sizes.
int64_t gemm_chain_scratch_bytes(int64_t m, int64_t n, int64_t k);

/// a is [m, k], b is [k, n], c is [m, n] with unit column stride; any strides of a and b (elements). Packs what pays into scratch.
void gemm_chain(GemmIsa isa, int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row_stride, int64_t a_col_stride,
                const float* b, int64_t b_row_stride, int64_t b_col_stride, float* c, int64_t c_row_stride, bool from_zero,
                void* scratch);

}  // namespace ws::cpu
