// A graph seen as a tape, and small helpers for tests of gradients.
#pragma once
#include "autodiff/autodiff.h"
#include "ir/graph.h"
#include "support/error.h"

namespace ws::test {

inline std::vector<TapeEntry> tape_of(const Graph& graph) {
  std::vector<TapeEntry> tape;
  for (const Node& n : graph.nodes()) tape.push_back({n.op, n.attrs, n.inputs, n.results});
  return tape;
}

inline RefArray array(const Shape& shape, std::vector<double> data, DType dtype = DType::f32) {
  return {{dtype, shape}, std::move(data)};
}

/// Sum of all elements: the loss of many tests.
inline Value sum_all(Builder& b, Value x) {
  std::vector<int64_t> axes;
  for (int i = 0; i < b.type_of(x).shape.rank(); ++i) axes.push_back(i);
  return b.reduce_sum(x, axes, false);
}

}  // namespace ws::test
