// Programs of the process, by structure: making the same step again compiles nothing.
#pragma once
#include <atomic>
#include <memory>

#include "passes/derive_state.h"
#include "runtime/executable.h"

namespace ws {

/// An Executable that several Compiled objects may hold; one runs it at a time.
struct SharedProgram {
  std::unique_ptr<Executable> executable;
  std::vector<DerivedInput> derived;  // its last inputs, which whoever runs it holds
  std::atomic<bool> busy{false};
};

/// The program of a traced graph: passes, schedule, plan, machine code. Keyed by the graph's text and the options, never by
/// addresses. Thread-safe.
/// `kept`: see derive_state(). `optimize` false: no passes, and every op a kernel of its own.
std::shared_ptr<SharedProgram> find_or_compile(const Graph& traced, const std::vector<bool>& kept, int num_threads,
                                               int64_t memory_budget_bytes = 0, bool optimize = true);
/// The same without machine code: what it would need.
PlannedProgram plan_traced(const Graph& traced, const std::vector<bool>& kept, int num_threads, int64_t memory_budget_bytes);
/// A second program like it, for a thread that would have to wait.
std::shared_ptr<SharedProgram> clone(const SharedProgram& program);
/// Drops programs that nobody holds and whose arenas are large.
void drop_idle_programs();
/// Programs compiled since the start of the process.
int64_t num_programs_compiled();

}  // namespace ws
