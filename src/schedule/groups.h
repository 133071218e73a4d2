// Groups: which nodes become one kernel. Decided greedily in program order; every decision keeps its reason.
#pragma once
#include <string>
#include <vector>

#include "schedule/views.h"

namespace ws {

/// How a reduction node splits its input: [outer, reduced, inner].
struct ReduceShape {
  int64_t outer = 1, reduced = 1, inner = 1;
  bool is_max = false;
  bool along_row() const { return inner == 1; }                                    // the contract's lane order
  bool whole() const { return inner == 1 && outer == 1 && reduced > kFlatBlock; }  // two phases by flat blocks
  int64_t blocks() const { return along_row() ? (reduced + kFlatBlock - 1) / kFlatBlock : (reduced + kRowBlock - 1) / kRowBlock; }
  bool two_phase() const { return whole() || (!along_row() && blocks() > 1); }
};
ReduceShape reduce_shape(const Graph& graph, const Node& node);

struct Group {
  enum class Kind : uint8_t { kLoop, kGemm, kLibrary };
  Kind kind = Kind::kLoop;
  std::vector<int> nodes;   // ascending
  int opener = -1;          // the node it was opened for: of a kGemm group its matmul
  int64_t elements = 0;     // element-level values have so many
  int64_t inner = 0;        // length of the inner axis where fixed (row or column reductions, gemm columns), 0: free
  int64_t column_rows = 0;  // rows of each column reduction, 0: none
  bool has_row_reduce = false, has_flat_reduce = false;
  bool closed = false;  // takes no further nodes
  std::vector<int64_t>
      cuts;  // element counts of trailing dims that the loop nest must be able to tell apart; ascending, each divides the next
  std::string reason;  // why this group was opened rather than joined
};

/// A reduction in two phases is finished by a fold: its second phase belongs to the group of `node` in `fold_group`.
struct Groups {
  std::vector<Group> list;
  std::vector<int> of_node;       // group of each node, -1: views and constants, which need none
  std::vector<int> fold_of_node;  // group of the second phase of a two-phase reduction, else -1
  bool is_fold_in(int n, int g) const { return fold_of_node[static_cast<size_t>(n)] == g; }
  /// Group in which v's base value becomes available to others, -1: graph inputs and constants.
  int available_in(const Graph& graph, const ViewMap& views, Value v) const;
};

Groups make_groups(const Graph& graph, const ViewMap& views, bool fuse);

/// True for a constant, or a broadcast or reshape of one.
bool is_scalar_constant(const Graph& graph, const ViewMap& views, Value v);

/// Cut points of a shape, scaled by `scale`, merged into `cuts`; false (and `cuts` untouched) where they do not nest.
bool merge_cuts(std::vector<int64_t>& cuts, const Shape& shape, int64_t scale);

}  // namespace ws
