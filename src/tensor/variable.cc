// Variables and Scalars: named slots whose tensor a step may replace.
#include "tensor/variable.h"

#include <atomic>

#include "support/communicator.h"
#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/scalar_bits.h"
#include "tensor/tape.h"
#include "tensor/tracer.h"
#include "wholestep/jit.h"

namespace ws {
namespace {

std::atomic<uint64_t> trainable_counter{0};

const Variable::Slot& checked(const Variable::Slot* slot) {
  if (!slot) fail("an undefined Variable is used");
  return *slot;
}

}  // namespace

uint64_t trainable_changes() { return trainable_counter.load(std::memory_order_relaxed); }

void Variable::Slot::unbind() {
  if (!value.defined()) return;
  value.impl()->slot = nullptr;
  value = Tensor();
}

void Variable::Slot::bind(std::shared_ptr<TensorImpl> impl) {
  unbind();
  impl->slot = this;
  value = Tensor(std::move(impl));
}

Type Variable::Slot::whole_type() const {
  Type type = value.impl()->type();
  if (!sharded()) return type;
  std::vector<int64_t> dims(type.shape.begin(), type.shape.end());
  dims[0] = whole_rows;
  return {type.dtype, Shape(dims)};
}

void Variable::Slot::shard() {
  const int64_t rows = value.shape()[0];
  const auto [begin, end] = rows_of_rank(rows, communicator().num_ranks(), communicator().rank());
  const std::shared_ptr<TensorImpl> part = dense_copy(*value.slice(0, begin, end).impl());
  bind(as_leaf(*part, leaf_id, trainable));
  whole_rows = rows;
}

Variable::Variable(std::string name, Tensor value, bool trainable) : slot_(std::make_shared<Slot>()) {
  if (!value.defined()) fail("Variable '{}': its value is an undefined Tensor", name);
  if (value.impl()->traced())
    fail("{}Variable '{}' is made inside a jit function: make it before, and pass its owner to jit()", path_prefix(), name);
  if (trainable && !is_floating(value.dtype()))
    fail("Variable '{}' is trainable, so it needs a floating dtype, not {}", name, name_of(value.dtype()));
  slot_->name = std::move(name);
  slot_->trainable = trainable;
  slot_->leaf_id = new_leaf_id();
  slot_->bind(as_leaf(*dense_copy_if_needed(value.impl()), slot_->leaf_id, trainable));
}

const std::string& Variable::name() const { return checked(slot_.get()).name; }
void Variable::rename(std::string name) {
  checked(slot_.get());
  slot_->name = std::move(name);
}
const Tensor& Variable::value() const { return checked(slot_.get()).value; }
bool Variable::trainable() const { return checked(slot_.get()).trainable; }

void Variable::set_trainable(bool trainable) {
  if (checked(slot_.get()).trainable == trainable) return;
  if (trainable && !is_floating(slot_->value.dtype()))
    fail("Variable '{}' needs a floating dtype to be trainable, not {}", slot_->name, name_of(slot_->value.dtype()));
  slot_->trainable = trainable;
  // A new leaf: a history that has been recorded keeps the old one.
  slot_->bind(as_leaf(*slot_->value.impl(), slot_->leaf_id, trainable));
  trainable_counter.fetch_add(1, std::memory_order_relaxed);
}

void Variable::set(const Tensor& value) {
  const Slot& slot = checked(slot_.get());
  if (!value.defined()) fail("{}Variable '{}' is set to an undefined Tensor", path_prefix(), slot.name);
  if (value.dtype() != slot.value.dtype() || !(value.shape() == slot.value.shape()))
    fail("{}Variable '{}' is {} and cannot be set to {}", path_prefix(), slot.name, describe(*slot.value.impl()),
         describe(*value.impl()));
  TensorImpl& impl = *value.impl();
  Tracer* tracer = context().tracer;
  if (tracer && tracer->registered(slot)) {
    // Cut off from how it was computed, as in the loop: later gradients stop at this value.
    static const OpDef& stop_gradient = op_named("stop_gradient");
    TensorImpl* operand[] = {&impl};
    slot_->bind(as_leaf(*tracer->record(stop_gradient, operand, {})[0].impl(), slot.leaf_id, slot.trainable));
    return;
  }
  if (tracer)
    fail("{}{}: Variable '{}' is set inside the function but is not part of its state: pass its owner to jit()", path_prefix(),
         tracer->name(), slot.name);
  if (impl.traced()) Tracer::check_usable(impl, "Variable::set");
  ++slot_->version;
  slot_->bind(as_leaf(*dense_copy_if_needed(value.impl()), slot.leaf_id, slot.trainable));
}

Scalar::Scalar(std::string name, double value) : variable_(std::move(name), Tensor::full({}, value), false) {}

void Scalar::set(double value) {
  Variable::Slot& slot = *variable_.slot();
  const auto& impl = slot.value.impl();
  if (context().tracer || impl.use_count() > 1 || !impl->storage.unique()) return variable_.set(Tensor(value));
  store_element(impl->pointer(), impl->dtype, value);
  ++slot.version;
}

double Scalar::get() const { return variable_.value().item(); }

namespace detail {
void collect(const Stateful& object, std::vector<Variable>& into) { object.collect_state(into); }
void collect(const Scalar& object, std::vector<Variable>& into) { into.push_back(object.variable()); }
void collect(const Variable& object, std::vector<Variable>& into) { into.push_back(object); }
void collect(const std::vector<Variable>& objects, std::vector<Variable>& into) {
  into.insert(into.end(), objects.begin(), objects.end());
}
}  // namespace detail

}  // namespace ws
