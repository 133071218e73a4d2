// Recomputation ("rematerialize"): whole kernels run again in the backward pass, so that their results need not be kept since the
// forward pass. Asked for by checkpoint() (marks on the graph's nodes) or by a budget of bytes. It works on the ordered program, after
// fusion, so that bytes are bytes of buffers; a repeated kernel is a copy of the first one, so bits are the same. Calls that check
// something, return something or write state are never repeated, nor are those that would read state already written over.
#pragma once
#include <cstdint>

#include "schedule/program.h"

namespace ws {

struct Recomputation {
  int64_t unlimited_arena_bytes = 0;  // what the program needs without any of it
  int64_t least_arena_bytes = 0;      // the least that was found, where the budget was too low; else 0
  bool limited = false;               // a budget made more kernels repeat than checkpoint() did
  int num_repeated = 0;
};

/// A rough time of each call on any machine of today, so that a plan depends on the program and the number of threads alone.
double nominal_seconds(const KernelCall& call, int num_threads);

/// Rewrites the program. `arena_budget_bytes` below 0: only what checkpoint() asks for. Where no plan fits the budget, the program
/// stays as it was and least_arena_bytes says what would. The peak is that of plan_memory(), not an estimate.
Recomputation recompute(Program& program, const Graph& graph, int64_t arena_budget_bytes, int num_threads);

}  // namespace ws
