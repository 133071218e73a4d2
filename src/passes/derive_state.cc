#include "passes/derive_state.h"

#include "passes/pass.h"
#include "passes/rewriter.h"
#include "support/error.h"

namespace ws {
namespace {

class Deriver {
 public:
  Deriver(const Graph& graph, const std::vector<bool>& kept) : from_(graph), kept_(kept), input_of_(at(graph.num_values()), -1) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) input_of_[at(graph.inputs()[i].value.id)] = static_cast<int>(i);
  }

  DerivedState run() {
    find();
    if (derived_.empty()) return {from_, {}};
    Rewriter rewriter(from_);
    for (const DerivedInput& d : derived_) {
      const GraphInput& of = from_.inputs()[at(d.of)];
      const Type type{narrow_type(d), from_.type_of(of.value).shape};
      values_.push_back(rewriter.graph().add_input(fmt::format("derived/{}/{}", name_of(type.dtype), of.name), type));
    }
    for (size_t n = 0; n < from_.nodes().size(); ++n) {
      const Node& node = from_.nodes()[n];
      if (derived_at_[n] < 0)
        rewriter.copy(node);
      else
        rewriter.replace(node.results[0], same_view(rewriter.graph(), node.inputs[0], values_[at(derived_at_[n])]));
    }
    Graph graph = rewriter.finish();
    add_next_values(graph);
    const std::set<std::string> nothing_disabled;
    PassContext context{nothing_disabled, {}};
    if (auto smaller = eliminate_dead_code(graph, context)) graph = std::move(*smaller);  // views that only the casts read
    return {std::move(graph), std::move(derived_)};
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  /// The input that v is a view of, or -1.
  int viewed_input(Value v) const {
    int p;
    while ((p = from_.producer_of(v)) >= 0 && from_.nodes()[at(p)].op->lowering == Lowering::kView)
      v = from_.nodes()[at(p)].inputs[0];
    return p < 0 ? input_of_[at(v.id)] : -1;
  }
  /// Element by element from one value, into fewer bytes.
  bool narrows(const Node& node) const {
    constexpr uint32_t kNotOfTheValueAlone = kRandom | kEffect | kIndexed | kSwapsPairs;
    return node.op->lowering == Lowering::kElementwise && node.op->arity == 1 && (node.op->traits & kNotOfTheValueAlone) == 0 &&
           size_of(from_.type_of(node.results[0]).dtype) < size_of(from_.type_of(node.inputs[0]).dtype);
  }
  void find() {
    for (const Node& node : from_.nodes()) {
      const int input = narrows(node) ? viewed_input(node.inputs[0]) : -1;
      const bool derives = input >= 0 && kept_[at(input)] &&
                           from_.type_of(from_.inputs()[at(input)].value).shape.num_elements() >= kFewestDerivedElements;
      derived_at_.push_back(derives ? index_of({input, node.op, node.attrs}) : -1);
    }
  }
  /// -1 where another op has made the same dtype of it.
  int index_of(DerivedInput d) {
    for (size_t i = 0; i < derived_.size(); ++i)
      if (derived_[i].of == d.of && narrow_type(derived_[i]) == narrow_type(d))
        return derived_[i].op == d.op && derived_[i].attrs == d.attrs ? static_cast<int>(i) : -1;
    derived_.push_back(std::move(d));
    return static_cast<int>(derived_.size()) - 1;
  }
  DType narrow_type(const DerivedInput& d) const {
    const Type type = from_.type_of(from_.inputs()[at(d.of)].value);
    return d.op->infer(std::span(&type, 1), d.attrs)[0].dtype;
  }
  /// `whole` seen as v sees the input that it is a view of.
  Value same_view(Graph& to, Value v, Value whole) const {
    const int p = from_.producer_of(v);
    if (p < 0) return whole;
    const Node& node = from_.nodes()[at(p)];
    return to.add_node(*node.op, {same_view(to, node.inputs[0], whole)}, node.attrs, node.path, node.checkpoint)[0];
  }
  void add_next_values(Graph& graph) const {
    const size_t first = from_.inputs().size(), num_outputs = graph.outputs().size();
    for (size_t i = 0; i < derived_.size(); ++i)
      for (size_t o = 0; o < num_outputs; ++o) {
        const GraphOutput next = graph.outputs()[o];
        if (next.donates_input != derived_[i].of) continue;
        const int p = graph.producer_of(next.value);
        const std::string path = p >= 0 ? graph.nodes()[at(p)].path : "";
        const Value value = graph.add_node(*derived_[i].op, {next.value}, derived_[i].attrs, path)[0];
        graph.add_output(value, "next/" + graph.inputs()[first + i].name, static_cast<int>(first + i));
      }
  }

  const Graph& from_;
  const std::vector<bool>& kept_;
  std::vector<int> input_of_;    // by value
  std::vector<int> derived_at_;  // by node: which derived input it becomes, or -1
  std::vector<DerivedInput> derived_;
  std::vector<Value> values_;
};

}  // namespace

DerivedState derive_state(const Graph& graph, const std::vector<bool>& kept) { return Deriver(graph, kept).run(); }

}  // namespace ws
