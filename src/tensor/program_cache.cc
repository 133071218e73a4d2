#include "tensor/program_cache.h"

#include <mutex>
#include <unordered_map>

#include "passes/pipeline.h"
#include "runtime/checked_run.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "tensor/storage.h"

namespace ws {
namespace {

constexpr int64_t kIdleBytes = 64 << 20, kTrimAboveBytes = 64 << 20;

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<SharedProgram>> programs;
  std::atomic<int64_t> compiled{0};
};

// Never destroyed: Compiled objects in static storage may die after it would.
Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

PipelineOptions pipeline_options() {
  const Flags& f = flags();
  PipelineOptions options;
  options.disabled = {f.disable.begin(), f.disable.end()};
  options.dump_directory = f.dump;
  options.time = f.time_passes;
  options.verify = f.verify;
  return options;
}

ExecutableOptions executable_options(int num_threads, int64_t memory_budget_bytes) {
  ExecutableOptions options;
  options.num_threads = num_threads;
  options.fuse = !flags().disabled("fuse");
  options.memory_budget_bytes = memory_budget_bytes;
  return options;
}

/// A traced graph after passes and derive_state(), with what that asks of its options. A budget comes first: where derived values
/// would have kernels run twice, or do not fit, there are none.
struct Prepared {
  DerivedState state;
  ExecutableOptions options;
};
Prepared prepare(const Graph& traced, const std::vector<bool>& kept, const ExecutableOptions& options) {
  Graph graph = run_pipeline(traced, pipeline_options()).graph;
  if (flags().disabled("derived")) return {{std::move(graph), {}}, options};
  DerivedState state = derive_state(graph, kept);
  ExecutableOptions with = options;
  with.num_derived = static_cast<int>(state.derived.size());
  if (with.num_derived == 0) return {std::move(state), options};
  try {
    if (options.memory_budget_bytes == 0 || !Executable::plan(state.graph, with).recomputation.limited)
      return {std::move(state), with};
  } catch (const Error&) {
  }
  return {{std::move(graph), {}}, options};
}

std::shared_ptr<SharedProgram> compile(const Graph& graph, std::vector<DerivedInput> derived, const ExecutableOptions& options) {
  auto program = std::make_shared<SharedProgram>();
  program->executable = Executable::compile(graph, options);
  program->derived = std::move(derived);
  // The loop's memory (and that of smaller programs) should not add to a large arena.
  if (program->executable->temporary_bytes() > kTrimAboveBytes) {
    drop_idle_programs();
    release_cached_memory();
  }
  ++cache().compiled;
  return program;
}

}  // namespace

std::shared_ptr<SharedProgram> find_or_compile(const Graph& traced, const std::vector<bool>& kept, int num_threads,
                                               int64_t memory_budget_bytes, bool optimize) {
  ExecutableOptions options = executable_options(num_threads, memory_budget_bytes);
  options.fuse = options.fuse && optimize;
  std::string key =
      fmt::format("threads {} budget {} optimize {} disabled {} poison {} checked {} kept {}\n", num_threads, memory_budget_bytes,
                  optimize, fmt::join(flags().disable, ","), flags().poison, CheckedRun::wanted(), fmt::join(kept, "")) +
      print(traced);
  Cache& c = cache();
  {
    std::lock_guard lock(c.mutex);
    if (auto found = c.programs.find(key); found != c.programs.end()) return found->second;
  }
  // Unlocked: two threads compile at once.
  Prepared p = optimize ? prepare(traced, kept, options) : Prepared{{traced, {}}, options};
  auto program = compile(p.state.graph, std::move(p.state.derived), p.options);
  std::lock_guard lock(c.mutex);
  return c.programs.try_emplace(std::move(key), std::move(program)).first->second;
}

PlannedProgram plan_traced(const Graph& traced, const std::vector<bool>& kept, int num_threads, int64_t memory_budget_bytes) {
  const Prepared p = prepare(traced, kept, executable_options(num_threads, memory_budget_bytes));
  return Executable::plan(p.state.graph, p.options);
}

std::shared_ptr<SharedProgram> clone(const SharedProgram& program) {
  return compile(program.executable->graph(), program.derived, program.executable->options());
}

void drop_idle_programs() {
  Cache& c = cache();
  std::vector<std::shared_ptr<SharedProgram>> dropped;  // destroyed after the lock is released
  std::lock_guard lock(c.mutex);
  int64_t kept = 0;
  for (auto at = c.programs.begin(); at != c.programs.end();) {
    int64_t num_bytes = at->second->executable->temporary_bytes();
    bool idle = at->second.use_count() == 1;
    if (idle && kept + num_bytes > kIdleBytes) {
      dropped.push_back(std::move(at->second));
      at = c.programs.erase(at);
      continue;
    }
    if (idle) kept += num_bytes;
    ++at;
  }
}

int64_t num_programs_compiled() { return cache().compiled; }

}  // namespace ws
