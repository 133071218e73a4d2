// fill_buckets: puts gradients into buckets that travel between ranks while the backward pass goes on. Takes a partitioned graph;
// assumes that all ranks have the same all-reduces in the same order. Values are unchanged: only `bucket` marks are written.
#pragma once
#include "ir/graph.h"

namespace ws {

/// An all-reduce goes into a bucket where nothing but new state waits for it: sums of f32 that lead to a donated output, to no other
/// all-reduce, and are not themselves written over state. In the order of the graph; a bucket is full from
/// `bucket_bytes` on, and where a check needs it.
Graph fill_buckets(const Graph& graph, int64_t bucket_bytes);

}  // namespace ws
