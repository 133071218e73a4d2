// Rewrite rules: `before -> after`, each with a name (its switch and its hit counter). Each is exact in every bit, also for NaN, -0 and
// denormals, so none drops arithmetic: x+0 turns -0 into +0, max(x,x) may flush a denormal, and no element is
// rounded more, less or at another step than before (a cast may pass what only moves elements).
#pragma once
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace ws {

/// A node about to be made, and the graph it would join. Rules look backwards only, through producers.
struct Match {
  Builder& builder;  // what a rule makes is simplified in turn
  const Graph& graph;
  const OpDef& op;
  std::span<const Value> inputs;
  const Attrs& attrs;

  Value x() const { return inputs[0]; }
  const Shape& shape_of(Value v) const { return graph.type_of(v).shape; }
  /// The node that makes v if its op has this name, else nullptr.
  const Node* made_by(Value v, std::string_view op_name) const;
  Type result_type() const;
};

struct Rule {
  std::string_view name, before, after;
  std::string_view op;           // of the node looked at
  Value (*apply)(const Match&);  // the replacement, or Value{} where the rule does not apply
};

std::span<const Rule> all_rules();

Value add_neighbouring_pads(const Match& m);  // rules_pad.cc

}  // namespace ws
