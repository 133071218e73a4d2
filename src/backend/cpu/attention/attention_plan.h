// How attention is cut into stripes, and where each worker's scratch lies. A pure function of the sizes.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/attention/attention.h"

namespace ws::cpu {

constexpr int64_t kChainBlock = 512;  // numerics contract: terms per FMA chain
constexpr int kMaxLoopSlots = 4;      // rows of scratch that a row loop may want: the workspace is sized before it is compiled

struct AttentionPlan {
  int64_t stripe_rows = 0;   // query rows at once; divides kChainBlock, so that a stripe lies in one block of queries
  int64_t ld = 0;            // floats from one row of scores to the next
  // Byte offsets in a worker's scratch
  int64_t scores = 0, grad_weights = 0, block_sum = 0, grad_k = 0, grad_v = 0, gemm = 0, loop = 0;
  int64_t bytes = 0;
};

AttentionPlan plan_attention(const Attention& a, bool backward);

/// One head of one batch item: row t at data + t*stride.
struct HeadRows {
  float* data;
  int64_t stride;
  float* row(int64_t t) const { return data + t * stride; }
};
inline HeadRows head_rows(const AttentionTensor& x, int64_t batch, int64_t head) {
  return {x.data + batch * x.batch_stride + head * x.head_stride, x.time_stride};
}

/// Leading keys that query t sees.
inline int64_t visible_keys(const Attention& a, int64_t t) {
  return a.causal ? std::clamp<int64_t>(t + 1 + a.keys - a.queries, 0, a.keys) : a.keys;
}

/// No NaN and no infinity in rows [begin, end).
bool all_finite(const HeadRows& x, int64_t begin, int64_t end, int64_t size);

/// A strided operand of a product.
struct Matrix {
  const float* data;
  int64_t row_stride, col_stride;
};

/// Scratch of one worker, by name.
struct AttentionScratch {
  float *scores, *grad_weights, *block_sum, *grad_k, *grad_v;
  void *gemm, *loop;
  AttentionScratch(void* workspace, const AttentionPlan& plan, int worker) {
    char* const base = static_cast<char*>(workspace) + worker * plan.bytes;
    const auto floats = [base](int64_t offset) { return reinterpret_cast<float*>(base + offset); };
    scores = floats(plan.scores), grad_weights = floats(plan.grad_weights), block_sum = floats(plan.block_sum);
    grad_k = floats(plan.grad_k), grad_v = floats(plan.grad_v);
    gemm = base + plan.gemm, loop = base + plan.loop;
  }
};

/// c [m, n] = a [m, k] b [k, n] by the contract: chains over blocks of 512, block sums added ascending.
void multiply(GemmIsa isa, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c, int64_t c_stride,
              const AttentionScratch& scratch);

/// Sets right the sign of zeros in c [rows, head_size] = weights x `x` where the keys from `seen` on were left out: their weights
/// are zeros of the sign of `zero`.
void add_skipped_zeros(const Attention& a, float* c, int64_t c_stride, int64_t rows, const HeadRows& x, int64_t seen, float zero);

}  // namespace ws::cpu
