// partition: from a step on a whole batch to this rank's part of it, with what the ranks exchange. The graph is written as if one
// process held everything, so its means, statistics, norms and random bits are those of the whole batch by construction; after this
// pass each rank computes its rows and the collectives put them together.
//
// A value is whole (the same on every rank), split (each rank holds its rows along one axis) or partial (each rank holds one
// summand). Values follow their inputs: elementwise ops keep a split, a sum or product over the split axis makes a partial one,
// and a partial value becomes whole by an all-reduce where it is made. What an op cannot take split is gathered first.
#pragma once
#include <vector>

#include "ir/graph.h"

namespace ws {

struct PartitionOptions {
  int rank = 0, num_ranks = 1;
  /// By graph input: its first dim is a batch of which this rank reads its rows. The input itself stays whole.
  std::vector<bool> batches;
  /// By graph input, or empty: state of which this rank has its rows alone; and by graph output, or empty: of which it returns them.
  std::vector<bool> sharded_inputs = {}, sharded_outputs = {};
};

/// Outputs are whole, but for sharded ones. The collectives are numbered in the order in which every rank meets them.
Graph partition(const Graph& graph, const PartitionOptions& options);

}  // namespace ws
