#include "backend/cpu/attention/attention_loops.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/row_calls.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

// Query rows [t0, t0 + rows) of one head.
void forward_stripe(const Attention& a, GemmIsa isa, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t batch, int64_t head,
                    int64_t t0, int64_t rows) {
  const HeadRows q = head_rows(a.q, batch, head), k = head_rows(a.k, batch, head), v = head_rows(a.v, batch, head);
  const HeadRows out = head_rows(a.out, batch, head);
  const int64_t seen = visible_keys(a, t0 + rows - 1);  // by any row of the stripe
  multiply(isa, rows, seen, a.head_size, {q.row(t0), q.stride, 1}, {k.data, 1, k.stride}, scratch.scores, plan.ld, scratch);

  const int64_t first_row = (batch * a.heads + head) * a.queries + t0;
  using L = SoftmaxLoop;
  RowCalls<L::kNumAccesses> calls(a.loops[0], a.scale, scratch.loop);
  calls.rows_of(L::kScores, scratch.scores, plan.ld);
  calls.rows_of(L::kWeights, scratch.scores, plan.ld);
  calls.one_a_row(L::kRowMax, a.row_max + first_row);
  calls.one_a_row(L::kRowSum, a.row_sum + first_row);
  calls.run(a, t0, rows);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t sees = visible_keys(a, t0 + i);
    std::fill(scratch.scores + i * plan.ld + sees, scratch.scores + i * plan.ld + seen, 0.0f);
    if (sees == 0) a.row_max[first_row + i] = a.row_sum[first_row + i] = 0.0f;
  }
  multiply(isa, rows, a.head_size, seen, {scratch.scores, plan.ld, 1}, {v.data, v.stride, 1}, out.row(t0), out.stride, scratch);
  add_skipped_zeros(a, out.row(t0), out.stride, rows, v, seen, 0.0f);
}

}  // namespace

void attention_forward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers) {
  if (a.queries == 0) return;
  WS_ASSERT(a.loops != nullptr && a.loops[0].scratch_slots <= kMaxLoopSlots);
  const AttentionPlan plan = plan_attention(a, false);
  const int64_t stripes = (a.queries + plan.stripe_rows - 1) / plan.stripe_rows;
  workers.parallel_for(a.batch * a.heads * stripes, 1, [&](int64_t begin, int64_t end, int worker) {
    const AttentionScratch scratch(workspace, plan, worker);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t pair = unit / stripes, t0 = unit % stripes * plan.stripe_rows;
      const int64_t rows = std::min(plan.stripe_rows, a.queries - t0), batch = pair / a.heads, head = pair % a.heads;
      // Keys that only some rows of the stripe see have weight 0 in the others, and 0 times infinity would be NaN: go row by row.
      const bool finite = all_finite(head_rows(a.v, batch, head), visible_keys(a, t0), visible_keys(a, t0 + rows - 1), a.head_size);
      for (int64_t i = 0; i < rows; i += finite ? rows : 1) forward_stripe(a, isa, plan, scratch, batch, head, t0 + i, finite ? rows : 1);
    }
  });
}

}  // namespace ws::cpu
