#include "tensor/tracer.h"

#include <algorithm>
#include <atomic>
#include <cctype>

#include "autodiff/autodiff.h"
#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/tape.h"

namespace ws {
namespace {

uint64_t next_trace_id() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1) + 1;
}

}  // namespace

Tracer::Tracer(std::string name) : id_(next_trace_id()), name_(std::move(name)), builder_(graph) { graph.name = name_; }

std::string Tracer::unique_input_name(const std::string& wanted) {
  std::string name = wanted.empty() ? "unnamed" : wanted;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '/') c = '_';
  int uses = ++names_[name];
  return uses == 1 ? name : unique_input_name(fmt::format("{}_{}", name, uses));
}

Tensor Tracer::add_argument(const Type& type, int index) {
  Value v = graph.add_input(unique_input_name(fmt::format("arg{}", index)), type);
  sources.push_back({Source::Kind::kArgument, index, nullptr, nullptr});
  return wrap(v, false);
}

Tensor Tracer::add_state(Variable::Slot& slot, int index) {
  registered_.emplace(&slot, index);
  Value v = graph.add_input(unique_input_name(slot.name), slot.whole_type());
  sources.push_back({Source::Kind::kState, index, nullptr, slot.shared_from_this()});
  Tensor t = wrap(v, slot.trainable);
  t.impl()->leaf_id = slot.leaf_id;
  t.impl()->slot = &slot;
  return t;
}

Tensor Tracer::wrap(Value value, bool requires_grad) {
  auto impl = new_impl();
  Type type = graph.type_of(value);
  impl->dtype = type.dtype;
  impl->shape = type.shape;
  impl->trace_id = id_;
  impl->value = value;
  impl->requires_grad = requires_grad && is_floating(type.dtype);
  return Tensor(std::move(impl));
}

Value Tracer::import(TensorImpl& impl) {
  if (impl.traced()) {
    check_usable(impl, "an op");
    return impl.value;
  }
  if (auto known = imported_.find(&impl); known != imported_.end()) return known->second;
  Source source;
  std::string name;
  if (impl.slot && !registered(*impl.slot)) {
    if (impl.slot->trainable)
      fail(
          "{}{}: parameter '{}' ({}) is used but not registered, so the step cannot update it: build it as a member of its "
          "Module, or pass its owner to jit()",
          path_prefix(), name_, impl.slot->name, describe(impl));
    source.kind = Source::Kind::kSlot;
    source.slot = impl.slot->shared_from_this();
    name = impl.slot->name;
  } else {
    source.kind = Source::Kind::kTensor;
    source.tensor = impl.shared_from_this();
    name = fmt::format("captured{}", imported_.size());
  }
  kept_.push_back(impl.shared_from_this());
  Value v = graph.add_input(unique_input_name(name), impl.type());
  sources.push_back(std::move(source));
  imported_.emplace(&impl, v);
  return v;
}

std::vector<Tensor> Tracer::record(const OpDef& op, Operands inputs, const Attrs& attrs) {
  std::vector<Value> values;
  values.reserve(inputs.size());
  bool differentiable = wants_gradient(op, inputs);
  for (TensorImpl* x : inputs) values.push_back(import(*x));
  builder_.path = context().path;
  auto results = builder_.apply(op, values, attrs);
  node_states_.resize(graph.nodes().size(), NodeState::kPlain);
  bool any_floating = std::any_of(results.begin(), results.end(), [&](Value v) { return is_floating(graph.type_of(v).dtype); });
  if (differentiable && any_floating) node_states_.back() = NodeState::kRecorded;
  checkpoints.resize(graph.nodes().size(), 0);
  checkpoints.back() = context().checkpoint;
  std::vector<Tensor> wrapped;
  wrapped.reserve(results.size());
  for (Value v : results) wrapped.push_back(wrap(v, differentiable));
  return wrapped;
}

// A view's bytes are those of what it looks at.
void Tracer::keep_results(const std::vector<Tensor>& results) {
  static const OpDef* const stop_gradient = find_op("stop_gradient");
  checkpoints.resize(graph.nodes().size(), 0);
  for (const Tensor& t : results) {
    Value v = t.impl()->value;
    for (int n = graph.producer_of(v); n >= 0; n = graph.producer_of(v)) {
      if (checkpoints[static_cast<size_t>(n)] != num_checkpoints) break;  // not made inside
      checkpoints[static_cast<size_t>(n)] = -num_checkpoints;
      const Node& node = graph.nodes()[static_cast<size_t>(n)];
      if (node.op->lowering != Lowering::kView && node.op != stop_gradient) break;
      v = node.inputs[0];
    }
  }
}

std::vector<Value> Tracer::gradients(Value loss, std::span<const Value> wrt) {
  if (num_forward_nodes_ < 0) num_forward_nodes_ = static_cast<int>(graph.nodes().size());
  // The recorded nodes that the loss depends on.
  std::vector<bool> needed(static_cast<size_t>(graph.num_values()), false);
  needed[static_cast<size_t>(loss.id)] = true;
  std::vector<int> nodes;
  for (int i = static_cast<int>(graph.nodes().size()) - 1; i >= 0; --i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    NodeState& state = node_states_[static_cast<size_t>(i)];
    bool used = std::any_of(node.results.begin(), node.results.end(), [&](Value v) { return needed[static_cast<size_t>(v.id)]; });
    if (!used || state == NodeState::kPlain) continue;
    if (state == NodeState::kConsumed)
      fail(
          "{}grad(): part of this loss ({}{}{}) was already differentiated by another grad(): add the losses and call grad() "
          "once",
          path_prefix(), node.op->name, node.path.empty() ? "" : " in ", node.path);
    state = NodeState::kConsumed;
    for (Value v : node.inputs) needed[static_cast<size_t>(v.id)] = true;
    nodes.push_back(i);
  }
  std::reverse(nodes.begin(), nodes.end());
  std::vector<TapeEntry> tape;
  std::vector<std::string> paths;
  tape.reserve(nodes.size());
  for (int i : nodes) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    tape.push_back({node.op, node.attrs, node.inputs, node.results});
    paths.push_back(node.path);
  }
  // A gradient's nodes carry the path of the layer they differentiate.
  std::string fallback = context().path;
  auto path_of = [&](size_t end) { return end == 0 ? fallback : paths[end - 1]; };
  builder_.path = path_of(paths.size());
  auto result = backward(builder_, tape, loss, wrt, [&](size_t i) { builder_.path = path_of(i); });
  node_states_.resize(graph.nodes().size(), NodeState::kPlain);
  return result;
}

void Tracer::check_usable(const TensorImpl& impl, std::string_view op) {
  const Tracer* tracer = context().tracer;
  if (tracer && tracer->id_ == impl.trace_id) return;
  fail(
      "{}{}: a {} made inside a jit function is used outside of it; return it from the function, or keep it in a Variable given "
      "to jit()",
      path_prefix(), op, describe(impl));
}

void Tracer::fail_reading(const TensorImpl& impl, std::string_view what) {
  check_usable(impl, what);
  const Graph& graph = context().tracer->graph;
  int producer = graph.producer_of(impl.value);
  std::string from = "an input of the function";
  if (producer >= 0) {
    const Node& node = graph.nodes()[static_cast<size_t>(producer)];
    from = fmt::format("the result of op '{}'{}{}", node.op->name, node.path.empty() ? "" : " in ", node.path);
  } else {
    for (const GraphInput& input : graph.inputs())
      if (input.value == impl.value) from = fmt::format("input '{}' of the function", input.name);
  }
  fail(
      "{}{} of a {} that is being traced ({}): while jit traces, tensors have no values yet. Read it after the call, or choose "
      "with where()",
      path_prefix(), what, describe(impl), from);
}

// A program is kept, so it must not depend on where its first call happened to be: the path and NoGrad of the caller do not count.
TracerScope::TracerScope(Tracer& tracer)
    : path_before_(std::exchange(context().path, {})), no_grad_before_(std::exchange(context().no_grad, false)),
      checkpoint_before_(std::exchange(context().checkpoint, 0)) {
  context().tracer = &tracer;
}

TracerScope::~TracerScope() {
  context().tracer = nullptr;
  context().path = std::move(path_before_);
  context().no_grad = no_grad_before_;
  context().checkpoint = checkpoint_before_;
}

}  // namespace ws
