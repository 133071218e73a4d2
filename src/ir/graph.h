// Graph: SSA nodes in an order that is always a valid execution order. Nodes are immutable; a pass builds a new graph.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace ws {

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs;
  std::vector<Value> results;  // consecutive ids
  std::string path;            // layer path for messages and profiles ("blocks.0.attention"), may be empty
  // k > 0: made inside checkpoint() number k, to be computed again rather than kept for backward; -k: what it returns, kept.
  int checkpoint = 0;
};

struct GraphInput {
  Value value;
  std::string name;  // "x", "fc.weight": letters, digits, '.', '_', '/'
};

/// An output; `donates_input` >= 0 asks that it be written over that input (state).
struct GraphOutput {
  Value value;
  std::string name;
  int donates_input = -1;
};

class Graph {
 public:
  std::string name = "main";
  Value add_input(std::string name, Type type);
  /// Infers result types and appends. Throws ws::Error from the op's rule.
  std::vector<Value> add_node(const OpDef& op, std::vector<Value> inputs, Attrs attrs, std::string path = {}, int checkpoint = 0);
  void add_output(Value v, std::string name, int donates_input = -1);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  int num_values() const { return static_cast<int>(types_.size()); }
  const Type& type_of(Value v) const { return types_[static_cast<size_t>(v.id)]; }
  /// Index of the node that makes v, or -1 for an input.
  int producer_of(Value v) const { return producers_[static_cast<size_t>(v.id)]; }

 private:
  std::vector<Node> nodes_;
  std::vector<GraphInput> inputs_;
  std::vector<GraphOutput> outputs_;
  std::vector<Type> types_;     // by value id
  std::vector<int> producers_;  // by value id
};

/// Records into a graph. Equal to what a trace does.
class GraphBuilder final : public Builder {
 public:
  explicit GraphBuilder(Graph& graph) : graph_(graph) {}
  Type type_of(Value v) const override { return graph_.type_of(v); }
  std::vector<Value> apply(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) override;
  std::string path;    // given to new nodes
  int checkpoint = 0;  // likewise

 private:
  Graph& graph_;
};

/// Text form; grammar in docs/ir.md. parse(print(g)) prints the same.
std::string print(const Graph& graph);
/// Throws ws::Error "FILE:LINE:COLUMN: what was expected".
Graph parse(std::string_view text, std::string_view file_name = "<text>");
/// Throws InternalError naming the node: order, ids, arity, attributes, types, donation (same type, once each).
void verify(const Graph& graph);
/// The double-precision interpreter: runs each op's reference. bf16 and integer results are rounded to their dtype, f32 is not.
std::vector<RefArray> interpret(const Graph& graph, std::span<const RefArray> inputs);
/// One node of it.
std::vector<RefArray> interpret_node(const Graph& graph, const Node& node, std::span<const RefArray> inputs);
/// The same, keeping every value (by value id): VERIFY=3 compares against these.
std::vector<RefArray> interpret_all(const Graph& graph, std::span<const RefArray> inputs);

}  // namespace ws
