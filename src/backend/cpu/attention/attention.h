// Attention forward and backward in fp32 by stripes of query rows: memory linear in the length, and the bits of
// matmul(q, k^T), * scale, mask, softmax, matmul(p, v) as separate ops (numerics contract 3.3 and 3.4).
#pragma once
#include <cstdint>

#include "backend/cpu/gemm/gemm.h"

namespace ws::cpu {

/// Element (b, t, h, d) at data[b*batch_stride + t*time_stride + h*head_stride + d].
struct AttentionTensor {
  float* data = nullptr;
  int64_t batch_stride = 0, time_stride = 0, head_stride = 0;
};

struct Attention {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_size = 0;
  bool causal = false;               // query t sees keys s <= t + keys - queries
  float scale = 1;                   // scores are (q.k) * scale, rounded once more
  AttentionTensor q, k, v, out;
  float* row_max = nullptr;          // [batch, heads, queries]; 0 and row_sum 0 where every key is masked (then out is 0)
  float* row_sum = nullptr;
  // backward only
  AttentionTensor grad_out, grad_q, grad_k, grad_v;
};

int64_t attention_workspace_bytes(const Attention& a, GemmIsa isa, int num_threads);
void attention_forward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers);
/// Recomputes the weights from row_max and row_sum; takes query blocks ascending for grad_k and grad_v.
void attention_backward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers);

}  // namespace ws::cpu
