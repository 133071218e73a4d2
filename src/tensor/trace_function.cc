#include "tensor/trace_function.h"

#include <algorithm>

#include "analysis/dtype_report.h"
#include "support/error.h"

namespace ws {
namespace {

/// Keeps the state's concrete tensors and puts them back.
class StateGuard {
 public:
  explicit StateGuard(const std::vector<Variable>& state) {
    for (const Variable& v : state) kept_.push_back({v, v.value()});
  }
  ~StateGuard() {
    for (auto& [variable, value] : kept_) variable.slot()->bind(value.impl());
  }
  StateGuard(const StateGuard&) = delete;
  StateGuard& operator=(const StateGuard&) = delete;

 private:
  std::vector<std::pair<Variable, Tensor>> kept_;
};

/// The raw trace made small: dead nodes, unused inputs and stop_gradient (which only grad() heeds) left out, inputs first.
class Assembler {
 public:
  explicit Assembler(const Tracer& tracer)
      : raw_(tracer.graph), checkpoints_(tracer.checkpoints), through_(static_cast<size_t>(raw_.num_values())) {
    static const OpDef* const stop_gradient = find_op("stop_gradient");
    for (int i = 0; i < raw_.num_values(); ++i) through_[static_cast<size_t>(i)] = Value{i};
    for (const Node& node : raw_.nodes())
      if (node.op == stop_gradient) through_[static_cast<size_t>(node.results[0].id)] = resolve(node.inputs[0]);
    live_.assign(through_.size(), false);
  }

  Value resolve(Value v) const { return through_[static_cast<size_t>(v.id)]; }
  void need(Value resolved) { live_[static_cast<size_t>(resolved.id)] = true; }

  Graph assemble(std::vector<Tracer::Source>& sources) {
    mark_live();
    Graph graph;
    graph.name = raw_.name;
    map_.assign(through_.size(), Value{});
    std::vector<Tracer::Source> kept;
    input_position_.assign(raw_.inputs().size(), -1);
    for (size_t i = 0; i < raw_.inputs().size(); ++i) {
      const GraphInput& input = raw_.inputs()[i];
      if (!live_[static_cast<size_t>(input.value.id)]) continue;
      input_position_[i] = static_cast<int>(kept.size());
      map_[static_cast<size_t>(input.value.id)] = graph.add_input(input.name, raw_.type_of(input.value));
      kept.push_back(std::move(sources[i]));
    }
    for (size_t n = 0; n < raw_.nodes().size(); ++n) {
      const Node& node = raw_.nodes()[n];
      if (!live_node(node)) continue;
      std::vector<Value> inputs;
      for (Value v : node.inputs) inputs.push_back(mapped(resolve(v)));
      auto results =
          graph.add_node(*node.op, std::move(inputs), node.attrs, node.path, n < checkpoints_.size() ? checkpoints_[n] : 0);
      for (size_t i = 0; i < results.size(); ++i) map_[static_cast<size_t>(node.results[i].id)] = results[i];
    }
    sources = std::move(kept);
    return graph;
  }

  Value mapped(Value resolved) const { return map_[static_cast<size_t>(resolved.id)]; }
  /// Position of a raw input among those kept.
  int input_position(size_t raw_input) const { return input_position_[raw_input]; }
  /// Position among the raw inputs, or -1 where a node makes it.
  int raw_input(Value resolved) const {
    if (raw_.producer_of(resolved) >= 0) return -1;
    for (size_t i = 0; i < raw_.inputs().size(); ++i)
      if (raw_.inputs()[i].value == resolved) return static_cast<int>(i);
    return -1;
  }

 private:
  bool live_node(const Node& node) const {
    if (resolve(node.results[0]) != node.results[0]) return false;  // stop_gradient
    return node.op->has(kEffect) ||
           std::any_of(node.results.begin(), node.results.end(), [&](Value v) { return live_[static_cast<size_t>(v.id)]; });
  }
  void mark_live() {
    for (auto node = raw_.nodes().rbegin(); node != raw_.nodes().rend(); ++node)
      if (live_node(*node))
        for (Value v : node->inputs) need(resolve(v));
  }

  const Graph& raw_;
  const std::vector<int>& checkpoints_;
  std::vector<Value> through_, map_;
  std::vector<bool> live_;
  std::vector<int> input_position_;
};

/// Where values end up: the outputs of the graph, each value once.
class OutputTable {
 public:
  OutputTable(Graph& graph) : graph_(graph) {}
  /// The output that holds v, added where there is none. `donor`: the input it is written over, or -1.
  int add(Value v, const std::string& name, int donor) {
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      if (graph_.outputs()[i].value == v) return static_cast<int>(i);
    graph_.add_output(v, name, donor);
    return static_cast<int>(graph_.outputs().size()) - 1;
  }

 private:
  Graph& graph_;
};

struct Change {
  size_t state;
  Value value;  // of the trace
};

// The values of the function's results; a concrete one becomes an input.
std::vector<Value> call_traced(const Compiled::Function& function, Tracer& tracer, std::span<const Tensor> arguments) {
  TracerScope scope(tracer);
  std::vector<Value> values;
  for (const Tensor& result : function(arguments)) {
    if (!result.defined()) fail("{}: result {} of the function is an undefined Tensor", tracer.name(), values.size());
    values.push_back(tracer.import(*result.impl()));
  }
  return values;
}

}  // namespace

std::vector<bool> TracedFunction::kept_inputs() const {
  std::vector<bool> kept;
  for (const Tracer::Source& source : sources)
    kept.push_back(source.slot && std::none_of(updates.begin(), updates.end(),
                                               [&](const Update& u) { return u.slot == source.slot.get() && !u.donated; }));
  return kept;
}

TracedFunction trace_function(const Compiled::Function& function, const std::vector<Variable>& state,
                              std::span<const Type> arguments, const JitOptions& options) {
  Tracer tracer(options.name);
  std::vector<Tensor> traced_arguments, traced_state;
  std::vector<Change> changes;
  std::vector<Value> results;
  for (size_t i = 0; i < arguments.size(); ++i)
    traced_arguments.push_back(tracer.add_argument(arguments[i], static_cast<int>(i)));
  {
    StateGuard guard(state);
    for (size_t i = 0; i < state.size(); ++i) {
      Tensor t = tracer.add_state(*state[i].slot(), static_cast<int>(i));
      traced_state.push_back(t);
      state[i].slot()->bind(t.impl());
    }
    results = call_traced(function, tracer, traced_arguments);
    for (size_t i = 0; i < state.size(); ++i) {
      Value now = state[i].value().impl()->value;
      if (now != traced_state[i].impl()->value) changes.push_back({i, now});
    }
  }

  TracedFunction traced;
  traced.leaks = find_dtype_leaks(tracer.graph, {tracer.num_forward_nodes(), tracer.promoted(), tracer.rounded()});
  traced.modes = std::move(tracer.modes);
  std::erase_if(traced.modes, [](const ModeRead& m) { return !m.holds(); });  // set by the function itself
  Assembler assembler(tracer);
  const size_t first_state = arguments.size();  // raw inputs: arguments, state, then what was met on the way
  for (Change& c : changes) c.value = assembler.resolve(c.value);
  std::erase_if(changes, [&](const Change& c) { return c.value == traced_state[c.state].impl()->value; });  // set to what it was
  for (Value& v : results) v = assembler.resolve(v);

  // An input that some tensor is to be afterwards must keep its bytes.
  std::vector<bool> read_afterwards(tracer.graph.inputs().size(), false);
  auto mark = [&](Value v) {
    assembler.need(v);
    if (int input = assembler.raw_input(v); input >= 0) read_afterwards[static_cast<size_t>(input)] = true;
  };
  for (const Change& c : changes) mark(c.value);
  for (Value v : results) mark(v);
  for (const Change& c : changes)
    if (assembler.raw_input(c.value) < 0 && options.donate)
      assembler.need(traced_state[c.state].impl()->value);  // the memory written over

  traced.sources = std::move(tracer.sources);
  traced.graph = assembler.assemble(traced.sources);
  OutputTable outputs(traced.graph);
  for (const Change& c : changes) {
    Variable::Slot* slot = state[c.state].slot();
    if (int input = assembler.raw_input(c.value); input >= 0) {
      traced.updates.push_back({slot, {Origin::Kind::kInput, assembler.input_position(static_cast<size_t>(input))}, false});
      continue;
    }
    size_t raw = first_state + c.state;
    int donor = options.donate && !read_afterwards[raw] ? assembler.input_position(raw) : -1;
    int before = static_cast<int>(traced.graph.outputs().size());
    std::string name =
        donor >= 0 ? "next/" + traced.graph.inputs()[static_cast<size_t>(donor)].name : fmt::format("next{}", c.state);
    int index = outputs.add(assembler.mapped(c.value), name, donor);
    traced.updates.push_back({slot, {Origin::Kind::kOutput, index}, donor >= 0 && index == before});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    int input = assembler.raw_input(results[i]);
    if (input >= 0)
      traced.results.push_back({Origin::Kind::kInput, assembler.input_position(static_cast<size_t>(input))});
    else
      traced.results.push_back(
          {Origin::Kind::kOutput, outputs.add(assembler.mapped(results[i]), fmt::format("result{}", i), -1)});
  }
  return traced;
}

}  // namespace ws
