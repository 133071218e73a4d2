// derive_state: values that a step makes of one parameter alone, in a narrower dtype (its bf16 copy for products), become inputs of
// the graph that outlive the step, "derived" ones: computed once, and from then on by whatever computes the parameter's new value, so
// that they are right again when the step ends. Where the step leaves the parameter as it is, so it leaves them.
//
// Not in the pipeline: who runs the graph has to hold the derived values and to make them anew after a write from outside. Bits do
// not change: each is made by the node that made it before, from the same value.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace ws {

/// Smaller parameters are cast in the time that keeping a copy would take.
constexpr int64_t kFewestDerivedElements = 1024;

struct DerivedInput {
  int of = -1;  // the graph input that it is made from
  const OpDef* op = nullptr;
  Attrs attrs;
};

struct DerivedState {
  Graph graph;                        // the derived inputs follow all others, in this order; so do their next values
  std::vector<DerivedInput> derived;  // empty: the graph is as it was
};

/// `kept` by graph input: it is state that changes only by this step's outputs that donate it, or in ways that the caller notices.
DerivedState derive_state(const Graph& graph, const std::vector<bool>& kept);

}  // namespace ws
