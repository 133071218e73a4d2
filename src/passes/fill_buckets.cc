#include "passes/fill_buckets.h"

#include <algorithm>

#include "passes/rewriter.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

/// What a value leads to.
struct Fate {
  bool state = false;       // a donated output
  bool collective = false;  // ranks that meet again within the step
};

std::vector<Fate> fates_of(const Graph& graph) {
  std::vector<Fate> fates(at(graph.num_values()));
  for (const GraphOutput& output : graph.outputs()) fates[at(output.value.id)].state |= output.donates_input >= 0;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    Fate fate;
    for (Value r : node->results) {
      fate.state |= fates[at(r.id)].state;
      fate.collective |= fates[at(r.id)].collective;
    }
    // New state that is only put together at the end of the step keeps nobody waiting.
    const bool ends_step = node->op->name == "all_gather" && fate.state && !fate.collective;
    if (node->op->lowering == Lowering::kCollective && !ends_step) fate.collective = true;
    for (Value v : node->inputs) {
      fates[at(v.id)].state |= fate.state;
      fates[at(v.id)].collective |= fate.collective;
    }
  }
  return fates;
}

}  // namespace

Graph fill_buckets(const Graph& graph, int64_t bucket_bytes) {
  const std::vector<Fate> fates = fates_of(graph);
  std::vector<bool> written_over(at(graph.num_values()), false);
  for (const GraphOutput& output : graph.outputs())
    if (output.donates_input >= 0) written_over[at(output.value.id)] = true;
  const auto may_wait = [&](const Node& node) {
    if (node.op->name != "all_reduce" || node.attrs.flag("maximum")) return false;
    const Value r = node.results[0];
    return graph.type_of(r).dtype == DType::f32 && fates[at(r.id)].state && !fates[at(r.id)].collective &&
           !written_over[at(r.id)];
  };
  Rewriter rewriter(graph);
  int64_t bucket = 1, filled = 0;
  std::vector<int64_t> needs(at(graph.num_values()), 0);  // by value: the last bucket that it is made from
  for (const Node& node : graph.nodes()) {
    int64_t needed = 0;
    for (Value v : node.inputs) needed = std::max(needed, needs[at(v.id)]);
    // Ranks meet, and stop, in the order of the graph: what they meet for cannot wait for a bucket that fills up later.
    const bool meets = node.op->lowering == Lowering::kCollective || node.op->lowering == Lowering::kCheck;
    const bool is_full = filled >= bucket_bytes || (meets && needed == bucket);
    if (is_full && filled > 0) ++bucket, filled = 0;
    if (may_wait(node)) {
      Node marked = node;
      marked.attrs.set("bucket", bucket);
      rewriter.copy(marked);
      filled += graph.type_of(node.results[0]).num_bytes();
      needed = bucket;
    } else {
      rewriter.copy(node);
    }
    for (Value r : node.results) needs[at(r.id)] = needed;
  }
  return rewriter.finish();
}

}  // namespace ws
