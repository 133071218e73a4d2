// Products so small that everything fits on the stack: no plan and no units of work, only the direct kernels.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/gemm/code.h"
#include "backend/cpu/gemm/strips.h"

namespace ws::cpu {
namespace {

/// A small operand that a hole gives, dense and in fp32.
inline void filled_operand(float* to, const GemmOperand& x, DType dtype, int64_t batch, int64_t rows, int64_t cols, int worker) {
  if (dtype == DType::f32) return x.hole(x.context, to, cols, batch, 0, 0, rows, cols, worker);
  Bf16 filled[kTinyElements];
  x.hole(x.context, filled, cols, batch, 0, 0, rows, cols, worker);
  for (int64_t i = 0; i < rows * cols; ++i) to[i] = widen(filled[i]);
}

/// A small operand as to[depth * lines + line], in fp32. Stores whole vectors: a vector of slack follows.
template <class V, class S>
void pack_tiny(float* to, int64_t lines, int64_t depth, const S* src, int64_t line_stride, int64_t depth_stride) {
  if (lines == 1 && depth_stride == 1) return pack_adjacent_lines<V>(to, depth, depth, 1, src, 0);
  if (line_stride == 1 || lines == 1) return pack_adjacent_lines<V>(to, lines, lines, depth, src, depth_stride);
  // Squares are stored by whole vectors, too: only where none reaches into a row that is done.
  if (depth_stride == 1 && (lines <= V::kLanes || lines % V::kLanes == 0))
    return pack_adjacent_depth<V>(to, lines, lines, depth, src, line_stride);
  pack_strided<V>(to, lines, lines, depth, src, line_stride, depth_stride);
}

/// Products so small that everything fits on the stack; straight to C unless a hole or a rounding wants the tile.
template <class V>
void tiny_item(const Gemm& g, int64_t batch, int worker) {
  constexpr int64_t kElements = kTinyElements;
  const Lines a_lines = lines_of_a(g), b_lines = lines_of_b(g);
  const float* b = b_lines.at<float>(batch, 0, 0);
  RowBlock a{a_lines.at<float>(batch, 0, 0), g.a.row_stride, g.a.col_stride, false};
  int64_t ldb = g.b.row_stride;
  alignas(64) float a_block[kElements + V::kLanes], b_block[kElements + V::kLanes], tile[kElements];
  if (g.a.hole != nullptr) {
    filled_operand(a_block, g.a, g.operand_dtype, batch, g.m, g.k, worker);
    a = {a_block, g.k, 1, false};
  } else if (!a_lines.is_f32()) {
    const Bf16* from = a_lines.at<Bf16>(batch, 0, 0);
    const bool by_rows = g.a.col_stride == 1;  // kernels take either order
    if (by_rows)
      pack_tiny<V>(a_block, g.k, g.m, from, 1, g.a.row_stride);
    else
      pack_tiny<V>(a_block, g.m, g.k, from, g.a.row_stride, g.a.col_stride);
    a = {a_block, by_rows ? g.k : 1, by_rows ? 1 : g.m, false};
  }
  if (g.b.hole != nullptr) {
    filled_operand(b_block, g.b, g.operand_dtype, batch, g.k, g.n, worker);
    b = b_block, ldb = g.n;
  } else if (!b_lines.is_f32() || (g.b.col_stride != 1 && g.n > 1)) {
    with_element_type(g.operand_dtype, [&]<class S>(const S*) {
      pack_tiny<V>(b_block, g.n, g.k, b_lines.at<S>(batch, 0, 0), g.b.col_stride, g.b.row_stride);
    });
    b = b_block, ldb = g.n;
  }
  const bool is_bf16 = g.result_dtype == DType::bf16, in_tile = g.store != nullptr || is_bf16;
  float* c = in_tile ? tile : static_cast<float*>(g.c) + batch * g.c_batch_stride;
  const int64_t ldc = in_tile ? g.n : g.c_row_stride;
  direct_columns<V>({g.m, g.k, g.n, c, ldc, Accumulate::kStore}, a, b, 1, ldb);
  if (g.store != nullptr) return g.store(g.store_context, tile, ldc, batch, 0, 0, g.m, g.n, worker);
  if (!is_bf16) return;
  for (int64_t i = 0; i < g.m; ++i)
    for (int64_t j = 0; j < g.n; ++j)
      put((static_cast<Bf16*>(g.c) + batch * g.c_batch_stride + i * g.c_row_stride)[j], tile[i * g.n + j]);
}

template <class V>
void run_tiny(const Gemm& g, Workers& workers) {
  if (g.batch == 1) return tiny_item<V>(g, 0, 0);
  const int64_t grain = std::max(kThreadWork / std::max<int64_t>(g.m * g.n * g.k, 1), int64_t{1});
  if (g.batch <= grain) {
    for (int64_t batch = 0; batch < g.batch; ++batch) tiny_item<V>(g, batch, 0);
    return;
  }
  workers.parallel_for(g.batch, grain, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t batch = begin; batch < end; ++batch) tiny_item<V>(g, batch, worker);
  });
}

}  // namespace
}  // namespace ws::cpu
