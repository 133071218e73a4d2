// LoopPlan: what a LoopKernel's code looks like before any instruction set is known: the level at which each value is
// computed, the passes over a row, and the values a row keeps in scratch between passes. Takes a kernel, knows no LLVM.
#pragma once
#include <vector>

#include "schedule/loop_kernel.h"

namespace ws::cpu {

/// How often a value is computed: once a call, once a row (outer index or unit), or for each vector of elements.
enum class Level : uint8_t { kCall, kRow, kElement };

/// One sweep over a row's elements. Instructions are listed in body order.
struct LoopPass {
  std::vector<int> computes;    // element-level loads, folds and ops
  std::vector<int> reloads;     // element-level values read back from scratch
  std::vector<int> saves;       // element-level values written to scratch, a subset of `computes`
  std::vector<int> reductions;  // kReduceRow
  std::vector<int> stores;      // element-level kStore
  std::vector<int> columns;     // kReduceColumn
  int unroll = 1;               // vectors an iteration
  bool is_heavy = false;        // so much arithmetic that a mask in every iteration costs less than compiling the body twice
};

struct LoopPlan {
  std::vector<Level> level;  // of each instruction's value; of a store: of what it stores
  std::vector<int> depth;    // row reductions on the longest path to the value: it is known before pass `depth`
  std::vector<int> slot;     // scratch slot, -1: none
  std::vector<LoopPass> passes;
  std::vector<int> row_stores;
  int num_slots = 0;  // of one row
  /// Rows swept side by side: their sums are chains of their own, which hide each other's latency, and a column target is loaded and
  /// stored once for all of them. Rows that are left go one by one. A power of two.
  int rows = 1;
  /// The pass of rows swept one by one that asks for memory which other passes will touch; null: none.
  const LoopPass* prefetching_pass() const { return prefetching < 0 ? nullptr : &passes[static_cast<size_t>(prefetching)]; }
  int prefetching = -1;
  int64_t max_prefetched_elements = 0;  // of a row; longer ones gain nothing
};

/// Throws InternalError where the kernel breaks the contract of loop_kernel.h.
LoopPlan plan_loop(const LoopKernel& kernel);

}  // namespace ws::cpu
