// Attention forward and backward by stripes of query rows: memory linear in the length, and the bits of matmul(q, k^T), * scale,
// mask, softmax, matmul(p, v) as separate ops (numerics contract 3.3 and 3.4). bf16 operands are widened where they are copied, or are
// paired for dot products of the same bits; all else is computed in fp32; ops/attention.cc says where the separate ops round.
//
// Masked keys: the separate ops give them weight +0, which adds fma(0, v, sum) to a chain. Here keys that no row of a stripe sees
// are left out. That changes no bits: a chain over keys starts at +0, and adding +-0 to a sum changes it only where the sum is -0
// (every product so far underflowed), a case that is looked for and set right; chains over queries meet their masked terms first,
// at +0. One rule is stronger than the separate ops': a NaN or infinity in a key or value never reaches a row that does not see it.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/gemm/gemm.h"
#include "schedule/loop_kernel.h"

namespace ws::cpu {

/// Element (b, t, h, d) at data[b*batch_stride + t*time_stride + h*head_stride + d]: parts of a packed q, k, v are such views.
struct AttentionTensor {
  void* data = nullptr;
  int64_t batch_stride = 0, time_stride = 0, head_stride = 0;  // elements
  DType dtype = DType::f32;                                    // or bf16
};

/// Which pairs of query and key are seen, and which weights are dropped (ops/attention.cc, attention_masked).
struct AttentionMasking {
  const uint8_t* mask = nullptr;  // element (b, h, t, s) by these strides: true where seen
  int64_t batch_stride = 0, head_stride = 0, query_stride = 0, key_stride = 0;
  const uint32_t *key0 = nullptr, *key1 = nullptr;  // of the random words
  double dropout = 0;
  int64_t first_row = 0;  // of these batch rows in the whole batch: words are drawn by place there
};

struct Attention {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_size = 0;
  bool causal = false;  // query t sees keys s <= t + keys - queries
  float scale = 1;      // scores are (q.k) * scale, rounded once more
  bool masked = false;  // then `masking` holds, beside `causal`
  AttentionMasking masking;
  AttentionTensor q, k, v, out;  // of one dtype
  float* row_max = nullptr;      // [batch, heads, queries]; 0 and row_sum 0 where every key is masked (then out is 0)
  float* row_sum = nullptr;
  // backward only
  AttentionTensor grad_out;                // rounded to the dtype of q where it is read
  AttentionTensor grad_q, grad_k, grad_v;  // f32
  const LoopCode* loops = nullptr;         // machine code of attention_loops() for what this is
  bool is_bf16() const { return q.dtype == DType::bf16; }
};

/// Whether the products are dot products of bf16 pairs (pairs.h), with the bits of FMAs of the widened operands.
constexpr bool has_bf16_pairs(DType dtype, GemmIsa isa) { return dtype == DType::bf16 && isa >= GemmIsa::avx512_bf16; }

/// The row loops (scale, softmax and its gradient) of one direction, to be compiled and passed as Attention::loops.
std::vector<std::shared_ptr<const LoopKernel>> attention_loops(bool backward, DType dtype, GemmIsa isa, bool masked = false);
/// Bytes of 64-byte aligned workspace; only the sizes, dtypes and `masked` of `a` are read.
int64_t attention_workspace_bytes(const Attention& a, GemmIsa isa, int num_threads, bool backward = true);
/// Writes out, row_max and row_sum. Allocates nothing.
void attention_forward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers);
/// Writes grad_q, grad_k and grad_v. Recomputes the weights from row_max and row_sum; chains of grad_k and grad_v run over queries
/// ascending, in blocks of 512.
void attention_backward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers);

}  // namespace ws::cpu
