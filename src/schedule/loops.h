// Builds the loop nest of one group: structure (LoopKernel) and sizes (LoopCall).
#pragma once
#include <functional>
#include <map>
#include <set>

#include "schedule/concatenations.h"
#include "schedule/materialize.h"

namespace ws {

struct LoopContext {
  const Graph& graph;
  const ViewMap& views;
  const Groups& groups;
  const Materialized& materialized;
  std::function<int(Value base)> buffer_of;                           // buffer of a stored value
  std::function<int(Value base, int group)> buffer_read_by, copy_of;  // where a group finds it, and where it stores it again
  std::function<int(int node)> partial_of;                            // buffer of a two-phase reduction's first phase
  /// Copies the window into a dense temporary and returns that; for windows that the loop nest cannot walk.
  std::function<int(const View& window, DType dtype)> copy_dense;
  const std::map<int, PartWindow>& parts;                             // stored values that are written into a concatenation
  std::map<std::string, std::shared_ptr<const LoopKernel>>& kernels;  // by key: calls of equal structure share one
};

/// The loop nest of a kLoop group, or the store hole of a kGemm group (its matmul's result is the tile, buffer -1).
/// Empty kernel where the group has nothing to compute.
LoopCall build_loop(const LoopContext& context, int group);

/// A loop that writes `value` to every element of the dense buffer.
LoopCall build_fill(int buffer, DType dtype, int64_t count, double value);

/// The bits of a constant as a kernel takes them (bf16 computes as f32).
int64_t scalar_bits(DType dtype, double value);

/// (store, load) pairs of a call whose windows are the same elements in the same order.
std::vector<std::array<int, 2>> in_place_pairs(const LoopCall& call);

}  // namespace ws
