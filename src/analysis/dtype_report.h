// Makes a DTypeReport: ops are counted in the graph after the passes, leaks are looked for in the trace, where the forward pass and
// what the compute-dtype policy did are still known.
#pragma once
#include <span>

#include "ir/graph.h"
#include "wholestep/dtype_report.h"

namespace ws {

std::vector<DTypeReport::Op> count_dtypes(const Graph& graph);

struct TracedDTypes {
  int num_forward_nodes = 0;      ///< nodes before the backward pass
  std::span<const int> promoted;  ///< nodes in which bf16 met f32, ascending
  std::span<const int> rounded;   ///< casts to bf16 that a product made of its operand, ascending
};

/// Three kinds, all of values that come from bf16 (widened by a cast, or the f32 result of a bf16 product) and lead to bf16 again:
/// elementwise ops in which bf16 met f32; products that compute in f32; f32 values that reach a product, which rounds them there.
std::vector<DTypeReport::Leak> find_dtype_leaks(const Graph& trace, const TracedDTypes& what);

}  // namespace ws
