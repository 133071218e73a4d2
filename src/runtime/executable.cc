#include "runtime/executable.h"

#include <cmath>
#include <new>
#include <utility>

#include "runtime/checked_run.h"
#include "runtime/thread_pool.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/float_mode.h"
#include "support/log.h"
#include "support/trace.h"

namespace ws {
namespace {

/// GEMM panels and the like: one more temporary per call, alive for that call alone.
void add_workspaces(Program& program, const Backend& backend, int num_threads) {
  for (KernelCall& call : program.calls) {
    int64_t bytes = 0;
    int* workspace = nullptr;
    if (auto* gemm = std::get_if<GemmCall>(&call.what)) {
      bytes = backend.workspace_bytes(*gemm, num_threads);
      workspace = &gemm->workspace;
    } else if (auto* library = std::get_if<LibraryCall>(&call.what)) {
      bytes = backend.workspace_bytes(*library, program, num_threads);
      workspace = &library->workspace;
    }
    if (bytes <= 0) continue;
    ProgramBuffer b;
    b.dtype = DType::f32;
    b.num_elements = (bytes + 3) / 4;
    b.name = "workspace";
    program.buffers.push_back(std::move(b));
    *workspace = static_cast<int>(program.buffers.size()) - 1;
    call.writes.push_back(*workspace);
  }
}

std::string exact_bytes(int64_t bytes) { return fmt::format("{} bytes ({})", bytes, bytes_text(static_cast<double>(bytes))); }

/// checkpoint() and the budget.
void recompute_within_budget(PlannedProgram& planned, const Graph& graph, const ExecutableOptions& options) {
  int64_t arena_budget = -1, fixed = 0;
  if (options.memory_budget_bytes > 0) {
    const MemoryPlan without = plan_memory(*planned.program);
    fixed = without.fixed_bytes();
    arena_budget = std::max<int64_t>(options.memory_budget_bytes - fixed, 0);
  }
  planned.recomputation = recompute(*planned.program, graph, arena_budget, options.num_threads);
  if (const int64_t least = planned.recomputation.least_arena_bytes; least > 0)
    throw MemoryError(
        fmt::format(
            "{}: a memory budget of {} cannot be met: the least possible is {} ({} of it arguments, state and results); use a "
            "smaller batch, or give it that much",
            graph.name, bytes_text(static_cast<double>(options.memory_budget_bytes)), exact_bytes(fixed + least),
            bytes_text(static_cast<double>(fixed))),
        fixed + least, options.memory_budget_bytes, 0);
}

/// DUMP, EXPLAIN=fusion. One-op programs of the loop are left out of explanations: there is nothing to explain.
void describe(const Executable& e) {
  if (!flags().dump.empty()) {
    dump(e.graph().name + ".program.txt", print(e.program()));
    dump(e.graph().name + ".plan.txt", print(e.program(), e.plan()));
  }
  WS_LOG(4, "{}{}", print(e.program()), print(e.program(), e.plan()));
  if (flags().explain != "fusion" || e.program().calls.size() < 2) return;
  for (const KernelCall& call : e.program().calls)
    note("{}{}: {}", call.name, call.path.empty() ? "" : " @" + call.path, call.reason);
}

}  // namespace

std::unique_ptr<Executable> Executable::compile(const Graph& graph, const ExecutableOptions& options) {
  TraceSpan span("compile " + graph.name, "compile");
  std::unique_ptr<Executable> e(new Executable());
  e->graph_ = graph;
  e->options_ = options;
  PlannedProgram planned = Executable::plan(graph, options);
  auto program = planned.program;
  e->plan_ = std::move(planned.plan);
  e->recomputation_ = planned.recomputation;
  e->program_ = program;
  e->checked_ = CheckedRun::wanted();
  describe(*e);
  e->device_ = cpu_backend().load(program, e->plan_, options.num_threads);
  return e;
}

PlannedProgram Executable::plan(const Graph& graph, const ExecutableOptions& options) {
  Backend& backend = cpu_backend();
  ScheduleOptions how;
  how.fuse = options.fuse && !flags().disabled("fuse");
  how.repeat_late = !flags().disabled("repeat_late");
  how.write_parts = !flags().disabled("write_parts");
  how.input_layouts = options.input_layouts;
  PlannedProgram planned;
  planned.program = std::make_shared<Program>(schedule(graph, how));
  Program& program = *planned.program;
  for (auto input = program.input_buffers.end() - options.num_derived; input != program.input_buffers.end(); ++input)
    program.buffers[static_cast<size_t>(*input)].derived = true;
  add_workspaces(program, backend, options.num_threads);
  recompute_within_budget(planned, graph, options);
  if (flags().poison) add_guards(program);
  planned.plan = plan_memory(program);
  if (flags().verify >= 1) verify_plan(program, planned.plan);
  return planned;
}

namespace {

void* arena_of(int64_t bytes) {
  try {
    return cpu_backend().allocate(bytes);
  } catch (const std::bad_alloc&) {
    fail_at_run(
        "out of memory: the {} of a step's temporaries could not be had; use a smaller batch or model, or a memory budget",
        bytes_text(static_cast<double>(bytes)));
  }
}

/// The loop's ops run one after the other, so those of a thread can share their temporaries.
struct SharedArena {
  void* memory = nullptr;
  int64_t bytes = 0;
  ~SharedArena() { cpu_backend().release(memory, bytes); }
  void* at_least(int64_t wanted) {
    if (wanted > bytes) {
      cpu_backend().release(std::exchange(memory, nullptr), std::exchange(bytes, 0));
      memory = arena_of(wanted);
      bytes = wanted;
    }
    return memory;
  }
};
thread_local SharedArena shared_arena;

}  // namespace

Executable::~Executable() {
  if (!options_.share_arena) cpu_backend().release(arena_, plan_.arena_bytes);
}

void Executable::ensure_arena() {
  if (options_.share_arena) {
    arena_ = plan_.arena_bytes > 0 ? shared_arena.at_least(plan_.arena_bytes) : nullptr;
    return;
  }
  if (arena_ == nullptr && plan_.arena_bytes > 0) arena_ = arena_of(plan_.arena_bytes);
}

int64_t Executable::temporary_bytes() const { return plan_.arena_bytes + device_->scratch_bytes(); }

void Executable::run(void* const* inputs, void* const* outputs) {
  if (checked_) [[unlikely]]
    return run_checked(inputs, outputs);
  ensure_arena();
  StepStatus status;
  {
    FlushDenormals mode;
    if (options_.num_threads <= 1) {
      SerialWorkers alone;
      status = device_->run(inputs, outputs, arena_, alone);
    } else {
      WorkersLease lease(options_.num_threads);
      status = device_->run(inputs, outputs, arena_, lease.workers());
    }
  }
  if (status) throw_check(status);
}

StepStatus Executable::observe_step(void* const* inputs, void* const* outputs, const std::function<void(int, double)>& observe) {
  ensure_arena();
  auto pass_on = [](void* context, int call, int64_t ns) {
    (*static_cast<const std::function<void(int, double)>*>(context))(call, static_cast<double>(ns));
  };
  FlushDenormals mode;
  WorkersLease lease(options_.num_threads);
  return device_->run_observed(inputs, outputs, arena_, lease.workers(), pass_on,
                               const_cast<std::function<void(int, double)>*>(&observe));
}

void Executable::run_observed(void* const* inputs, void* const* outputs, const std::function<void(int, double)>& observe) {
  const StepStatus status = observe_step(inputs, outputs, [&](int call, double ns) {
    if (ns >= 0) observe(call, ns);
  });
  if (status) throw_check(status);
}

void Executable::run_checked(void* const* inputs, void* const* outputs) {
  TraceSpan span(graph_.name, "step");
  ensure_arena();
  CheckedRun check(*this, inputs, outputs, static_cast<char*>(arena_));
  const StepStatus status = observe_step(inputs, outputs, [&](int call, double ns) {
    if (ns < 0)
      check.before(call);
    else
      check.after(call, ns);
  });
  if (status) throw_check(status);
}

void Executable::throw_check(const StepStatus& status) const {
  const auto& call = std::get<LibraryCall>(program_->calls[static_cast<size_t>(status.call)].what);
  const std::string& what = call.attrs.text("what");
  const std::string& path = program_->calls[static_cast<size_t>(status.call)].path;
  const std::string where = path.empty() ? "" : fmt::format(" (in {})", path);
  if (call.op->name == "check_range")
    fail_at_run("{} {:.0f} is outside [{}, {}){}; nothing was updated", what, status.value, call.attrs.integer("low"),
                call.attrs.integer("high"), where);
  const double shown = std::isnan(status.value) ? NAN : status.value;  // whatever its sign
  throw NonFiniteError(fmt::format("the {} is {}{}; nothing was updated", what, shown, where));
}

}  // namespace ws
