// fp32 operands as a sum of bf16 parts (matmul_precision). One part: hi = x rounded. Two: and lo = x - hi rounded; the product is then
// [a_hi, a_hi, a_lo] by [b_hi; b_lo; b_hi], three times as deep, and lacks only lo * lo. Either is a product of bf16 in all else, its
// order of sums included; pack holes make the parts. What hi makes infinite (from 3.39e38) gives NaN in two parts.
#pragma once
#include "backend/cpu/gemm/gemm.h"
#include "support/bf16.h"

namespace ws::cpu {

/// dst[i * ld + j] = part of src[i * row_stride + j * col_stride]: hi, or lo.
using NarrowBlock = void (*)(Bf16* dst, int64_t ld, const float* src, int64_t row_stride, int64_t col_stride, int64_t rows,
                             int64_t cols, bool low);

struct SplitOperand {
  const void* data = nullptr;  // fp32
  int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
  int64_t depth = 0;           // k of the fp32 product
  bool depth_is_rows = false;  // of b
  NarrowBlock narrow = nullptr;
};
struct SplitOperands {
  SplitOperand a, b;
};

/// `g`, of fp32 operands without holes, as a product of their 1 or 2 bf16 parts. Its operands are read through `operands`, which must
/// outlive it and whose addresses may still change.
Gemm split_gemm(const Gemm& g, int parts, GemmIsa isa, SplitOperands& operands);

}  // namespace ws::cpu
