#include "passes/rewriter.h"

#include "support/error.h"

namespace ws {

Rewriter::Rewriter(const Graph& from) : from_(from), new_value_(static_cast<size_t>(from.num_values())) {
  to_.name = from.name;
  for (const GraphInput& input : from.inputs()) replace(input.value, to_.add_input(input.name, from.type_of(input.value)));
}

Value Rewriter::map(Value old) const {
  const Value v = new_value_[static_cast<size_t>(old.id)];
  WS_ASSERT(v, "%{} of graph {} was dropped and is used", old.id, from_.name);
  return v;
}

std::vector<Value> Rewriter::map(const std::vector<Value>& old) const {
  std::vector<Value> mapped;
  mapped.reserve(old.size());
  for (Value v : old) mapped.push_back(map(v));
  return mapped;
}

void Rewriter::replace(Value old, Value by) {
  WS_ASSERT(from_.type_of(old) == to_.type_of(by), "%{} of graph {} is {}, its replacement {}", old.id, from_.name,
            from_.type_of(old).str(), to_.type_of(by).str());
  new_value_[static_cast<size_t>(old.id)] = by;
}

void Rewriter::copy(const Node& node) {
  const std::vector<Value> results = to_.add_node(*node.op, map(node.inputs), node.attrs, node.path, node.checkpoint);
  for (size_t i = 0; i < results.size(); ++i) replace(node.results[i], results[i]);
}

Graph Rewriter::finish() {
  for (const GraphOutput& output : from_.outputs()) to_.add_output(map(output.value), output.name, output.donates_input);
  return std::move(to_);
}

}  // namespace ws
