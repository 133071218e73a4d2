// A Compiled object's programs, one for each signature, and how a call feeds them.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "passes/partition.h"
#include "tensor/derived_values.h"
#include "tensor/precision.h"
#include "tensor/program_cache.h"
#include "tensor/trace_function.h"

namespace ws {

/// One compiled program and the plan of a call: where its inputs come from and its outputs go. A call allocates nothing
/// where the results of the last one can be written over.
struct CompiledEntry {
  enum class Owner : uint8_t { kDonated, kUpdate, kResult };
  struct Output {
    Owner owner = Owner::kResult;
    size_t index = 0;  // of the update or the result
    Type type;
  };

  std::vector<Type> arguments;
  DType compute_dtype = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::highest;
  std::vector<bool> trainable;  // of the state, when traced
  uint64_t trainable_seen = 0;
  std::vector<ModeRead> modes;  // of the trace
  uint64_t modes_seen = 0;
  std::shared_ptr<SharedProgram> program;
  std::vector<Tracer::Source> sources;
  std::vector<TracedFunction::Update> updates;
  std::vector<Origin> results;
  std::vector<DTypeReport::Leak> leaks;
  std::vector<bool> donated;                           // by graph input
  std::vector<Output> outputs;                         // by graph output
  bool keeps_inputs = false;                           // some result or update is an input as it was
  std::string trace_text;                              // for CHECK_TRACE
  std::vector<std::shared_ptr<DerivedValue>> derived;  // by derived input of the program

  std::vector<void*> in, out;
  std::vector<std::shared_ptr<TensorImpl>> held;   // dense copies of strided arguments
  std::vector<std::shared_ptr<TensorImpl>> fresh;  // by graph output: new values of state that is not donated
  std::vector<Tensor> before;                      // by graph input, where keeps_inputs

  CompiledEntry(TracedFunction traced, std::shared_ptr<SharedProgram> its_program, DerivedValues& values);
  bool accepts(std::span<const Tensor> inputs, DType dtype, MatmulPrecision products) const;
  bool modes_hold() const;
  void bind_inputs(std::span<const Tensor> inputs);
  void bind_outputs(std::vector<Tensor>& results_out);
  /// Slots and results take the new values.
  void finish(std::vector<Tensor>& results_out);
};

struct Compiled::Impl {
  Function function;
  std::vector<Variable> state;  // each once
  JitOptions options;
  DerivedValues derived;  // of all entries: two batch sizes share them
  std::vector<std::unique_ptr<CompiledEntry>> entries;
  CompiledEntry* last = nullptr;
  double compile_seconds = 0;

  std::set<const Variable::Slot*> sharded;  // of the state

  DType compute_dtype() const { return options.compute_dtype.value_or(ws::compute_dtype()); }
  MatmulPrecision matmul_precision() const { return options.matmul_precision.value_or(ws::matmul_precision()); }
  CompiledEntry& entry_for(std::span<const Tensor> inputs);
  CompiledEntry& compile(std::span<const Tensor> inputs);
  std::vector<bool> trainable_flags() const;
  void announce(std::span<const Tensor> inputs) const;
  void check_trace(CompiledEntry& entry);
  bool shards(const Variable::Slot& slot) const;
  /// State of this entry's sources is whole or in part as its program takes it. Where something must be put together, every rank is here.
  void settle_state(const CompiledEntry& entry) const;
  PartitionOptions split_of(const TracedFunction& traced) const;
  /// What one rank computes of it; the graph itself on one process.
  Graph rank_part(const TracedFunction& traced) const;
  const Executable& last_executable() const;
  std::string summary(const Executable& executable) const;
  int threads() const;
  /// The function on arguments of these types, under this object's precisions.
  TracedFunction trace(std::span<const Type> arguments) const;
  /// What the step needs for arguments of these types, traced and planned anew; an Error where the function refuses them.
  PlannedProgram plan_for(std::span<const Type> arguments, int64_t budget_bytes) const;
  /// The types with another leading dim in the place of the first argument's.
  static std::vector<Type> with_batch(std::vector<Type> arguments, int64_t batch);
  int64_t largest_batch(const std::vector<Type>& arguments, int64_t bytes) const;
  /// MemoryError, naming the batch that would fit.
  void refuse_if_too_large(const Executable& executable, const std::vector<Type>& arguments) const;
  /// Runs `execute(executable, in, out)` between binding and finishing.
  template <class Execute>
  void call(std::span<const Tensor> inputs, std::vector<Tensor>& outputs, Execute&& execute);
};

template <class Execute>
void Compiled::Impl::call(std::span<const Tensor> inputs, std::vector<Tensor>& outputs, Execute&& execute) {
  CompiledEntry& entry = entry_for(inputs);
  struct Release {  // also where a check fires
    SharedProgram* program;
    ~Release() { program->busy.store(false, std::memory_order_release); }
  };
  if (entry.program->busy.exchange(true, std::memory_order_acquire)) {
    entry.program = clone(*entry.program);  // another thread runs it now
    entry.program->busy.store(true, std::memory_order_relaxed);
  }
  Release release{entry.program.get()};
  settle_state(entry);
  entry.bind_inputs(inputs);
  entry.bind_outputs(outputs);
  execute(*entry.program->executable, entry.in.data(), entry.out.data());
  entry.finish(outputs);
}

}  // namespace ws
