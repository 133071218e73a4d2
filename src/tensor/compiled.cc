// Compiled: programs by signature, and the call.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "passes/fill_buckets.h"
#include "support/communicator.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "tensor/compiled_impl.h"
#include "tensor/context.h"
#include "tensor/overlap.h"
#include "wholestep/distributed.h"

namespace ws {
namespace {

std::vector<Variable> each_once(const std::vector<Variable>& variables) {
  std::vector<Variable> result;
  std::unordered_map<const Variable::Slot*, bool> seen;
  for (const Variable& v : variables) {
    if (!v.defined()) fail("jit: an undefined Variable is among the state");
    if (seen.emplace(v.slot(), true).second) result.push_back(v);
  }
  return result;
}

void check_inputs(std::span<const Tensor> inputs, const std::string& name) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) fail("{}: input {} is an undefined Tensor", name, i);
    if (inputs[i].impl()->traced()) Tracer::check_usable(*inputs[i].impl(), name);
  }
}

// One tensor, or two of equal bytes (made anew by each trace).
bool same_capture(const std::shared_ptr<TensorImpl>& a, const std::shared_ptr<TensorImpl>& b) {
  if (a == b || !a || !b) return a == b;
  auto x = dense_copy_if_needed(a), y = dense_copy_if_needed(b);
  return x->num_bytes() == y->num_bytes() && std::memcmp(x->pointer(), y->pointer(), static_cast<size_t>(x->num_bytes())) == 0;
}

std::vector<Type> types_of(std::span<const Tensor> inputs) {
  std::vector<Type> types;
  for (const Tensor& t : inputs) types.push_back(t.impl()->type());
  return types;
}

/// Samples of a batch (inputs that have their first dim in common) which differs from the one before in their number alone, else 0.
int64_t batch_of_another_size(std::span<const Type> before, std::span<const Tensor> inputs) {
  int64_t samples = 0;
  if (before.size() < 2) return 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const Type now = inputs[i].impl()->type();
    if (now.shape.rank() < 1 || before[i].shape.rank() != now.shape.rank() || before[i].dtype != now.dtype) return 0;
    if (!std::ranges::equal(now.shape.dims().subspan(1), before[i].shape.dims().subspan(1))) return 0;
    if (now.shape[0] == before[i].shape[0] || (samples > 0 && now.shape[0] != samples)) return 0;
    samples = now.shape[0];
  }
  return samples;
}

}  // namespace

Compiled::Compiled(Function function, std::vector<Variable> state, JitOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->function = std::move(function);
  impl_->state = each_once(state);
  impl_->options = std::move(options);
  if (const int ranks = communicator().num_ranks(), wanted = impl_->options.mesh.data; wanted != 1 && wanted != ranks)
    fail("{}: its mesh has {} data ranks, but this job has {} process{}: start it by mpirun -n {}, or use Job::mesh()",
         impl_->options.name, wanted, ranks, ranks == 1 ? "" : "es", wanted);
  if (impl_->options.mesh.data > 1)
    for (const Variable& v : impl_->options.sharded_state)
      if (v.slot()->whole_type().shape.rank() > 0) impl_->sharded.insert(v.slot());
  if (impl_->options.mesh.bucket_bytes < 0)
    fail("{}: its mesh has buckets of {} bytes; they must be at least 1, or 0 to be chosen", impl_->options.name,
         impl_->options.mesh.bucket_bytes);
  if (overlaps(impl_->options.mesh)) bucket_bytes(impl_->options.mesh);  // all ranks are here: it may have to be measured
}

Compiled::Compiled(Compiled&&) noexcept = default;

Compiled::~Compiled() {
  if (!impl_) return;
  impl_.reset();
  drop_idle_programs();
}

std::vector<bool> Compiled::Impl::trainable_flags() const {
  std::vector<bool> result;
  for (const Variable& v : state) result.push_back(v.trainable());
  return result;
}

CompiledEntry& Compiled::Impl::entry_for(std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined() || inputs[i].impl()->traced()) [[unlikely]]
      check_inputs(inputs, options.name);
  const DType dtype = compute_dtype();
  const MatmulPrecision products = matmul_precision();
  if (last && last->accepts(inputs, dtype, products)) [[likely]] {
    if (flags().check_trace) check_trace(*last);
    return *last;
  }
  const uint64_t changes = trainable_changes(), switched = mode_changes();
  auto trainable = trainable_flags();
  for (auto& entry : entries) {
    if (entry->trainable == trainable) entry->trainable_seen = changes;
    if (entry->modes_hold()) entry->modes_seen = switched;
    if (!entry->accepts(inputs, dtype, products)) continue;
    last = entry.get();
    if (flags().check_trace) check_trace(*last);
    return *last;
  }
  if (last && options.announce_recompiles) announce(inputs);
  return compile(inputs);
}

// Says what differs from the last call.
void Compiled::Impl::announce(std::span<const Tensor> inputs) const {
  const auto& old = last->arguments;
  if (old.size() != inputs.size())
    return note("{}: compiling once more: {} inputs, were {}", options.name, inputs.size(), old.size());
  if (const int64_t samples = batch_of_another_size(old, inputs); samples > 0)
    return note("{}: a batch of {} instead of {}{}: a program of its own is compiled for it, once", options.name, samples,
                old[0].shape[0], samples < old[0].shape[0] ? ", such as the last of an epoch" : "");
  std::string changed;
  for (size_t i = 0; i < old.size(); ++i) {
    Type now = inputs[i].impl()->type();
    if (!(now == old[i]))
      changed += fmt::format("{}input {} changed from {} to {}", changed.empty() ? "" : ", ", i, old[i].str(), now.str());
  }
  if (last->compute_dtype != compute_dtype())
    changed = fmt::format("the compute dtype changed from {} to {}", name_of(last->compute_dtype), name_of(compute_dtype()));
  if (last->matmul_precision != matmul_precision())
    changed =
        fmt::format("the matmul precision changed from {} to {}", name_of(last->matmul_precision), name_of(matmul_precision()));
  if (changed.empty()) {
    auto flags_now = trainable_flags();
    for (size_t i = 0; i < state.size() && changed.empty(); ++i)
      if (flags_now[i] != last->trainable[i])
        changed = fmt::format("'{}' was {}", state[i].name(), flags_now[i] ? "made trainable" : "frozen");
  }
  if (changed.empty() && !last->modes_hold()) changed = "the model went from training to evaluation, or back";
  note("{}: compiling once more: {}", options.name, changed);
}

CompiledEntry& Compiled::Impl::compile(std::span<const Tensor> inputs) {
  auto start = std::chrono::steady_clock::now();
  auto types = types_of(inputs);
  const uint64_t changes = trainable_changes(), switched = mode_changes();
  auto trainable = trainable_flags();
  TracedFunction traced = trace(types);
  int num_threads = options.num_threads > 0 ? options.num_threads : configured_threads();
  std::string text = flags().check_trace ? print(traced.graph) : "";
  traced.graph = rank_part(traced);
  auto program = find_or_compile(traced.graph, traced.kept_inputs(), num_threads, options.memory_budget_bytes, options.compile);
  refuse_if_too_large(*program->executable, types);
  auto entry = std::make_unique<CompiledEntry>(std::move(traced), std::move(program), derived);
  entry->arguments = std::move(types);
  entry->compute_dtype = compute_dtype();
  entry->matmul_precision = matmul_precision();
  entry->trainable = std::move(trainable);
  entry->trainable_seen = changes;
  entry->modes_seen = switched;
  entry->trace_text = std::move(text);
  compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  WS_LOG(1, "{}: compiled in {:.1f} ms", options.name, compile_seconds * 1e3);
  WS_LOG(2, "{}: {}", options.name, summary(*entry->program->executable));
  entries.push_back(std::move(entry));
  last = entries.back().get();
  return *last;
}

TracedFunction Compiled::Impl::trace(std::span<const Type> arguments) const {
  const ComputeDType precision(compute_dtype());
  const MatmulPrecisionScope products(matmul_precision());
  return trace_function(function, state, arguments, options);
}

// Arguments are batches; state and captured tensors are whole.
PartitionOptions Compiled::Impl::split_of(const TracedFunction& traced) const {
  PartitionOptions split{communicator().rank(), communicator().num_ranks(), {}};
  for (const Tracer::Source& source : traced.sources) {
    const auto& whole = options.whole_arguments;
    const bool is_batch =
        source.kind == Tracer::Source::Kind::kArgument && std::find(whole.begin(), whole.end(), source.index) == whole.end();
    split.batches.push_back(is_batch);
    split.sharded_inputs.push_back(source.kind == Tracer::Source::Kind::kState && shards(*source.slot));
  }
  split.sharded_outputs.assign(traced.graph.outputs().size(), false);
  std::vector<bool> wanted_whole = split.sharded_outputs;
  const auto mark = [&](std::vector<bool>& marks, const Origin& origin) {
    if (origin.kind == Origin::Kind::kOutput) marks[static_cast<size_t>(origin.index)] = true;
  };
  for (const TracedFunction::Update& u : traced.updates) {
    const bool in_part = shards(*u.slot);
    if (in_part && u.origin.kind == Origin::Kind::kInput)
      fail("{}: '{}' is sharded, so it cannot be set to another input as it is", options.name, u.slot->name);
    mark(in_part ? split.sharded_outputs : wanted_whole, u.origin);
  }
  for (const Origin& origin : traced.results) mark(wanted_whole, origin);
  for (size_t o = 0; o < wanted_whole.size(); ++o)
    if (wanted_whole[o] && split.sharded_outputs[o])
      fail("{}: the new value of sharded state is also a result or other state ({}): return a copy", options.name,
           traced.graph.outputs()[o].name);
  return split;
}

bool Compiled::Impl::shards(const Variable::Slot& slot) const { return sharded.count(&slot) != 0; }

void Compiled::Impl::settle_state(const CompiledEntry& entry) const {
  for (const Tracer::Source& source : entry.sources) {
    if (source.kind != Tracer::Source::Kind::kState && source.kind != Tracer::Source::Kind::kSlot) continue;
    Variable::Slot& slot = *source.slot;
    const bool in_part = source.kind == Tracer::Source::Kind::kState && shards(slot);
    if (slot.sharded() == in_part) continue;
    if (in_part) {
      slot.shard();
    } else {
      for (const Variable& v : state)
        if (v.slot() == &slot) distributed::make_whole({&v, 1});
    }
  }
}

Graph Compiled::Impl::rank_part(const TracedFunction& traced) const {
  if (options.mesh.data == 1) return traced.graph;
  const Graph part = partition(traced.graph, split_of(traced));
  return overlaps(options.mesh) ? fill_buckets(part, bucket_bytes(options.mesh)) : part;
}

// Traces again and names the first line that differs: a number or branch that changed between calls.
void Compiled::Impl::check_trace(CompiledEntry& entry) {
  ComputeDType precision(entry.compute_dtype);
  MatmulPrecisionScope products(entry.matmul_precision);
  TracedFunction again = trace_function(function, state, entry.arguments, options);
  std::string text = print(again.graph);
  if (entry.trace_text.empty()) entry.trace_text = text;
  if (text == entry.trace_text) {
    for (size_t i = 0; i < again.sources.size(); ++i)
      if (!same_capture(again.sources[i].tensor, entry.sources[i].tensor))
        fail(
            "{}: CHECK_TRACE: the function captures another tensor ('{}') than the one it was compiled with: keep it in a "
            "Variable, or pass it as an argument",
            options.name, again.graph.inputs()[i].name);
    return;
  }
  size_t start = 0, line = 0;
  while (true) {
    auto line_at = [start](const std::string& t) {
      return start >= t.size() ? std::string("(nothing)") : t.substr(start, t.find('\n', start) - start);
    };
    std::string was = line_at(entry.trace_text), now = line_at(text);
    if (was != now)
      fail(
          "{}: CHECK_TRACE: the function traced differently at line {}: was `{}`, now `{}`. A number that changes must be a "
          "Scalar; a branch must not depend on what changes",
          options.name, line, was, now);
    start += was.size() + 1;
    ++line;
  }
}

std::vector<Tensor> Compiled::operator()(std::span<const Tensor> inputs) {
  std::vector<Tensor> outputs;
  run(inputs, outputs);
  return outputs;
}

void Compiled::run(std::span<const Tensor> inputs, std::vector<Tensor>& outputs) {
  if (context().tracer) {  // inside another trace: part of it
    check_inputs(inputs, impl_->options.name);
    outputs = impl_->function(inputs);
    return;
  }
  if (!inputs.empty() && inputs.data() >= outputs.data() && inputs.data() < outputs.data() + outputs.size()) {
    std::vector<Tensor> copy(inputs.begin(), inputs.end());  // outputs are about to be written
    return run(copy, outputs);
  }
  impl_->call(inputs, outputs, [](Executable& executable, void* const* in, void* const* out) { executable.run(in, out); });
  if (impl_->options.mesh.data > 1 && flags().verify >= 1) distributed::check_replicas(impl_->state);
}

void Compiled::prepare(std::span<const Tensor> inputs) { impl_->entry_for(inputs); }
int Compiled::compile_count() const { return static_cast<int>(impl_->entries.size()); }
double Compiled::compile_seconds() const { return impl_->compile_seconds; }

}  // namespace ws
