// How a call of a compiled function feeds its program and takes the results.
#include <algorithm>

#include "support/error.h"
#include "tensor/compiled_impl.h"
#include "tensor/eager.h"
#include "tensor/tape.h"

namespace ws {
namespace {

/// The slot's memory, held by nobody else, so that the program may write over it. Otherwise the slot gets a copy of its own
/// first: whoever shares the memory keeps the old values.
void own_memory(Variable::Slot& slot) {
  const auto& impl = slot.value.impl();
  if (impl.use_count() == 1 && impl->storage.unique()) return;
  slot.bind(as_leaf(*dense_copy(*impl), slot.leaf_id, slot.trainable));
}

/// A result of an earlier call that nobody else can see.
bool may_write_over(const Tensor& t, const Type& type) {
  if (!t.defined() || t.impl().use_count() != 1) return false;
  const TensorImpl& impl = *t.impl();
  return !impl.traced() && impl.dense && !impl.node && !impl.slot && impl.dtype == type.dtype && impl.shape == type.shape &&
         impl.storage.unique();
}

}  // namespace

CompiledEntry::CompiledEntry(TracedFunction traced, std::shared_ptr<SharedProgram> its_program, DerivedValues& values)
    : program(std::move(its_program)), sources(std::move(traced.sources)), updates(std::move(traced.updates)),
      results(std::move(traced.results)), leaks(std::move(traced.leaks)) {
  modes = std::move(traced.modes);
  const Graph& graph = traced.graph;
  out.resize(graph.outputs().size());
  fresh.resize(out.size());
  donated.assign(sources.size(), false);
  outputs.resize(out.size());
  for (size_t i = 0; i < out.size(); ++i) outputs[i].type = graph.type_of(graph.outputs()[i].value);
  std::vector<bool> owned(out.size(), false);
  auto own = [&](const Origin& origin, Owner owner, size_t index) {
    if (origin.kind == Origin::Kind::kInput) {
      keeps_inputs = true;
      return;
    }
    auto o = static_cast<size_t>(origin.index);
    if (owned[o]) return;
    owned[o] = true;
    outputs[o].owner = owner;
    outputs[o].index = index;
  };
  for (size_t i = 0; i < updates.size(); ++i) {
    own(updates[i].origin, updates[i].donated ? Owner::kDonated : Owner::kUpdate, i);
    if (updates[i].donated)
      donated[static_cast<size_t>(graph.outputs()[static_cast<size_t>(updates[i].origin.index)].donates_input)] = true;
  }
  for (size_t i = 0; i < results.size(); ++i) own(results[i], Owner::kResult, i);
  for (const DerivedInput& d : program->derived) derived.push_back(values.of(sources[static_cast<size_t>(d.of)].slot, d));
  in.resize(sources.size() + derived.size());
  out.resize(program->executable->graph().outputs().size());  // derived values are written where they are
}

bool CompiledEntry::accepts(std::span<const Tensor> inputs, DType dtype, MatmulPrecision products) const {
  if (inputs.size() != arguments.size() || dtype != compute_dtype || products != matmul_precision) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl& x = *inputs[i].impl();
    if (x.dtype != arguments[i].dtype || !(x.shape == arguments[i].shape)) return false;
  }
  return trainable_seen == trainable_changes() && modes_seen == mode_changes();
}

bool CompiledEntry::modes_hold() const {
  return std::all_of(modes.begin(), modes.end(), [](const ModeRead& m) { return m.holds(); });
}

void CompiledEntry::bind_inputs(std::span<const Tensor> inputs) {
  held.clear();
  before.clear();
  auto bind = [&](size_t i, const std::shared_ptr<TensorImpl>& impl) {
    if (impl->dense) {
      in[i] = impl->pointer();
    } else {
      held.push_back(dense_copy(*impl));
      in[i] = held.back()->pointer();
    }
  };
  for (size_t i = 0; i < sources.size(); ++i) {
    const Tracer::Source& source = sources[i];
    switch (source.kind) {
      case Tracer::Source::Kind::kArgument: bind(i, inputs[static_cast<size_t>(source.index)].impl()); break;
      case Tracer::Source::Kind::kTensor: bind(i, source.tensor); break;
      case Tracer::Source::Kind::kState:
        if (donated[i]) own_memory(*source.slot);
        bind(i, source.slot->value.impl());
        break;
      case Tracer::Source::Kind::kSlot: bind(i, source.slot->value.impl()); break;
    }
  }
  for (size_t d = 0; d < derived.size(); ++d) in[sources.size() + d] = derived[d]->up_to_date();
  if (!keeps_inputs) return;
  for (const Tracer::Source& source : sources) {
    switch (source.kind) {
      case Tracer::Source::Kind::kArgument: before.push_back(inputs[static_cast<size_t>(source.index)]); break;
      case Tracer::Source::Kind::kTensor: before.push_back(Tensor(source.tensor)); break;
      default: before.push_back(Tensor(alias_of(*source.slot->value.impl())));
    }
  }
}

void CompiledEntry::bind_outputs(std::vector<Tensor>& results_out) {
  results_out.resize(results.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Output& output = outputs[o];
    if (output.owner == Owner::kDonated) {
      out[o] = nullptr;
    } else if (output.owner == Owner::kUpdate) {
      fresh[o] = new_dense(output.type);
      out[o] = fresh[o]->storage->data;
    } else {
      Tensor& target = results_out[output.index];
      if (!may_write_over(target, output.type)) target = Tensor(new_dense(output.type));
      out[o] = target.impl()->pointer();
    }
  }
}

void CompiledEntry::finish(std::vector<Tensor>& results_out) {
  for (const TracedFunction::Update& update : updates) {
    ++update.slot->version;
    if (update.donated) continue;
    auto index = static_cast<size_t>(update.origin.index);
    std::shared_ptr<TensorImpl> source;
    if (update.origin.kind == Origin::Kind::kInput)
      source = before[index].impl();
    else if (outputs[index].owner == Owner::kUpdate)
      source = fresh[index];
    else
      source = updates[outputs[index].index].slot->value.impl();  // two Variables set to one value
    update.slot->bind(as_leaf(*dense_copy_if_needed(source), update.slot->leaf_id, update.slot->trainable));
  }
  for (const auto& value : derived) value->follow();
  for (size_t i = 0; i < results.size(); ++i) {
    auto index = static_cast<size_t>(results[i].index);
    if (results[i].kind == Origin::Kind::kInput) {
      results_out[i] = before[index];
      continue;
    }
    const Output& output = outputs[index];
    if (output.owner != Owner::kResult)
      results_out[i] = Tensor(alias_of(*updates[output.index].slot->value.impl()));
    else if (output.index != i)
      results_out[i] = results_out[output.index];
  }
  for (auto& impl : fresh) impl.reset();
  before.clear();
  held.clear();
}

}  // namespace ws
