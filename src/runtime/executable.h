// Executable: a graph made ready to run on the process's backend: schedule, memory plan, machine code, arena.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "memory/plan.h"
#include "memory/recompute.h"
#include "schedule/program.h"

namespace ws {

struct ExecutableOptions {
  bool fuse = true;
  int num_threads = 1;
  std::vector<InputLayout> input_layouts;  // empty: all inputs dense
  int64_t memory_budget_bytes = 0;         // of arguments, results and temporaries together; 0: none
  int num_derived = 0;                     // the last inputs are derived ones (passes/derive_state.h)
  bool share_arena = false;                // the loop: one arena a thread for all its ops, as large as the largest needs
};

/// A graph's kernels and their memory, before any machine code.
struct PlannedProgram {
  std::shared_ptr<Program> program;
  MemoryPlan plan;
  Recomputation recomputation;
  /// State, arguments, results and temporaries, per-thread scratch left out.
  int64_t peak_bytes() const { return plan.fixed_bytes() + plan.arena_bytes; }
};

class Executable {
 public:
  /// Schedule and memory alone: what compile() would run, priced. An Error for a budget that cannot be met names the least possible.
  static PlannedProgram plan(const Graph& graph, const ExecutableOptions& options);
  /// `graph` has been through the passes. Throws ws::Error where the machine lacks memory or an instruction set.
  static std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableOptions& options);
  ~Executable();

  /// `inputs` by graph input (base of the storage; the layout's offset is added here), `outputs` by graph output, nullptr where
  /// donated. Allocates nothing (the arena is allocated at the first run). Throws RuntimeError for a check that fired: then no
  /// donated input has been written.
  void run(void* const* inputs, void* const* outputs);
  /// The same on one kernel after the other, calling observe(call, nanoseconds) after each.
  void run_observed(void* const* inputs, void* const* outputs, const std::function<void(int, double)>& observe);

  const Graph& graph() const { return graph_; }
  const Program& program() const { return *program_; }
  const MemoryPlan& plan() const { return plan_; }
  const Recomputation& recomputation() const { return recomputation_; }
  int64_t scratch_bytes() const { return device_->scratch_bytes(); }
  /// Arena plus per-thread scratch, as allocated.
  int64_t temporary_bytes() const;
  int num_threads() const { return options_.num_threads; }
  const ExecutableOptions& options() const { return options_; }

 private:
  Executable() = default;
  void ensure_arena();
  StepStatus observe_step(void* const* inputs, void* const* outputs, const std::function<void(int, double)>& observe);
  void run_checked(void* const* inputs, void* const* outputs);
  [[noreturn]] void throw_check(const StepStatus& status) const;
  Graph graph_;
  ExecutableOptions options_;
  std::shared_ptr<const Program> program_;
  MemoryPlan plan_;
  Recomputation recomputation_;
  std::unique_ptr<DeviceProgram> device_;
  Workers* workers_ = nullptr;
  void* arena_ = nullptr;
  bool checked_ = false;  // a debug flag asks for a look at every kernel
};

}  // namespace ws
