#include "tensor/program_cache.h"

#include <mutex>
#include <unordered_map>

#include "passes/pipeline.h"
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

std::shared_ptr<SharedProgram> compile(const Graph& graph, const ExecutableOptions& options) {
  auto program = std::make_shared<SharedProgram>();
  program->executable = Executable::compile(graph, options);
  // The loop's memory (and that of smaller programs) should not add to a large arena.
  if (program->executable->temporary_bytes() > kTrimAboveBytes) {
    drop_idle_programs();
    release_cached_memory();
  }
  ++cache().compiled;
  return program;
}

}  // namespace

std::shared_ptr<SharedProgram> find_or_compile(const Graph& traced, int num_threads, int64_t memory_budget_bytes, bool optimize) {
  ExecutableOptions options = executable_options(num_threads, memory_budget_bytes);
  options.fuse = options.fuse && optimize;
  std::string key = fmt::format("threads {} budget {} optimize {} disabled {}\n", num_threads, memory_budget_bytes, optimize,
                                fmt::join(flags().disable, ",")) +
                    print(traced);
  Cache& c = cache();
  {
    std::lock_guard lock(c.mutex);
    if (auto found = c.programs.find(key); found != c.programs.end()) return found->second;
  }
  // Unlocked: two threads compile at once.
  auto program = compile(optimize ? run_pipeline(traced, pipeline_options()).graph : traced, options);
  std::lock_guard lock(c.mutex);
  return c.programs.try_emplace(std::move(key), std::move(program)).first->second;
}

PlannedProgram plan_traced(const Graph& traced, int num_threads, int64_t memory_budget_bytes) {
  return Executable::plan(run_pipeline(traced, pipeline_options()).graph, executable_options(num_threads, memory_budget_bytes));
}

std::shared_ptr<SharedProgram> clone(const SharedProgram& program) {
  return compile(program.executable->graph(), program.executable->options());
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
