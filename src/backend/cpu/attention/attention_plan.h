// How attention is cut into stripes, and where each worker's scratch lies. A pure function of the sizes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "backend/cpu/attention/attention.h"

namespace ws::cpu {

constexpr int64_t kChainBlock = 512;  // numerics contract: terms per FMA chain
constexpr int64_t kMostRows = 16;     // no register tile is taller: rows of weights are followed by that many zeros
constexpr int64_t kMostColumns = 32;  // nor wider
constexpr int kMaxLoopSlots = 8;      // rows of scratch that a row loop may want: the workspace is sized before it is compiled

struct AttentionPlan {
  int64_t steps = 1;        // elements of a word that the products read: 2 where those are pairs of bf16 (pairs.h), else 1
  int64_t stripe_rows = 0;  // query rows at once; divides kChainBlock, so that a stripe lies in one block of queries
  int64_t ld_keys = 0;      // floats from one row of scores to the next
  int64_t ld_size = 0;      // floats from one row of a dense copy to the next: head_size in whole vectors
  int64_t ld_along = 0;     // the same, of words along the head
  int64_t words(int64_t elements) const { return (elements + steps - 1) / steps; }
  // Byte offsets in a worker's scratch; names as in AttentionScratch
  int64_t scores = 0, grad_weights = 0, grads_along = 0, q = 0, grad_out = 0, q_across = 0, grad_out_across = 0, narrowed = 0,
          key = 0, value = 0, key_t = 0, value_t = 0, grad_k = 0, grad_v = 0, tile = 0, seen = 0, kept = 0, loop = 0;
  int64_t bytes = 0;
};

AttentionPlan plan_attention(const Attention& a, GemmIsa isa, bool backward);

/// Scratch of one worker. Of a dimension that words lie along, its number of words; where words are elements, q_across is q, and so on.
struct AttentionScratch {
  float *scores, *grad_weights;       // [stripe_rows, ld_keys]: scores, then weights; grad_p, then gradients of the scores
  float* grads_along;                 // [stripe_rows, ld_keys in words]: those gradients, words along the keys
  float *q, *grad_out;                // [stripe_rows, ld_along]: the stripe's rows, words along the head
  float *q_across, *grad_out_across;  // [stripe_rows in words, ld_size]: the same, words across the rows
  uint16_t* narrowed;                 // [stripe_rows, ld_size]: rows of grad_out rounded to bf16
  float *key, *value;                 // [keys in words, ld_size]: words across the keys
  float *key_t, *value_t;             // panels of columns of the transposed: [keys / columns][head_size in words][columns]
  float *grad_k, *grad_v;             // [keys, ld_size]: sums over the current block of queries
  float* tile;                        // [kMostRows, ld_size]: results before they are rounded
  uint8_t *seen, *kept;               // [stripe_rows, ld_keys]: what is not masked, and not dropped
  void* loop;
  AttentionScratch(void* workspace, const AttentionPlan& plan, int worker) {
    char* const base = static_cast<char*>(workspace) + worker * plan.bytes;
    const auto floats = [base](int64_t offset) { return reinterpret_cast<float*>(base + offset); };
    scores = floats(plan.scores), grad_weights = floats(plan.grad_weights), q = floats(plan.q), grad_out = floats(plan.grad_out);
    grads_along = floats(plan.grads_along), q_across = floats(plan.q_across), grad_out_across = floats(plan.grad_out_across);
    narrowed = reinterpret_cast<uint16_t*>(base + plan.narrowed);
    key = floats(plan.key), value = floats(plan.value), key_t = floats(plan.key_t), value_t = floats(plan.value_t);
    grad_k = floats(plan.grad_k), grad_v = floats(plan.grad_v), tile = floats(plan.tile);
    seen = reinterpret_cast<uint8_t*>(base + plan.seen), kept = reinterpret_cast<uint8_t*>(base + plan.kept);
    loop = base + plan.loop;
  }
};

/// One head of one batch item, f32 or bf16 (uint16_t): row t at data + t*stride_bytes.
struct HeadRows {
  char* data;
  int64_t stride_bytes;
  DType dtype;
  char* row(int64_t t) const { return data + t * stride_bytes; }
  float* floats(int64_t t) const { return reinterpret_cast<float*>(row(t)); }
  int64_t stride() const { return stride_bytes / static_cast<int64_t>(size_of(dtype)); }
  HeadRows from(int64_t t) const { return {row(t), stride_bytes, dtype}; }
};
inline HeadRows head_rows(const AttentionTensor& x, int64_t batch, int64_t head) {
  const auto bytes = static_cast<int64_t>(size_of(x.dtype));
  return {static_cast<char*>(x.data) + (batch * x.batch_stride + head * x.head_stride) * bytes, x.time_stride * bytes, x.dtype};
}
inline HeadRows scratch_rows(float* data, int64_t ld) {
  return {reinterpret_cast<char*>(data), ld * static_cast<int64_t>(sizeof(float)), DType::f32};
}

/// Leading keys that query t sees.
inline int64_t visible_keys(const Attention& a, int64_t t) {
  return a.causal ? std::clamp<int64_t>(t + 1 + a.keys - a.queries, 0, a.keys) : a.keys;
}
/// The first query that sees key s.
inline int64_t first_query(const Attention& a, int64_t s) { return a.causal ? std::max<int64_t>(0, s + a.queries - a.keys) : 0; }

/// One of `count` nearly equal parts.
struct Part {
  int64_t index = 0, count = 1;
  /// Its share [first, second) of `size` elements, cut at multiples of `unit`.
  std::pair<int64_t, int64_t> of(int64_t size, int64_t unit) const {
    const int64_t units = (size + unit - 1) / unit;
    return {std::min(size, units * index / count * unit), std::min(size, units * (index + 1) / count * unit)};
  }
};

/// What each ISA's file offers: the same entry points, compiled with that ISA's flags. See head.h.
struct AttentionIsaCode {
  /// Query rows of stripes [begin, end) of one (batch, head) pair.
  void (*forward)(const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t begin,
                  int64_t end);
  // Backward, step by step
  void (*prepare)(const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, Part part);
  bool (*stripe_weights)(const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t t0,
                         Part part);
  void (*stripe_sums)(const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t t0,
                      bool finite, Part part);
};
const AttentionIsaCode& attention_code_portable();
const AttentionIsaCode& attention_code_avx2();
const AttentionIsaCode& attention_code_avx512();
const AttentionIsaCode& attention_code_avx512_bf16();  // of bf16 only
// Models of instructions, as in gemm/code.h.
[[gnu::weak]] const AttentionIsaCode& attention_code_avx512_model();
[[gnu::weak]] const AttentionIsaCode& attention_code_avx512_bf16_model();

}  // namespace ws::cpu
