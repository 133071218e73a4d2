// Memory plan: every temporary of a Program gets an offset in one arena, from lifetimes alone.
#pragma once
#include <vector>

#include "schedule/program.h"

namespace ws {

struct MemoryPlan {
  int64_t arena_bytes = 0;       // exactly what is allocated
  std::vector<int64_t> offsets;  // by buffer; -1 where the buffer is an input, or lives elsewhere
  std::vector<int> shares_with;  // by buffer: the buffer whose memory was taken over in place, or -1
  int64_t argument_bytes = 0, output_bytes = 0, donated_bytes = 0, peak_bytes = 0;
  int64_t derived_bytes = 0;      // inputs that the step keeps for itself; in none of the three before it, but in the peak
  int64_t lower_bound_bytes = 0;  // the largest sum of live temporaries: no plan can be below it
  /// All that the step needs but its arena.
  int64_t fixed_bytes() const { return argument_bytes + output_bytes - donated_bytes + derived_bytes; }
};

/// Offsets are 64-byte aligned. Outputs that are not donated are temporaries too (copied out or handed over by the runtime), unless
/// `outputs_outside`, where the runtime binds memory of the caller to them.
MemoryPlan plan_memory(const Program& program, bool outputs_outside = true);
/// What the buffer takes of the arena.
int64_t aligned_bytes(const ProgramBuffer& buffer);
/// Throws InternalError if two buffers that live at once overlap. Run under VERIFY >= 1.
void verify_plan(const Program& program, const MemoryPlan& plan);
/// One line a buffer: offset, bytes, first and last call, name.
std::string print(const Program& program, const MemoryPlan& plan);

}  // namespace ws
