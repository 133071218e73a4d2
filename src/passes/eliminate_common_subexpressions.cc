#include <algorithm>
#include <unordered_map>

#include "passes/pass.h"
#include "passes/rewriter.h"

namespace ws {

namespace {

// What makes two nodes equal. Effects merge too where all of it agrees: a check on the same value and range finds the same thing, and
// the first of the two comes earlier.
struct Key {
  const OpDef* op;
  const Attrs* attrs;         // of a node of the old graph, which outlives the map
  std::vector<Value> inputs;  // new values; sorted for a commutative op (a+b and b+a have the same bits)
  bool operator==(const Key& o) const { return op == o.op && inputs == o.inputs && *attrs == *o.attrs; }
};

struct Hash {
  size_t operator()(const Key& key) const {
    size_t h = std::hash<const void*>()(key.op) ^ (key.attrs->hash() * 31);
    for (Value v : key.inputs) h = h * 0x9e3779b97f4a7c15u + static_cast<size_t>(v.id);
    return h;
  }
};

}  // namespace

std::optional<Graph> eliminate_common_subexpressions(const Graph& graph, PassContext& context) {
  Rewriter rewriter(graph);
  std::unordered_map<Key, const Node*, Hash> first;
  first.reserve(graph.nodes().size());
  int merged = 0;
  for (const Node& node : graph.nodes()) {
    Key key{node.op, &node.attrs, rewriter.map(node.inputs)};
    if (node.op->has(kCommutative)) std::sort(key.inputs.begin(), key.inputs.end(), [](Value a, Value b) { return a.id < b.id; });
    const auto [found, is_new] = first.emplace(std::move(key), &node);
    if (is_new) {
      rewriter.copy(node);
      continue;
    }
    for (size_t i = 0; i < node.results.size(); ++i) rewriter.replace(node.results[i], rewriter.map(found->second->results[i]));
    ++merged;
  }
  if (merged == 0) return std::nullopt;
  context.hits["merged"] = merged;
  return rewriter.finish();
}

}  // namespace ws
