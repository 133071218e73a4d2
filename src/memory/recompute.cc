#include "memory/recompute.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "memory/plan.h"
#include "memory/recompute_search.h"
#include "support/log.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

/// By buffer: the checkpoint() that its value's node is marked with, or 0.
std::vector<int> checkpoint_of_buffers(const Program& program, const Graph& graph) {
  std::vector<int> result;
  for (const ProgramBuffer& b : program.buffers) {
    const int node = b.value ? graph.producer_of(b.value) : -1;
    result.push_back(node >= 0 ? graph.nodes()[at(node)].checkpoint : 0);
  }
  return result;
}

/// By buffer: it becomes new state, and nothing else is made of it. Such values (random keys, running statistics) wait for all checks of
/// the step, long after the block that sets them.
std::vector<char> find_new_state(const Program& program) {
  const auto is_state = [&](int b) { return program.buffers[at(b)].alias_of >= 0; };
  std::vector<char> read(program.buffers.size(), 0), result(program.buffers.size(), 1);
  for (const KernelCall& call : program.calls)
    for (int b : call.reads) {
      read[at(b)] = 1;
      if (!std::all_of(call.writes.begin(), call.writes.end(), is_state)) result[at(b)] = 0;
    }
  for (size_t b = 0; b < result.size(); ++b) result[b] = is_state(static_cast<int>(b)) || (read[b] && result[b]);
  return result;
}

/// Drops the gaps between the end of a checkpoint's forward pass and the backward pass. A gap that ends inside another checkpoint's
/// forward pass (two blocks share a value) is no such gap.
void drop_checkpoints(const Program& program, const Graph& graph, const Timeline& timeline, Drops& drops) {
  const std::vector<int> checkpoint = checkpoint_of_buffers(program, graph);
  const std::vector<char> new_state = find_new_state(program);
  int highest = 0;
  for (int k : checkpoint) highest = std::max(highest, std::abs(k));
  std::vector<int> end(at(highest) + 1, -1);             // by checkpoint: the last call that writes in it or for it
  std::vector<int> writes_for(program.calls.size(), 0);  // by call: a checkpoint that it writes for
  std::vector<char> met(at(graph.num_values()), 0);  // a copy that a late reader has of its own is no part of the forward pass
  for (int c = 0; c < timeline.num_calls(); ++c)
    for (int b : program.calls[at(c)].writes) {
      const int k = std::abs(checkpoint[at(b)]);
      if (k == 0 || new_state[at(b)] || std::exchange(met[at(program.buffers[at(b)].value.id)], 1)) continue;
      end[at(k)] = c;
      writes_for[at(c)] = k;
    }
  for (size_t g = 0; g < timeline.gaps().size(); ++g) {
    const Timeline::Gap& gap = timeline.gaps()[g];
    const int k = checkpoint[at(gap.buffer)];
    if (k <= 0 || !timeline.can_drop(static_cast<int>(g))) continue;
    const bool across = !gap.last && gap.from <= end[at(k)] && gap.to > end[at(k)];
    const bool forward = !gap.last && writes_for[at(gap.to)] > 0 && writes_for[at(gap.to)] != k;
    if (across && !forward) drops[g] = 1;
  }
}

}  // namespace

double nominal_seconds(const KernelCall& call, int num_threads) {
  double flops_per_s = 10e9;  // loops: polynomials and divisions, loads and stores between
  if (std::holds_alternative<GemmCall>(call.what)) flops_per_s = 80e9;
  if (const auto* library = std::get_if<LibraryCall>(&call.what); library != nullptr && library->op != nullptr)
    flops_per_s = library->op->has(kExpensive) ? 40e9 : 5e9;
  constexpr double kBytesPerSecond = 20e9, kStart = 5e-7;
  return std::max(call.cost.flops / (flops_per_s * num_threads), call.cost.bytes / kBytesPerSecond) + kStart;
}

Recomputation recompute(Program& program, const Graph& graph, int64_t arena_budget_bytes, int num_threads) {
  Recomputation result;
  const bool marked = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) { return n.checkpoint > 0; });
  const bool budgeted = arena_budget_bytes >= 0;
  if (!marked && !budgeted) return result;
  result.unlimited_arena_bytes = plan_memory(program).arena_bytes;
  if (!marked && result.unlimited_arena_bytes <= arena_budget_bytes) return result;

  std::vector<double> seconds;
  for (const KernelCall& call : program.calls) seconds.push_back(nominal_seconds(call, num_threads));
  Timeline timeline(program, seconds);
  Drops base = timeline.nothing_extended();
  if (marked) drop_checkpoints(program, graph, timeline, base);
  const auto finish = [&](const RecomputePlan& plan, Program&& better) {
    program = std::move(better);
    result.num_repeated = plan.num_repeated;
  };
  const auto made = [&](const RecomputePlan& plan) {
    std::vector<Timeline::Step> steps;
    timeline.run(plan.drops, &steps);
    return with_steps(program, steps);
  };
  Timeline::Outcome asked = timeline.run(base);
  if (!asked.possible) {
    note("{}: a checkpoint would have to read state that was written over, so its results are kept", program.name);
    asked = timeline.run(base = timeline.nothing_extended());
  }
  const RecomputePlan first{base, asked.peak_bytes, asked.extra_seconds, asked.num_repeated};
  Program at_first = made(first);
  if (!budgeted || plan_memory(at_first).arena_bytes <= arena_budget_bytes) {
    finish(first, std::move(at_first));
    return result;
  }
  result.least_arena_bytes = INT64_MAX;
  for (const RecomputePlan& plan : find_recompute_plans(timeline, base)) {
    if (plan.peak_bytes > arena_budget_bytes && plan.peak_bytes >= result.least_arena_bytes) continue;
    Program candidate = made(plan);
    const int64_t bytes = plan_memory(candidate).arena_bytes;
    result.least_arena_bytes = std::min(result.least_arena_bytes, bytes);
    if (bytes > arena_budget_bytes) continue;
    result.least_arena_bytes = 0;
    result.limited = true;
    finish(plan, std::move(candidate));
    return result;
  }
  return result;
}

}  // namespace ws
