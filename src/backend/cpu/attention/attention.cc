#include "backend/cpu/attention/attention.h"

#include <atomic>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/gemm/cache_sizes.h"
#include "backend/cpu/isa.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

const AttentionIsaCode& code_for(const Attention& a, GemmIsa isa) {
#if defined(__x86_64__)
  if (has_bf16_pairs(a.q.dtype, isa)) {
    static const AttentionIsaCode& code =
        code_or_model(Isa::avx512_bf16, attention_code_avx512_bf16, attention_code_avx512_bf16_model);
    return code;
  }
  if (isa >= GemmIsa::avx512) {
    static const AttentionIsaCode& code = code_or_model(Isa::avx512, attention_code_avx512, attention_code_avx512_model);
    return code;
  }
  if (isa == GemmIsa::avx2) return attention_code_avx2();
#endif
  static_cast<void>(a), static_cast<void>(isa);
  return attention_code_portable();
}

// Scores of a stripe, and their gradients, stay in L2 beside the operands.
int64_t choose_stripe_rows(int64_t ld_keys) {
  const int64_t stripe_bytes = cache_sizes().l2_bytes * 28 / 100;
  int64_t rows = 128;
  while (rows > 16 && rows * ld_keys * kFloatBytes > stripe_bytes) rows /= 2;
  return rows;
}

}  // namespace

AttentionPlan plan_attention(const Attention& a, GemmIsa isa, bool backward) {
  AttentionPlan plan;
  plan.steps = has_bf16_pairs(a.q.dtype, isa) ? 2 : 1;
  // Zeros follow the visible keys; and an odd number of lines, since rows a power of two apart would share cache sets.
  plan.ld_keys = round_up(a.keys, kMostColumns) + kMostRows;
  plan.ld_size = round_up(a.head_size, 16);
  plan.ld_along = round_up(plan.words(a.head_size), 16);
  plan.stripe_rows = choose_stripe_rows(plan.ld_keys);
  const auto take = [&](int64_t floats) {
    const int64_t at = plan.bytes;
    plan.bytes += round_up(floats * kFloatBytes, 64);
    return at;
  };
  const auto take_across = [&](int64_t same, int64_t rows) {
    return plan.steps == 1 ? same : take(plan.words(rows) * plan.ld_size);
  };
  const int64_t stripe = plan.stripe_rows * plan.ld_keys, rows = plan.stripe_rows * plan.ld_along;
  const int64_t whole = plan.words(a.keys) * plan.ld_size, panels = round_up(a.keys, kMostColumns) * plan.words(a.head_size);
  plan.loop = take(2 * kMaxLoopSlots * round_up(a.keys, 16));
  plan.scores = take(stripe);
  plan.q = take(rows);
  if (a.masked) plan.seen = take((stripe + 3) / 4), plan.kept = take((stripe + 3) / 4);
  plan.key_t = take(panels);
  if (backward) {
    plan.grad_weights = take(stripe);
    plan.grads_along = plan.steps == 1 ? plan.grad_weights : take(plan.stripe_rows * plan.ld_keys / plan.steps);
    plan.grad_out = take(rows);
    plan.q_across = take_across(plan.q, plan.stripe_rows);
    plan.grad_out_across = take_across(plan.grad_out, plan.stripe_rows);
    plan.narrowed = take(a.is_bf16() ? plan.stripe_rows * plan.ld_size / 2 : 0);
    plan.value_t = take(panels);
    plan.key = take(whole);
    const int64_t sums = a.queries > kChainBlock ? a.keys * plan.ld_size : 0;
    plan.grad_k = take(sums);
    plan.grad_v = take(sums);
  } else {
    plan.value = take(whole);
    plan.tile = take(a.is_bf16() ? kMostRows * plan.ld_size : 0);
  }
  return plan;
}

int64_t attention_workspace_bytes(const Attention& a, GemmIsa isa, int num_threads, bool backward) {
  return plan_attention(a, isa, backward).bytes * num_threads;
}

void attention_forward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers) {
  WS_ASSERT(a.loops != nullptr && a.loops[0].scratch_slots <= kMaxLoopSlots);
  const int64_t pairs = a.batch * a.heads;
  if (pairs == 0 || a.queries == 0) return;
  const AttentionPlan plan = plan_attention(a, isa, false);
  const AttentionIsaCode& code = code_for(a, isa);
  // Few heads: a head's stripes go to several units, each of which prepares the keys for itself.
  const int64_t stripes = ceil_div(a.queries, plan.stripe_rows), threads = workers.num_threads();
  const int64_t parts = threads == 1 ? 1 : std::min(stripes, ceil_div(4 * threads, pairs));
  workers.parallel_for(pairs * parts, 1, [&](int64_t begin, int64_t end, int worker) {
    const AttentionScratch scratch(workspace, plan, worker);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t part = unit % parts;
      code.forward(a, plan, scratch, unit / parts, stripes * part / parts, stripes * (part + 1) / parts);
    }
  });
}

namespace {

void backward_pair(const AttentionIsaCode& code, const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch,
                   int64_t pair) {
  code.prepare(a, plan, scratch, pair, {});
  for (int64_t t0 = 0; t0 < a.queries || t0 == 0; t0 += plan.stripe_rows) {
    const bool finite = code.stripe_weights(a, plan, scratch, pair, t0, {});
    code.stripe_sums(a, plan, scratch, pair, t0, finite, {});
  }
}

// All threads on one pair: the first worker's scratch, but each its own for the row loops.
void backward_pair_shared(const AttentionIsaCode& code, const Attention& a, const AttentionPlan& plan, void* workspace,
                          int64_t pair, Workers& workers) {
  const int64_t parts = 4 * workers.num_threads();  // causal parts are of unequal cost
  const auto step = [&](const auto& body) {
    workers.parallel_for(parts, 1, [&](int64_t begin, int64_t end, int worker) {
      AttentionScratch scratch(workspace, plan, 0);
      scratch.loop = AttentionScratch(workspace, plan, worker).loop;
      for (int64_t part = begin; part < end; ++part) body(scratch, Part{part, parts});
    });
  };
  step([&](const AttentionScratch& s, Part part) { code.prepare(a, plan, s, pair, part); });
  for (int64_t t0 = 0; t0 < a.queries || t0 == 0; t0 += plan.stripe_rows) {
    std::atomic<bool> finite{true};
    step([&](const AttentionScratch& s, Part part) {
      if (!code.stripe_weights(a, plan, s, pair, t0, part)) finite.store(false, std::memory_order_relaxed);
    });
    step([&](const AttentionScratch& s, Part part) {
      code.stripe_sums(a, plan, s, pair, t0, finite.load(std::memory_order_relaxed), part);
    });
  }
}

}  // namespace

void attention_backward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers) {
  WS_ASSERT(a.loops != nullptr && a.loops[0].scratch_slots <= kMaxLoopSlots);
  const AttentionPlan plan = plan_attention(a, isa, true);
  const AttentionIsaCode& code = code_for(a, isa);
  // Pairs that do not fill a round of all threads are shared, where few rounds make that matter and the work is worth the barriers.
  const int64_t pairs = a.batch * a.heads, threads = workers.num_threads();
  const bool worth_sharing = threads > 1 && pairs < 4 * threads && a.queries * a.keys * a.head_size >= (1 << 20);
  const int64_t alone = worth_sharing ? pairs / threads * threads : pairs;
  workers.parallel_for(alone, 1, [&](int64_t begin, int64_t end, int worker) {
    const AttentionScratch scratch(workspace, plan, worker);
    for (int64_t pair = begin; pair < end; ++pair) backward_pair(code, a, plan, scratch, pair);
  });
  for (int64_t pair = alone; pair < pairs; ++pair) backward_pair_shared(code, a, plan, workspace, pair, workers);
}

}  // namespace ws::cpu
