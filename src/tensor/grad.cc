// grad(): the reverse walk, over the loop's tape (running each op) or over the trace's nodes (recording more).
#include <algorithm>
#include <unordered_map>

#include "autodiff/autodiff.h"
#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/eager.h"
#include "tensor/tape.h"
#include "tensor/tracer.h"
#include "tensor/variable.h"

namespace ws {
namespace {

/// Runs what vjps ask for; Values number the tensors seen so far.
class EagerBuilder final : public Builder {
 public:
  Value add(std::shared_ptr<TensorImpl> impl) {
    values_.push_back(std::move(impl));
    return Value{static_cast<int32_t>(values_.size() - 1)};
  }
  void drop(Value v) { values_[static_cast<size_t>(v.id)].reset(); }
  /// With its data: what a checkpoint forgot is computed again by `restore`.
  const std::shared_ptr<TensorImpl>& at(Value v) {
    if (!held(v)->storage) restore(v);
    return held(v);
  }
  void set(Value v, std::shared_ptr<TensorImpl> impl) { values_[static_cast<size_t>(v.id)] = std::move(impl); }
  bool forgotten(Value v) const { return !held(v)->storage; }
  size_t size() const { return values_.size(); }

  Type type_of(Value v) const override { return held(v)->type(); }
  std::function<void(Value)> restore;

  std::vector<Value> apply(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override {
    std::vector<TensorImpl*> operands;
    operands.reserve(inputs.size());
    for (Value v : inputs) operands.push_back(at(v).get());
    std::vector<Value> results;
    for (auto& r : run_all(op, operands, attrs)) made_.push_back(results.emplace_back(add(std::move(r))));
    return results;
  }

  /// Frees what apply() made, but for `live`.
  void keep_only(std::span<const Value> live) {
    live_.resize(values_.size());
    for (Value v : live) live_[static_cast<size_t>(v.id)] = true;
    std::erase_if(made_, [&](Value v) {
      if (live_[static_cast<size_t>(v.id)]) return false;
      drop(v);
      return true;
    });
    for (Value v : live) live_[static_cast<size_t>(v.id)] = false;
  }

 private:
  const std::shared_ptr<TensorImpl>& held(Value v) const {
    const auto& impl = values_[static_cast<size_t>(v.id)];
    WS_ASSERT(impl, "value {} of the tape was freed", v.id);
    return impl;
  }
  std::vector<std::shared_ptr<TensorImpl>> values_;
  std::vector<Value> made_;  // by apply(), still held
  std::vector<bool> live_;
};

/// The nodes that made `loss`, in program order.
std::vector<std::shared_ptr<TapeNode>> history_of(const TensorImpl& loss) {
  static std::atomic<uint64_t> walks{0};
  uint64_t walk = ++walks;
  std::vector<std::shared_ptr<TapeNode>> nodes;
  auto visit = [&](const std::shared_ptr<TapeNode>& node) {
    if (!node || node->walk == walk) return;
    if (node->consumed)
      fail(
          "{}grad(): part of this loss ({}{}{}) was already differentiated by another grad(): add the losses and call grad() "
          "once",
          path_prefix(), node->op->name, node->path.empty() ? "" : " in ", node->path);
    node->walk = walk;
    nodes.push_back(node);
  };
  visit(loss.node);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const auto& input : std::vector(nodes[i]->inputs)) visit(input->node);
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
  return nodes;
}

/// The loop's tape as the entries and values that backward() walks.
class TapeWalk {
 public:
  explicit TapeWalk(const Tensor& loss) : nodes_(history_of(*loss.impl())) {
    for (auto& node : nodes_) {
      TapeEntry entry{node->op, node->attrs, {}, {}};
      for (auto& input : node->inputs) entry.inputs.push_back(value_of(input));
      node->first_value = static_cast<int>(builder_.size());
      for (const TensorData& data : node->results) entry.results.push_back(builder_.add(alias_of(data)));
      tape_.push_back(std::move(entry));
    }
    loss_ = value_of(loss.impl());
    builder_.restore = [this](Value v) { restore(v); };
  }

  /// Value{} where the loss does not depend on it.
  Value find(const TensorImpl& impl) const {
    if (impl.node) {
      bool known = std::find(nodes_.begin(), nodes_.end(), impl.node) != nodes_.end();
      return known ? Value{impl.node->first_value + impl.result_index} : Value{};
    }
    auto leaf = leaves_.find(&impl);
    return leaf == leaves_.end() ? Value{} : leaf->second;
  }
  /// The leaf of a Variable: its present value, or else an earlier one that the loss was computed with.
  Value find_variable(const Variable::Slot& slot) const {
    if (Value v = find(*slot.value.impl())) return v;
    Value latest;
    for (const auto& [impl, v] : leaves_)
      if (impl->leaf_id == slot.leaf_id && v.id > latest.id) latest = v;
    return latest;
  }

  /// Uses up the tape.
  std::vector<Tensor> run(std::span<const Value> wrt) {
    for (Value v : wrt)
      if (v) wrt_.push_back(v);
    std::vector<Tensor> gradients(wrt.size());
    if (nodes_.empty() || wrt_.empty()) return gradients;
    for (auto& node : nodes_) node->consumed = true;
    auto found = backward(
        builder_, tape_, loss_, wrt_, [this](size_t i) { free_entry(i); },
        [this](std::span<const Value> live) { builder_.keep_only(live); });
    size_t next = 0;
    for (size_t i = 0; i < wrt.size(); ++i) {
      if (!wrt[i]) continue;
      if (Value g = found[next++]) gradients[i] = Tensor(dense_copy_if_needed(builder_.at(g)));
    }
    for (auto& node : nodes_) node->release();
    return gradients;
  }

 private:
  Value value_of(const std::shared_ptr<TensorImpl>& impl) {
    if (impl->node) return Value{impl->node->first_value + impl->result_index};
    auto [at, fresh] = leaves_.try_emplace(impl.get());
    if (fresh) at->second = builder_.add(impl);
    return at->second;
  }
  /// Runs the op that made v once more, and those before it whose results were forgotten too.
  void restore(Value v) {
    auto after =
        std::upper_bound(nodes_.begin(), nodes_.end(), v.id, [](int32_t id, const auto& node) { return id < node->first_value; });
    WS_ASSERT(after != nodes_.begin(), "value {} is no op's result", v.id);
    const TapeEntry& entry = tape_[static_cast<size_t>(after - nodes_.begin() - 1)];
    std::vector<TensorImpl*> operands;
    for (Value input : entry.inputs) operands.push_back(builder_.at(input).get());
    auto results = run_all(*entry.op, operands, entry.attrs);
    for (size_t i = 0; i < results.size(); ++i)
      if (builder_.forgotten(entry.results[i])) builder_.set(entry.results[i], std::move(results[i]));
  }
  void free_entry(size_t i) {
    for (Value v : tape_[i].results)
      if (std::find(wrt_.begin(), wrt_.end(), v) == wrt_.end()) builder_.drop(v);
    nodes_[i]->release();
  }

  std::vector<std::shared_ptr<TapeNode>> nodes_;
  std::vector<TapeEntry> tape_;
  std::unordered_map<const TensorImpl*, Value> leaves_;  // what no recorded op made; the builder keeps them alive
  EagerBuilder builder_;
  Value loss_;
  std::vector<Value> wrt_;  // those that the loss depends on
};

const Tensor& checked_loss(const Tensor& loss) {
  if (!loss.defined()) fail("{}grad(): the loss is an undefined Tensor", path_prefix());
  if (loss.size() != 1 || !is_floating(loss.dtype()))
    fail("{}grad(): the loss must be one floating number, not {}; reduce it with mean() or sum()", path_prefix(),
         describe(*loss.impl()));
  if (loss.impl()->traced()) Tracer::check_usable(*loss.impl(), "grad()");
  return loss;
}

/// Stops the step where the loss is not finite, before anything can be updated.
Tensor check_loss(const Tensor& loss) {
  static const Attrs attrs{{"what", std::string("loss")}};
  NoGrad no_grad;
  Tensor scalar = loss.rank() == 0 ? loss : loss.reshape({});
  return apply_op("check_finite", {&scalar}, attrs);
}

// One dimension of size one is as good as a scalar.
Tensor as_scalar(const Tensor& loss) { return loss.rank() == 0 ? loss : loss.reshape({}); }

std::vector<Tensor> traced_gradients(Tracer& tracer, const Tensor& loss, std::span<const Value> wrt) {
  std::vector<Value> known;
  for (Value v : wrt)
    if (v) known.push_back(v);
  std::vector<Tensor> gradients(wrt.size());
  if (!loss.impl()->requires_grad || known.empty()) return gradients;
  auto found = tracer.gradients(loss.impl()->value, known);
  size_t next = 0;
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (!wrt[i]) continue;
    if (Value g = found[next++]) gradients[i] = tracer.wrap(g, false);
  }
  return gradients;
}

/// Gradients that are all undefined are a mistake: a loss of constants.
void check_depends(std::string_view who, const std::vector<Tensor>& gradients, std::string_view inputs) {
  if (gradients.empty() || std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); })) return;
  fail(
      "{}{}: the loss depends on none of the {}: it was made under NoGrad, after stop_gradient, or from gradients alone (whose "
      "own gradients are not recorded)",
      path_prefix(), who, inputs);
}

}  // namespace

Gradients grad(const Tensor& loss_given, const std::vector<Variable>& parameters) {
  Gradients result;
  for (const Variable& p : parameters) {
    if (!p.defined()) fail("{}grad(): an undefined Variable is among the parameters", path_prefix());
    if (p.trainable()) result.parameters.push_back(p);
  }
  Tensor loss = as_scalar(checked_loss(loss_given));
  result.loss = check_loss(loss);
  std::vector<Value> wrt;
  if (Tracer* tracer = context().tracer) {
    for (const Variable& p : result.parameters) {
      const Tensor& value = p.value();
      wrt.push_back(value.impl()->traced() ? value.impl()->value : Value{});
    }
    result.values = traced_gradients(*tracer, loss, wrt);
  } else {
    TapeWalk walk(loss);
    for (const Variable& p : result.parameters) wrt.push_back(walk.find_variable(*p.slot()));
    result.values = walk.run(wrt);
  }
  check_depends("grad()", result.values, "parameters");
  return result;
}

std::vector<Tensor> grad_of(const Tensor& loss_given, const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) fail("{}grad_of(): input {} is an undefined Tensor", path_prefix(), i);
    if (!inputs[i].impl()->requires_grad)
      fail("{}grad_of(): input {} ({}) was not watched, so its uses were not recorded: x = watch(x) before they are",
           path_prefix(), i, describe(*inputs[i].impl()));
  }
  Tensor loss = as_scalar(checked_loss(loss_given));
  check_loss(loss);
  std::vector<Value> wrt;
  std::vector<Tensor> gradients;
  if (Tracer* tracer = context().tracer) {
    for (const Tensor& t : inputs) wrt.push_back(t.impl()->traced() ? t.impl()->value : Value{});
    gradients = traced_gradients(*tracer, loss, wrt);
  } else {
    TapeWalk walk(loss);
    for (const Tensor& t : inputs) wrt.push_back(walk.find(*t.impl()));
    gradients = walk.run(wrt);
  }
  check_depends("grad_of()", gradients, "inputs");
  return gradients;
}

Tensor watch(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) fail("{}watch(): needs a floating tensor", path_prefix());
  if (Tracer* tracer = context().tracer) {
    // A value of its own, so that its gradient is not that of the tensor it was made from.
    TensorImpl* operand[] = {x.impl().get()};
    Tensor own = tracer->record(op_named("stop_gradient"), operand, {})[0];
    return Tensor(as_leaf(*own.impl(), 0, true));
  }
  return Tensor(as_leaf(*x.impl(), 0, true));
}

NoGrad::NoGrad() : before_(std::exchange(context().no_grad, true)) {}
NoGrad::~NoGrad() { context().no_grad = before_; }

PathScope::PathScope(const std::string& name) : length_before_(context().path.size()) {
  std::string& path = context().path;
  if (!path.empty() && !name.empty()) path += '.';
  path += name;
}
PathScope::~PathScope() { context().path.resize(length_before_); }

}  // namespace ws
