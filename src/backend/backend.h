// The backend boundary: a Program and its memory plan in, something runnable out. runtime/ sees nothing else of a device.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "memory/plan.h"
#include "support/parallel.h"

namespace ws {

/// What stopped a step: 0 is success. Kernels never throw.
struct StepStatus {
  int call = -1;     // index of the check's KernelCall, -1: none
  double value = 0;  // the offending value
  explicit operator bool() const { return call >= 0; }
};

/// A Program bound to one device, ready to run any number of times.
class DeviceProgram {
 public:
  virtual ~DeviceProgram() = default;
  /// `inputs` by graph input, `outputs` by graph output (nullptr where donated), `arena` of plan.arena_bytes.
  /// Allocates nothing and throws nothing. Pointers may change from call to call; unchanged ones cost nothing.
  virtual StepStatus run(void* const* inputs, void* const* outputs, void* arena, Workers& workers) = 0;
  /// The same, calling `observe(call index, -1)` before and `observe(call index, nanoseconds)` after each kernel: profiles, VERIFY, NAN_CHECK,
  /// POISON, TRACE. What `observe` throws passes through.
  using Observe = void (*)(void* context, int call, int64_t ns);
  virtual StepStatus run_observed(void* const* inputs, void* const* outputs, void* arena, Workers& workers, Observe observe,
                                  void* context) = 0;
  /// Per-thread scratch held beside the arena, counted as temporaries.
  virtual int64_t scratch_bytes() const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu:avx512"
  virtual int64_t workspace_bytes(const GemmCall& call, int num_threads) const = 0;
  virtual int64_t workspace_bytes(const LibraryCall& call, const Program& program, int num_threads) const = 0;
  /// Generates code (in parallel, from the cache where possible) and resolves every address that is known.
  virtual std::unique_ptr<DeviceProgram> load(std::shared_ptr<const Program> program, const MemoryPlan& plan,
                                              int num_threads) = 0;
  /// Memory that `load`ed programs run on; 64-byte aligned, large blocks on huge pages where there are any. std::bad_alloc without.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory, int64_t bytes) = 0;
};

/// The process's backend, made at first use from the flags ISA, THREADS, CACHE. Error naming what the machine lacks.
Backend& cpu_backend();

}  // namespace ws
