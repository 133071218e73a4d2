// Rewriter: how a pass builds its result. Takes the old graph, starts a new one with the same name and inputs, and maps old
// values to new ones; what is not mapped otherwise is copied. Outputs, their names and donations carry over.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace ws {

class Rewriter {
 public:
  explicit Rewriter(const Graph& from);
  Graph& graph() { return to_; }
  Value map(Value old) const;  // InternalError where the pass dropped a value that is still used
  std::vector<Value> map(const std::vector<Value>& old) const;
  void replace(Value old, Value by);  // InternalError where the type changes
  /// Appends the node on mapped inputs and maps its results.
  void copy(const Node& node);
  /// Adds the outputs and hands the new graph over.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<Value> new_value_;  // by old id
};

}  // namespace ws
