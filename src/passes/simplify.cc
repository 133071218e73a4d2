#include <unordered_map>

#include "passes/pass.h"
#include "passes/rewriter.h"
#include "passes/rules.h"

namespace ws {

namespace {

// A Builder that tries the rules before it records. Rules build through it, so what they make is simplified as well; each of them
// shortens the chain it looks at, which ends the recursion.
class Simplifier final : public Builder {
 public:
  Simplifier(Graph& graph, PassContext& context) : graph_(graph), context_(context) {
    for (const Rule& rule : all_rules())
      if (!context.disabled.count(std::string(rule.name))) rules_[rule.op].push_back({&rule, 0});
  }
  ~Simplifier() override {
    for (const auto& [op, rules] : rules_)
      for (const Active& active : rules)
        if (active.hits > 0) context_.hits[std::string(active.rule->name)] += active.hits;
  }

  Type type_of(Value v) const override { return graph_.type_of(v); }

  std::vector<Value> apply(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override {
    if (const auto found = rules_.find(op.name); found != rules_.end()) {
      for (Active& active : found->second) {
        const Value better = active.rule->apply({*this, graph_, op, inputs, attrs});
        if (!better) continue;
        ++active.hits;
        any_hit = true;
        return {better};
      }
    }
    return graph_.add_node(op, {inputs.begin(), inputs.end()}, attrs, path, checkpoint);
  }

  std::string path;  // these two are given to new nodes
  int checkpoint = 0;
  bool any_hit = false;

 private:
  struct Active {
    const Rule* rule;
    int hits;
  };
  Graph& graph_;
  PassContext& context_;
  std::unordered_map<std::string_view, std::vector<Active>> rules_;  // by op
};

}  // namespace

std::optional<Graph> simplify(const Graph& graph, PassContext& context) {
  Rewriter rewriter(graph);
  Simplifier simplifier(rewriter.graph(), context);
  for (const Node& node : graph.nodes()) {
    simplifier.path = node.path;
    simplifier.checkpoint = node.checkpoint;
    const std::vector<Value> results = simplifier.apply(*node.op, rewriter.map(node.inputs), node.attrs);
    for (size_t i = 0; i < results.size(); ++i) rewriter.replace(node.results[i], results[i]);
  }
  if (!simplifier.any_hit) return std::nullopt;
  return rewriter.finish();
}

}  // namespace ws
