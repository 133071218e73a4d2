#include "backend/cpu/gemm/parts.h"

#include <algorithm>

#include "backend/cpu/gemm/code.h"

namespace ws::cpu {
namespace {

/// Which third of the deep product takes lo of this operand.
constexpr int64_t kLowOfA = 2, kLowOfB = 1;

void fill_parts(void* context, void* dst, int64_t ld, int64_t batch, int64_t row0, int64_t col0, int64_t rows, int64_t cols,
                int /*worker*/) {
  const SplitOperand& x = *static_cast<const SplitOperand*>(context);
  const float* data = static_cast<const float*>(x.data) + batch * x.batch_stride;
  auto* to = static_cast<Bf16*>(dst);
  const int64_t depth0 = x.depth_is_rows ? row0 : col0, depth = x.depth_is_rows ? rows : cols;
  for (int64_t done = 0; done < depth;) {
    const int64_t third = (depth0 + done) / x.depth, from = (depth0 + done) % x.depth,
                  count = std::min(depth - done, x.depth - from);
    const bool low = third == (x.depth_is_rows ? kLowOfB : kLowOfA);
    if (x.depth_is_rows)
      x.narrow(to + done * ld, ld, data + from * x.row_stride + col0 * x.col_stride, x.row_stride, x.col_stride, count, cols,
               low);
    else
      x.narrow(to + done, ld, data + row0 * x.row_stride + from * x.col_stride, x.row_stride, x.col_stride, rows, count, low);
    done += count;
  }
}

GemmOperand hole_over(SplitOperand& x, const GemmOperand& from, int64_t k, bool depth_is_rows, NarrowBlock narrow) {
  x = {from.data, from.row_stride, from.col_stride, from.batch_stride, k, depth_is_rows, narrow};
  GemmOperand operand;
  operand.hole = fill_parts;
  operand.context = &x;
  return operand;
}

}  // namespace

Gemm split_gemm(const Gemm& g, int parts, GemmIsa isa, SplitOperands& operands) {
  Gemm split = g;
  split.operand_dtype = DType::bf16;
  split.k = parts == 2 ? 3 * g.k : g.k;
  const NarrowBlock narrow = narrow_block_for(isa);
  split.a = hole_over(operands.a, g.a, g.k, false, narrow);
  split.b = hole_over(operands.b, g.b, g.k, true, narrow);
  return split;
}

}  // namespace ws::cpu
