#include "backend/cpu/attention/attention_loops.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/row_calls.h"
#include "backend/cpu/gemm/micro.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

// One head of one batch item. grad_k and grad_v build up in scratch over a block of 512 queries, then join the results.
class BackwardHead {
 public:
  BackwardHead(const Attention& a, GemmIsa isa, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t batch, int64_t head)
      : a_(a), isa_(isa), plan_(plan), scratch_(scratch), first_row_((batch * a.heads + head) * a.queries),
        q_(head_rows(a.q, batch, head)), k_(head_rows(a.k, batch, head)), v_(head_rows(a.v, batch, head)),
        grad_out_(head_rows(a.grad_out, batch, head)), grad_q_(head_rows(a.grad_q, batch, head)),
        grad_k_(head_rows(a.grad_k, batch, head)), grad_v_(head_rows(a.grad_v, batch, head)) {}

  void run() {
    start_block();
    for (int64_t t0 = 0; t0 < a_.queries; t0 += plan_.stripe_rows) {
      if (t0 > 0 && t0 % kChainBlock == 0) {
        finish_block(t0 == kChainBlock);
        start_block();
      }
      const int64_t rows = std::min(plan_.stripe_rows, a_.queries - t0), step = masked_terms_are_zero(t0, rows) ? rows : 1;
      for (int64_t i = 0; i < rows; i += step) stripe(t0 + i, step);
    }
    finish_block(a_.queries <= kChainBlock);
  }

 private:
  // Pairs of a stripe that are masked enter its products with weight 0; 0 times infinity would be NaN.
  bool masked_terms_are_zero(int64_t t0, int64_t rows) const {
    const int64_t all_see = visible_keys(a_, t0), seen = visible_keys(a_, t0 + rows - 1);
    if (all_see == seen) return true;
    return all_finite(k_, all_see, seen, a_.head_size) && all_finite(q_, t0, t0 + rows, a_.head_size) &&
           all_finite(grad_out_, t0, t0 + rows, a_.head_size);
  }

  void start_block() const {
    std::fill_n(scratch_.grad_k, a_.keys * a_.head_size, 0.0f);
    std::fill_n(scratch_.grad_v, a_.keys * a_.head_size, 0.0f);
  }

  void finish_block(bool first) const {
    join(grad_k_, scratch_.grad_k, first);
    join(grad_v_, scratch_.grad_v, first);
  }
  void join(const HeadRows& to, const float* from, bool first) const {
    for (int64_t s = 0; s < a_.keys; ++s, from += a_.head_size) {
      float* const row = to.row(s);
      for (int64_t d = 0; d < a_.head_size; ++d) row[d] = first ? from[d] : row[d] + from[d];
    }
  }

  void stripe(int64_t t0, int64_t rows) const {
    const int64_t seen = visible_keys(a_, t0 + rows - 1), ld = plan_.ld, size = a_.head_size;
    float *const p = scratch_.scores, *const grad_s = scratch_.grad_weights;
    multiply(isa_, rows, seen, size, {q_.row(t0), q_.stride, 1}, {k_.data, 1, k_.stride}, p, ld, scratch_);
    multiply(isa_, rows, seen, size, {grad_out_.row(t0), grad_out_.stride, 1}, {v_.data, 1, v_.stride}, grad_s, ld, scratch_);
    softmax_rows(t0, rows, seen);
    gemm_chain(isa_, seen, size, rows, p, 1, ld, grad_out_.row(t0), grad_out_.stride, 1, scratch_.grad_v, size, false, scratch_.gemm);
    gemm_chain(isa_, seen, size, rows, grad_s, 1, ld, q_.row(t0), q_.stride, 1, scratch_.grad_k, size, false, scratch_.gemm);
    multiply(isa_, rows, size, seen, {grad_s, ld, 1}, {k_.data, k_.stride, 1}, grad_q_.row(t0), grad_q_.stride, scratch_);
    add_skipped_zeros(a_, grad_q_.row(t0), grad_q_.stride, rows, k_, seen, 0.0f * a_.scale);
  }

  // Scores and grad_p to weights and gradients of q k^T.
  void softmax_rows(int64_t t0, int64_t rows, int64_t seen) const {
    using L = SoftmaxGradLoop;
    RowCalls<L::kNumAccesses> calls(a_.loops[0], a_.scale, scratch_.loop);
    calls.rows_of(L::kScores, scratch_.scores, plan_.ld);
    calls.rows_of(L::kWeights, scratch_.scores, plan_.ld);
    calls.rows_of(L::kGradWeights, scratch_.grad_weights, plan_.ld);
    calls.rows_of(L::kGradScores, scratch_.grad_weights, plan_.ld);
    calls.one_a_row(L::kRowMax, a_.row_max + first_row_ + t0);
    calls.one_a_row(L::kRowSum, a_.row_sum + first_row_ + t0);
    calls.run(a_, t0, rows);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t sees = visible_keys(a_, t0 + i);
      std::fill(scratch_.scores + i * plan_.ld + sees, scratch_.scores + i * plan_.ld + seen, 0.0f);
      std::fill(scratch_.grad_weights + i * plan_.ld + sees, scratch_.grad_weights + i * plan_.ld + seen, 0.0f * a_.scale);
    }
  }

  const Attention& a_;
  GemmIsa isa_;
  const AttentionPlan& plan_;
  const AttentionScratch& scratch_;
  int64_t first_row_;
  HeadRows q_, k_, v_, grad_out_, grad_q_, grad_k_, grad_v_;
};

}  // namespace

void attention_backward(const Attention& a, GemmIsa isa, void* workspace, Workers& workers) {
  WS_ASSERT(a.loops != nullptr && a.loops[0].scratch_slots <= kMaxLoopSlots);
  const AttentionPlan plan = plan_attention(a, true);
  workers.parallel_for(a.batch * a.heads, 1, [&](int64_t begin, int64_t end, int worker) {
    const AttentionScratch scratch(workspace, plan, worker);
    for (int64_t pair = begin; pair < end; ++pair) BackwardHead(a, isa, plan, scratch, pair / a.heads, pair % a.heads).run();
  });
}

}  // namespace ws::cpu
