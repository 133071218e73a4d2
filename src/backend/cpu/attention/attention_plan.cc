#include "backend/cpu/attention/attention_plan.h"

#include <bit>
#include <cmath>

#include "backend/cpu/gemm/micro.h"

#pragma GCC optimize("O3")  // vectorise loops of unknown length

namespace ws::cpu {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

// Scores of a stripe, and their gradients, stay in L2 beside the panels of the products.
int64_t choose_stripe_rows(int64_t ld, bool causal, int64_t num_stripes) {
  constexpr int64_t kStripeBytes = 256 << 10;
  int64_t rows = causal ? 64 : 128;  // shorter where masked keys are skipped by the stripe
  while (rows > 8 && rows * ld * num_stripes * kFloatBytes > kStripeBytes * num_stripes) rows /= 2;
  return rows;
}

}  // namespace

AttentionPlan plan_attention(const Attention& a, bool backward) {
  AttentionPlan plan;
  // Not a power of two: rows of a stripe would share cache sets.
  plan.ld = round_up(a.keys, 16) + 16;
  plan.stripe_rows = choose_stripe_rows(plan.ld, a.causal, backward ? 2 : 1);
  const int64_t rows = plan.stripe_rows, size = a.head_size;
  const auto take = [&](int64_t bytes) {
    const int64_t at = plan.bytes;
    plan.bytes += round_up(bytes, kAlign);
    return at;
  };
  plan.scores = take(rows * plan.ld * kFloatBytes);
  plan.block_sum = take(rows * std::max(size, plan.ld) * kFloatBytes);
  const int64_t depth = std::min(kChainBlock, std::max({rows, size, a.keys}));
  plan.gemm = take(gemm_chain_scratch_bytes(std::max(rows, backward ? a.keys : 0), std::max(size, a.keys), depth));
  plan.loop = take(kMaxLoopSlots * round_up(a.keys, 16) * 8);
  if (backward) {
    plan.grad_weights = take(rows * plan.ld * kFloatBytes);
    plan.grad_k = take(a.keys * size * kFloatBytes);
    plan.grad_v = take(a.keys * size * kFloatBytes);
  }
  return plan;
}

int64_t attention_workspace_bytes(const Attention& a, GemmIsa, int num_threads, bool backward) {
  return plan_attention(a, backward).bytes * num_threads;
}

bool all_finite(const HeadRows& x, int64_t begin, int64_t end, int64_t size) {
  constexpr uint32_t kExponent = 0x7F800000u;  // all ones: infinite or NaN
  uint32_t bad = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float* const row = x.row(t);
    for (int64_t d = 0; d < size; ++d) bad |= (std::bit_cast<uint32_t>(row[d]) & kExponent) == kExponent ? 1u : 0u;
  }
  return bad == 0;
}

void multiply(GemmIsa isa, int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c, int64_t c_stride,
              const AttentionScratch& scratch) {
  const auto chain = [&](int64_t k0, float* to, int64_t stride) {
    gemm_chain(isa, m, n, std::min(kChainBlock, k - k0), a.data + k0 * a.col_stride, a.row_stride, a.col_stride, b.data + k0 * b.row_stride,
               b.row_stride, b.col_stride, to, stride, true, scratch.gemm);
  };
  chain(0, c, c_stride);
  for (int64_t k0 = kChainBlock; k0 < k; k0 += kChainBlock) {
    chain(k0, scratch.block_sum, n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c[i * c_stride + j] += scratch.block_sum[i * n + j];
  }
}

void add_skipped_zeros(const Attention& a, float* c, int64_t c_stride, int64_t rows, const HeadRows& x, int64_t seen, float zero) {
  if (seen >= a.keys) return;
  const int64_t block_end = (seen + kChainBlock - 1) / kChainBlock * kChainBlock;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t d = 0; d < a.head_size; ++d) {
      float& sum = c[i * c_stride + d];
      if (std::bit_cast<uint32_t>(sum) != 0x80000000u) continue;
      bool plus = block_end < a.keys;  // a whole block left out has the sum +0
      for (int64_t s = seen; s < a.keys && !plus; ++s) plus = std::signbit(x.row(s)[d]) == std::signbit(zero);
      if (plus) sum = 0.0f;
    }
  }
}

}  // namespace ws::cpu
