// Recomputation on programs by hand: what is dropped, at which cost, against exhaustive search.
#include "memory/recompute.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <queue>
#include <random>

#include "memory/plan.h"
#include "memory/recompute_search.h"
#include "support/error.h"

namespace ws {
namespace {

struct Maker {
  Program program;
  std::vector<double> seconds;
  Maker() { program.name = "p"; }
  int buffer(int64_t bytes, ProgramBuffer::Role role = ProgramBuffer::Role::kTemporary) {
    ProgramBuffer b;
    b.role = role;
    b.num_elements = bytes / 4;
    b.name = fmt::format("b{}", program.buffers.size());
    b.index = 0;
    program.buffers.push_back(b);
    return static_cast<int>(program.buffers.size()) - 1;
  }
  void call(std::vector<int> reads, std::vector<int> writes, double cost) {
    KernelCall c;
    LoopCall loop;
    loop.kernel = std::make_shared<LoopKernel>();
    for (const auto* list : {&reads, &writes})
      for (int b : *list) {
        View v;
        v.buffer = b;
        v.dims = Shape{program.buffers[static_cast<size_t>(b)].num_elements};
        v.strides[0] = 1;
        loop.accesses.push_back(v);
      }
    loop.folds.resize(loop.accesses.size());
    c.what = std::move(loop);
    c.reads = std::move(reads);
    c.writes = std::move(writes);
    program.calls.push_back(std::move(c));
    seconds.push_back(cost);
  }
};

/// A chain of layers forward and backward: layer i reads h[i] and writes h[i + 1] and perhaps some more for backward.
Maker training_step(int layers, uint32_t seed) {
  Maker m;
  std::mt19937 random(seed);
  const auto size = [&] { return static_cast<int64_t>(64 * (1 + random() % 16)); };
  const auto cost = [&] { return 1.0 + static_cast<double>(random() % 20); };
  const int x = m.buffer(64, ProgramBuffer::Role::kInput);
  std::vector<int> h = {x}, extra;
  for (int i = 0; i < layers; ++i) {
    extra.push_back(random() % 2 ? m.buffer(size()) : -1);
    const int out = m.buffer(size());
    if (extra.back() >= 0) m.call({h.back()}, {extra.back()}, cost());
    std::vector<int> reads = {h.back()};
    if (extra.back() >= 0) reads.push_back(extra.back());
    m.call(reads, {out}, cost());
    h.push_back(out);
  }
  int grad = m.buffer(64);
  m.call({h.back()}, {grad}, 1);
  for (int i = layers; i-- > 0;) {
    std::vector<int> reads = {grad, h[static_cast<size_t>(i)]};
    if (extra[static_cast<size_t>(i)] >= 0) reads.push_back(extra[static_cast<size_t>(i)]);
    grad = m.buffer(64);
    m.call(reads, {grad}, cost());
  }
  const int out = m.buffer(64, ProgramBuffer::Role::kOutput);
  m.call({grad}, {out}, 1);
  return m;
}

double sum(const std::vector<double>& values) {
  double s = 0;
  for (double v : values) s += v;
  return s;
}

int64_t peak_of(const Maker& m) {
  Timeline timeline(m.program, m.seconds);
  return timeline.run(Drops(timeline.gaps().size(), 0)).peak_bytes;
}

/// The least extra time within `budget` over every sequence of calls that keeps the program's own order, repeats what it likes and
/// frees what it likes: shortest path over (calls done, buffers held). HUGE_VAL where there is none.
double least_extra(const Maker& m, int64_t budget) {
  const Program& p = m.program;
  std::vector<int> bit(p.buffers.size(), -1);
  int bits = 0;
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].role == ProgramBuffer::Role::kTemporary) bit[b] = bits++;
  EXPECT_LE(bits, 24);
  std::vector<int64_t> size(static_cast<size_t>(bits));
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (bit[b] >= 0) size[static_cast<size_t>(bit[b])] = aligned_bytes(p.buffers[b]);
  const auto mask_of = [&](const std::vector<int>& list) {
    uint32_t mask = 0;
    for (int b : list)
      if (bit[static_cast<size_t>(b)] >= 0) mask |= 1u << bit[static_cast<size_t>(b)];
    return mask;
  };
  const auto bytes_of = [&](uint32_t mask) {
    int64_t bytes = 0;
    for (int i = 0; i < bits; ++i)
      if (mask >> i & 1) bytes += size[static_cast<size_t>(i)];
    return bytes;
  };
  using State = std::pair<size_t, uint32_t>;
  std::map<State, double> best;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>, std::greater<>> queue;
  const auto reach = [&](double cost, State s) {
    auto [it, fresh] = best.try_emplace(s, cost);
    if (!fresh && it->second <= cost) return;
    it->second = cost;
    queue.push({cost, s});
  };
  reach(0, {0, 0});
  while (!queue.empty()) {
    const auto [cost, state] = queue.top();
    queue.pop();
    if (best[state] < cost) continue;
    const auto [done, held] = state;
    if (done == p.calls.size()) return cost;
    for (size_t c = 0; c <= done; ++c) {
      const uint32_t reads = mask_of(p.calls[c].reads), writes = mask_of(p.calls[c].writes);
      if ((reads & ~held) != 0 || (c < done && (writes & ~held) == 0)) continue;
      if (bytes_of(held | writes) > budget) continue;
      reach(cost + (c < done ? m.seconds[c] : 0), {done + (c == done), held | writes});
    }
    for (int i = 0; i < bits; ++i)
      if (held >> i & 1) reach(cost, {done, held & ~(1u << i)});
  }
  return HUGE_VAL;
}

const RecomputePlan* cheapest(const std::vector<RecomputePlan>& plans, int64_t budget) {
  for (const RecomputePlan& plan : plans)
    if (plan.peak_bytes <= budget) return &plan;
  return nullptr;
}

TEST(Recompute, AtMostFivePercentOverExhaustiveSearch) {
  int asked = 0, met = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Maker m = training_step(4, seed);
    Timeline timeline(m.program, m.seconds);
    const auto plans = find_recompute_plans(timeline, timeline.nothing_extended());
    const double all = sum(m.seconds);
    for (const double share : {0.9, 0.8, 0.7, 0.6}) {
      const auto budget = static_cast<int64_t>(share * static_cast<double>(peak_of(m)));
      const double least = least_extra(m, budget);
      if (least == HUGE_VAL) {
        EXPECT_EQ(cheapest(plans, budget), nullptr);
        continue;
      }
      ++asked;
      const RecomputePlan* plan = cheapest(plans, budget);
      if (plan == nullptr) continue;  // next to the least possible; counted below
      ++met;
      EXPECT_LE(all + plan->extra_seconds, 1.05 * (all + least)) << "seed " << seed << ", budget " << budget;
      EXPECT_GE(plan->extra_seconds, least - 1e-9);  // else one of the two does not count right
    }
  }
  EXPECT_GE(asked, 30);
  EXPECT_GE(met, 0.9 * asked);
}

TEST(Recompute, ALowerBudgetNeverRaisesThePeak) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    int64_t last = INT64_MAX, last_extra_calls = 0;
    const int64_t all = plan_memory(training_step(8, seed).program).arena_bytes;
    for (int64_t budget = all; budget > 0; budget -= all / 40) {
      Maker m = training_step(8, seed);
      const size_t calls = m.program.calls.size();
      const Recomputation r = recompute(m.program, Graph(), budget, 1);
      const MemoryPlan plan = plan_memory(m.program);
      verify_plan(m.program, plan);
      if (r.least_arena_bytes > 0) {
        EXPECT_GT(r.least_arena_bytes, budget);
        EXPECT_EQ(m.program.calls.size(), calls);  // untouched
        EXPECT_LE(r.least_arena_bytes, last);
        break;
      }
      EXPECT_LE(plan.arena_bytes, budget);
      EXPECT_LE(plan.arena_bytes, last);
      EXPECT_EQ(r.limited, budget < all);
      EXPECT_EQ(m.program.calls.size(), calls + static_cast<size_t>(r.num_repeated));
      last = plan.arena_bytes;
      last_extra_calls = r.num_repeated;
    }
    EXPECT_GT(last_extra_calls, 0);
  }
}

TEST(Recompute, ReadsStateBeforeItIsWrittenOver) {
  // y = w * x is dropped; w is updated before y is read: y must be made again before the update.
  Maker m;
  const int x = m.buffer(64, ProgramBuffer::Role::kInput), w = m.buffer(64, ProgramBuffer::Role::kInput);
  const int y = m.buffer(1024), z = m.buffer(1024), u = m.buffer(64), next = m.buffer(64, ProgramBuffer::Role::kOutput);
  m.program.buffers[static_cast<size_t>(next)].alias_of = w;
  const int out = m.buffer(64, ProgramBuffer::Role::kOutput);
  m.call({w, x}, {y}, 1);
  m.call({y}, {u}, 1);
  m.call({x}, {z}, 1);
  m.call({z, u}, {u}, 1);
  m.call({w, u}, {next}, 1);
  m.call({y, u}, {out}, 1);
  Timeline timeline(m.program, m.seconds);
  Drops drops = timeline.nothing_extended();
  for (size_t g = 0; g < drops.size(); ++g)
    if (timeline.gaps()[g].buffer == y && timeline.gaps()[g].from == 1) drops[g] = 1;
  std::vector<Timeline::Step> steps;
  const Timeline::Outcome outcome = timeline.run(drops, &steps);
  ASSERT_TRUE(outcome.possible);
  EXPECT_EQ(outcome.num_repeated, 1);
  std::vector<int> order;
  for (const auto& step : steps) order.push_back(step.call);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 0, 4, 5}));
}

TEST(Recompute, NeverRepeatsWhatReturnsOrChecks) {
  Maker m;
  const int x = m.buffer(64, ProgramBuffer::Role::kInput), y = m.buffer(4096), z = m.buffer(4096);
  const int out = m.buffer(64, ProgramBuffer::Role::kOutput), last = m.buffer(64, ProgramBuffer::Role::kOutput);
  m.call({x}, {y, out}, 1);  // returns something too
  m.call({x}, {z}, 1);
  m.call({z}, {last}, 1);
  m.call({y}, {last}, 1);
  Timeline timeline(m.program, m.seconds);
  for (size_t g = 0; g < timeline.gaps().size(); ++g)
    EXPECT_EQ(timeline.can_drop(static_cast<int>(g)), timeline.gaps()[g].buffer == z);
}

}  // namespace
}  // namespace ws
