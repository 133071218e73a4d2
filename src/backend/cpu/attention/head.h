// One head of one batch item, forward and backward, stripe by stripe. Templated on a vector type (tiles.h).
#pragma once
#include <type_traits>

#include "backend/cpu/attention/attention_loops.h"
#include "backend/cpu/attention/prefetcher.h"
#include "backend/cpu/attention/products.h"
#include "backend/cpu/attention/row_calls.h"
#include "ops/philox.h"

namespace ws::cpu {
namespace {

template <class V>
class AttentionHead {
 public:
  AttentionHead(const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair)
      : a_(a), plan_(plan), s_(scratch), pair_(pair), first_row_(pair * a.queries) {}

  void forward(int64_t begin, int64_t end) {
    const int64_t t_begin = begin * plan_.stripe_rows, t_end = std::min(a_.queries, end * plan_.stripe_rows);
    if (t_begin >= t_end) return;
    const int64_t seen = visible_keys(a_, t_end - 1);
    Copies::pack_transposed(s_.key_t, rows_of(a_.k), seen, a_.head_size);
    Copies::copy_across(s_.value, plan_.ld_size, rows_of(a_.v), 0, a_.keys, a_.head_size, -0.0f);
    for (int64_t t0 = t_begin; t0 < t_end; t0 += plan_.stripe_rows) forward_stripe(t0, std::min(plan_.stripe_rows, t_end - t0));
  }

  // The backward pass in steps, each of which may be shared by threads: all parts of a step, then the next step. Parts of a step
  // write different elements and no tile's bits depend on the cut.

  /// Operands that all stripes share: part of the keys.
  void prepare(Part part) const {
    const auto [first, end] = part.of(a_.keys, P::kColumns);
    const int64_t panels = first * Copies::words(a_.head_size), keys = end - first;
    Copies::pack_transposed(s_.key_t + panels, rows_of(a_.k).from(first), keys, a_.head_size);
    Copies::pack_transposed(s_.value_t + panels, rows_of(a_.v).from(first), keys, a_.head_size);
    Copies::copy_across(s_.key + first / kSteps * plan_.ld_size, plan_.ld_size, rows_of(a_.k), first, keys, a_.head_size,
                        -masked_grad());
  }

  /// Weights and gradients of the scores: part of the stripe's rows. Says whether masked terms of these rows are harmless.
  bool stripe_weights(int64_t t0, Part part) const {
    const int64_t stripe = stripe_rows(t0);
    const auto [i, end] = part.of(stripe, kSteps);
    const int64_t rows = end - i, ld = plan_.ld_along;
    if (rows == 0) return true;
    float *const q = s_.q + i * ld, *const grad_out = s_.grad_out + i * ld;
    float *const scores = s_.scores + i * plan_.ld_keys, *const grad_weights = s_.grad_weights + i * plan_.ld_keys;
    const HeadRows q_rows = rows_of(a_.q).from(t0 + i), grad_out_rows = grad_out_of(t0 + i, i, rows);
    Copies::copy_along(q, ld, q_rows, 0, rows, a_.head_size);
    Copies::copy_along(grad_out, ld, grad_out_rows, 0, rows, a_.head_size);
    if constexpr (kSteps > 1) {
      const int64_t at = i / kSteps * plan_.ld_size;
      Copies::copy_across(s_.q_across + at, plan_.ld_size, q_rows, 0, rows, a_.head_size, -0.0f);
      Copies::copy_across(s_.grad_out_across + at, plan_.ld_size, grad_out_rows, 0, rows, a_.head_size, -0.0f);
    }
    Prefetcher results(a_.head_size), more_results(a_.head_size);
    results.add(rows_of(a_.grad_q), t0 + i, rows);
    for (const AttentionTensor* x : {&a_.grad_v, &a_.grad_k})
      if (one_block()) more_results.add(rows_of(*x), t0 + i, std::min(rows, a_.keys - t0 - i));
    all_scores(scores, q, s_.key_t, t0 + i, rows, results);
    all_scores(grad_weights, grad_out, s_.value_t, t0 + i, rows, more_results);
    softmax_grad(i, t0 + i, rows);
    return !a_.causal || (partly_seen_finite(s_.key, t0, stripe) && Copies::all_finite(q, rows * ld) &&
                          Copies::all_finite(grad_out, rows * ld));
  }

  /// What the stripe adds to grad_k and grad_v, and its grad_q: part of the keys and of the rows.
  void stripe_sums(int64_t t0, bool finite, Part part) const {
    const int64_t stripe = stripe_rows(t0);
    const HeadRows grad_k = block_sums(a_.grad_k, s_.grad_k), grad_v = block_sums(a_.grad_v, s_.grad_v);
    const bool last = t0 + stripe == a_.queries && part.count == 1;
    Prefetcher ahead = last ? next_pair({&a_.k, &a_.v}) : Prefetcher(a_.head_size);
    Prefetcher ahead_too = last ? next_pair({&a_.q, &a_.grad_out}) : Prefetcher(a_.head_size);
    const auto [s, s_end] = part.of(a_.keys, 1);
    sums_over_queries(grad_v, s_.scores, s_.grad_out_across, t0, stripe, s, s_end, finite, ahead);
    sums_over_queries(grad_k, s_.grad_weights, s_.q_across, t0, stripe, s, s_end, finite, ahead_too);
    if (const int64_t next = t0 + stripe; !one_block() && (next % kChainBlock == 0 || next == a_.queries))
      join_block(t0 < kChainBlock, s, s_end);
    const auto [i, i_end] = part.of(stripe, 1);
    Prefetcher nothing(a_.head_size);
    const int64_t ld = plan_.ld_keys / kSteps;
    weighted_sums(rows_of(a_.grad_q), s_.grads_along + i * ld, ld, s_.key, t0 + i, i_end - i, finite, masked_grad(), nothing);
  }

 private:
  using P = Products<V>;
  using Copies = typename P::Copies;
  static constexpr int64_t kSteps = P::kSteps;
  int64_t stripe_rows(int64_t t0) const { return std::min(plan_.stripe_rows, a_.queries - t0); }
  HeadRows rows_of(const AttentionTensor& x) const { return head_rows(x, pair_ / a_.heads, pair_ % a_.heads); }

  /// Of the score of a masked pair.
  float masked_grad() const { return 0.0f * a_.scale; }

  // `rows` rows of grad_out from query t on, row `i` of the stripe, in the dtype of q.
  HeadRows grad_out_of(int64_t t, int64_t i, int64_t rows) const {
    const HeadRows from = rows_of(a_.grad_out).from(t);
    if (!a_.is_bf16() || from.dtype == DType::bf16) return from;
    uint16_t* const to = s_.narrowed + i * plan_.ld_size;
    for (int64_t row = 0; row < rows; ++row) Bf16Rows::narrow(to + row * plan_.ld_size, from.floats(row), a_.head_size);
    return {reinterpret_cast<char*>(to), plan_.ld_size * static_cast<int64_t>(sizeof *to), DType::bf16};
  }

  // What is read first of the next pair, in its order. More would push this pair's operands out of L2.
  Prefetcher next_pair(std::initializer_list<const AttentionTensor*> tensors) const {
    constexpr int64_t kMostRows = 256;
    Prefetcher ahead(a_.head_size);
    const int64_t next = pair_ + 1;
    if (next >= a_.batch * a_.heads) return ahead;
    for (const AttentionTensor* x : tensors)
      ahead.add(head_rows(*x, next / a_.heads, next % a_.heads), 0,
                std::min(x == &a_.k || x == &a_.v ? a_.keys : a_.queries, kMostRows));
    return ahead;
  }

  // Pairs of a tile that are masked enter its sums with weight 0, and 0 times infinity would be NaN: then tiles are single rows.
  int64_t tile_height(bool finite) const { return finite ? V::kRows : 1; }
  // Keys that the last row of a stripe sees and the first does not, and what shares a word with them: in `x`, words across keys.
  bool partly_seen_finite(const float* x, int64_t t0, int64_t rows) const {
    const int64_t all = visible_keys(a_, t0) / kSteps, some = Copies::words(visible_keys(a_, t0 + rows - 1));
    return !a_.causal || Copies::all_finite(x + all * plan_.ld_size, (some - all) * plan_.ld_size);
  }

  void forward_stripe(int64_t t0, int64_t rows) {
    Copies::copy_along(s_.q, plan_.ld_along, rows_of(a_.q), t0, rows, a_.head_size);
    const bool finite = partly_seen_finite(s_.value, t0, rows);
    const HeadRows out = rows_of(a_.out);
    Prefetcher results(a_.head_size);
    results.add(out, t0, rows);
    all_scores(s_.scores, s_.q, s_.key_t, t0, rows, results);
    softmax(t0, rows);
    if constexpr (kSteps > 1)
      for (int64_t i = 0; i < rows; ++i)
        Copies::weights_along(s_.scores + i * plan_.ld_keys, s_.scores + i * plan_.ld_keys, used(t0 + i));
    Prefetcher ahead = t0 + rows == a_.queries ? next_pair({&a_.k, &a_.v, &a_.q}) : Prefetcher(a_.head_size);
    weighted_sums(out, s_.scores, plan_.ld_keys, s_.value, t0, rows, finite, 0.0f, ahead);
  }

  // scores[rows, visible keys] = x keys^T, panel by panel. A tile whose rows all miss a panel leaves it out.
  void all_scores(float* scores, const float* x, const float* panels, int64_t t0, int64_t rows, Prefetcher& ahead) const {
    const int64_t seen = visible_keys(a_, t0 + rows - 1);
    ahead.spread(P::num_tiles(seen, P::kColumns));
    const int64_t words = Copies::words(a_.head_size);
    for (int64_t s0 = 0; s0 < seen; s0 += P::kColumns, panels += words * P::kColumns) {
      ahead.step();
      P::for_each_tile(rows, V::kRows, [&](int64_t i, int64_t n) {
        const int64_t columns = std::min(P::kColumns, visible_keys(a_, t0 + i + n - 1) - s0);
        if (columns <= 0) return;
        // Whole vectors: the panel is padded, and so are rows of scores.
        const int64_t padded = (columns + V::kLanes - 1) / V::kLanes * V::kLanes;
        P::template tile_rows<false>(n, padded, words, x + i * plan_.ld_along, plan_.ld_along, panels, P::kColumns,
                                     scores + i * plan_.ld_keys + s0, plan_.ld_keys, Sum::kStore);
      });
    }
  }

  // out[rows, size] = weights[rows, visible keys] x[keys, size]; rows of weights are `ld` words apart, those left out are zeros of the
  // sign of `zero`.
  void weighted_sums(const HeadRows& out, const float* weights, int64_t ld, const float* x, int64_t t0, int64_t rows, bool finite,
                     float zero, Prefetcher& ahead) const {
    const int64_t height = tile_height(finite);
    ahead.spread(P::num_tiles(rows, height));
    P::for_each_tile(rows, height, [&](int64_t i, int64_t n) {
      ahead.step();
      const int64_t seen = visible_keys(a_, t0 + i + n - 1);
      const bool rounds = out.dtype == DType::bf16;
      const HeadRows c = rounds ? scratch_rows(s_.tile, plan_.ld_size) : out.from(t0 + i);
      const float* const w = weights + i * ld;
      if (kSteps > 1 && !finite)
        P::exact_row(
            a_.head_size, 0, seen, [w](int64_t s) { return Copies::along(w, s); }, x, plan_.ld_size, c.floats(0), Sum::kStore);
      else
        P::template tile_rows<false>(n, a_.head_size, Copies::words(seen), w, ld, x, plan_.ld_size, c.floats(0), c.stride(),
                                     Sum::kStore);
      P::add_skipped_zeros(c.floats(0), c.stride(), n, a_.head_size, x, plan_.ld_size, seen, a_.keys, zero);
      for (int64_t row = 0; rounds && row < n; ++row)
        Bf16Rows::narrow(reinterpret_cast<uint16_t*>(out.row(t0 + i + row)), c.floats(row), a_.head_size);
    });
  }

  // sums[begin..end, size] go on by weights^T[keys, rows] x[rows, size], from zero at the start of a block; a tile of keys starts at
  // the first row that sees one of them, or at the one that shares a word with it: its weight is 0. Words across rows.
  void sums_over_queries(const HeadRows& sums, const float* weights, const float* x, int64_t t0, int64_t rows, int64_t begin,
                         int64_t end, bool finite, Prefetcher& ahead) const {
    const int64_t seen = rows == 0 ? begin : std::clamp(visible_keys(a_, t0 + rows - 1), begin, end);
    const int64_t height = tile_height(finite), ld = kSteps * plan_.ld_keys;
    ahead.spread(P::num_tiles(seen - begin, height));
    const Sum how = t0 % kChainBlock == 0 ? Sum::kStore : Sum::kChain;
    P::for_each_tile(seen - begin, height, [&](int64_t i, int64_t n) {
      ahead.step();
      const int64_t s = begin + i, first = std::max<int64_t>(0, first_query(a_, s) - t0), word = first / kSteps;
      const float* const w = weights + s;
      if (kSteps > 1 && !finite)
        P::exact_row(
            a_.head_size, first, rows, [=](int64_t t) { return Copies::across(w, ld, t, 0); }, x, plan_.ld_size, sums.floats(s),
            how);
      else
        P::template tile_rows<true>(n, a_.head_size, Copies::words(rows) - word, w + word * ld, ld, x + word * plan_.ld_size,
                                    plan_.ld_size, sums.floats(s), sums.stride(), how);
    });
    if (how == Sum::kChain) return;
    for (int64_t s = seen; s < end; ++s) std::fill_n(sums.floats(s), a_.head_size, 0.0f);
  }

  // Scores to weights; row_max and row_sum.
  void softmax(int64_t t0, int64_t rows) const {
    const auto with = [&](auto loop, auto calls) {
      using L = decltype(loop);
      calls.rows_of(L::kScores, s_.scores, plan_.ld_keys);
      calls.rows_of(L::kWeights, s_.scores, plan_.ld_keys);
      if constexpr (std::is_base_of_v<MaskedLoop, L>) masks_of<L>(calls, 0, t0, rows);
      calls.one_a_row(L::kRowMax, a_.row_max + first_row_ + t0);
      calls.one_a_row(L::kRowSum, a_.row_sum + first_row_ + t0);
      calls.run(a_, t0, rows);
    };
    if (a_.masked)
      with(MaskedSoftmaxLoop{}, masked_calls<MaskedSoftmaxLoop>());
    else
      with(SoftmaxLoop{}, RowCalls<SoftmaxLoop::kNumAccesses, SoftmaxLoop::kNumScalars>(a_.loops[0], {a_.scale, 1.0f}, s_.loop));
    follow_by_zeros(s_.scores, t0, rows, 0.0f);
    for (int64_t i = 0; i < rows && visible_keys(a_, t0 + i) == 0; ++i)
      a_.row_max[first_row_ + t0 + i] = a_.row_sum[first_row_ + t0 + i] = 0.0f;
  }

  // Scores and grad_p to weights and gradients of the products; the rows are those from `first` on of the stripe.
  void softmax_grad(int64_t first, int64_t t0, int64_t rows) const {
    float *const scores = s_.scores + first * plan_.ld_keys, *const grad_weights = s_.grad_weights + first * plan_.ld_keys;
    const auto with = [&](auto loop, auto calls) {
      using L = decltype(loop);
      calls.rows_of(L::kScores, scores, plan_.ld_keys);
      calls.rows_of(L::kWeights, scores, plan_.ld_keys);
      calls.rows_of(L::kGradWeights, grad_weights, plan_.ld_keys);
      calls.rows_of(L::kGradScores, grad_weights, plan_.ld_keys);
      if constexpr (std::is_base_of_v<MaskedLoop, L>) masks_of<L>(calls, first, t0, rows);
      calls.one_a_row(L::kRowMax, a_.row_max + first_row_ + t0);
      calls.one_a_row(L::kRowSum, a_.row_sum + first_row_ + t0);
      calls.run(a_, t0, rows);
    };
    if (a_.masked)
      with(MaskedSoftmaxGradLoop{}, masked_calls<MaskedSoftmaxGradLoop>());
    else
      with(SoftmaxGradLoop{},
           RowCalls<SoftmaxGradLoop::kNumAccesses, SoftmaxGradLoop::kNumScalars>(a_.loops[0], {a_.scale, 1.0f}, s_.loop));
    follow_by_zeros(scores, t0, rows, 0.0f);
    follow_by_zeros(grad_weights, t0, rows, masked_grad());
    if constexpr (kSteps > 1) make_words(scores, grad_weights, s_.grads_along + first * plan_.ld_keys / kSteps, t0, rows);
  }

  // Weights and gradients to words across rows, where the first row of each word was; the gradients to words along the keys too.
  void make_words(float* scores, float* grad_weights, float* along, int64_t t0, int64_t rows) const {
    const int64_t ld = plan_.ld_keys, ld_along = ld / kSteps;
    for (int64_t i = 0; i < rows; i += kSteps) {
      const int64_t n = used(t0 + std::min(i + 1, rows - 1)), later = i + 1 < rows ? ld : 0;
      float *const w = scores + i * ld, *const g = grad_weights + i * ld, *const to = along + i * ld_along;
      Copies::weights_of_rows(w, later == 0 ? nullptr : w + later, nullptr, nullptr, n);
      Copies::weights_of_rows(g, later == 0 ? nullptr : g + later, to, later == 0 ? nullptr : to + ld_along, n);
    }
  }

  template <class L>
  RowCalls<L::kNumAccesses, MaskedLoop::kNumScalars> masked_calls() const {
    const auto factor = static_cast<float>(1 / (1 - a_.masking.dropout));
    return {a_.loops[0], {a_.scale, 1.0f, factor, -HUGE_VALF, 0.0f}, s_.loop};
  }
  // Fills and passes the bytes of rows `first`.. of the stripe, which are queries t0 ...
  template <class L, class Calls>
  void masks_of(Calls& calls, int64_t first, int64_t t0, int64_t rows) const {
    uint8_t *const seen = s_.seen + first * plan_.ld_keys, *const kept = s_.kept + first * plan_.ld_keys;
    const AttentionMasking& m = a_.masking;
    const uint8_t* const mask = m.mask + pair_ / a_.heads * m.batch_stride + pair_ % a_.heads * m.head_stride;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t keys = visible_keys(a_, t0 + i);
      const uint8_t* const from = mask + (t0 + i) * m.query_stride;
      uint8_t *const seen_row = seen + i * plan_.ld_keys, *const kept_row = kept + i * plan_.ld_keys;
      for (int64_t s = 0; s < keys; ++s) seen_row[s] = from[s * m.key_stride];
      if (m.dropout == 0)
        std::memset(kept_row, 1, static_cast<size_t>(keys));
      else
        keep_row(
            kept_row,
            static_cast<uint64_t>(m.first_row * a_.heads * a_.queries + first_row_ + t0 + i) * static_cast<uint64_t>(a_.keys),
            keys);
    }
    calls.rows_of(L::kSeen, seen, plan_.ld_keys);
    calls.rows_of(L::kKept, kept, plan_.ld_keys);
  }
  void keep_row(uint8_t* kept, uint64_t position, int64_t keys) const {
    const uint32_t threshold = keep_threshold(a_.masking.dropout), key0 = *a_.masking.key0, key1 = *a_.masking.key1;
    for (int64_t s = 0; s < keys; ++s)
      kept[s] = philox_word0(position + static_cast<uint64_t>(s), 0, key0, key1) < threshold ? 1 : 0;
  }

  // Floats of a row of weights, in whole vectors: what is seen and the zeros that follow.
  int64_t used(int64_t t) const { return (visible_keys(a_, t) + kMostRows + V::kLanes - 1) / V::kLanes * V::kLanes; }
  // A tile reads at most its height past the keys that one of its rows sees.
  void follow_by_zeros(float* weights, int64_t t0, int64_t rows, float zero) const {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(weights + i * plan_.ld_keys + visible_keys(a_, t0 + i), kMostRows, zero);
  }

  // Where sums over queries build up: in the results if one block is all, else in scratch, block by block.
  bool one_block() const { return a_.queries <= kChainBlock; }
  HeadRows block_sums(const AttentionTensor& grad, float* scratch) const {
    return one_block() ? rows_of(grad) : scratch_rows(scratch, plan_.ld_size);
  }
  // Block sums join the results, ascending.
  void join_block(bool first, int64_t begin, int64_t end) const {
    for (const auto& [to, from] : {std::pair{rows_of(a_.grad_k), s_.grad_k}, {rows_of(a_.grad_v), s_.grad_v}}) {
      for (int64_t s = begin; s < end; ++s) {
        float* const row = to.floats(s);
        const float* const sum = from + s * plan_.ld_size;
        for (int64_t d = 0; d < a_.head_size; ++d) row[d] = first ? sum[d] : row[d] + sum[d];
      }
    }
  }

  const Attention& a_;
  const AttentionPlan& plan_;
  const AttentionScratch& s_;
  int64_t pair_, first_row_;
};

template <class V>
constexpr AttentionIsaCode attention_code() {
  static_assert(V::kRows <= kMostRows && Products<V>::kColumns <= kMostColumns);
  return {[](const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t begin,
             int64_t end) { AttentionHead<V>(a, plan, scratch, pair).forward(begin, end); },
          [](const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, Part part) {
            AttentionHead<V>(a, plan, scratch, pair).prepare(part);
          },
          [](const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t t0,
             Part part) { return AttentionHead<V>(a, plan, scratch, pair).stripe_weights(t0, part); },
          [](const Attention& a, const AttentionPlan& plan, const AttentionScratch& scratch, int64_t pair, int64_t t0,
             bool finite, Part part) { AttentionHead<V>(a, plan, scratch, pair).stripe_sums(t0, finite, part); }};
}

}  // namespace
}  // namespace ws::cpu
