#include <algorithm>

#include "ir/graph.h"
#include "ir/op_check.h"
#include "support/error.h"

namespace ws {

namespace {

// `made[id]`: an input or the result of a node before this one.
void verify_node(const Graph& graph, int index, std::vector<bool>& made) {
  const Node& node = graph.nodes()[static_cast<size_t>(index)];
  WS_ASSERT(node.op, "node {} of graph {} has no op", index, graph.name);
  const auto where = [&] {
    return fmt::format("node {} ({}{}{}) of graph {}", index, node.op->name, node.path.empty() ? "" : " @", node.path,
                       graph.name);
  };
  std::vector<Type> input_types;
  for (Value v : node.inputs) {
    WS_ASSERT(v.id >= 0 && v.id < graph.num_values() && made[static_cast<size_t>(v.id)], "{} reads %{} before it is made",
              where(), v.id);
    input_types.push_back(graph.type_of(v));
  }
  const std::string mistake = find_mistake(*node.op, node.inputs.size(), node.attrs);
  WS_ASSERT(mistake.empty(), "{}: {}", where(), mistake);
  std::vector<Type> types;
  try {
    types = node.op->infer(input_types, node.attrs);
  } catch (const Error& e) {
    WS_ASSERT(false, "{}: {}", where(), e.what());
  }
  WS_ASSERT(types.size() == node.results.size(), "{} has {} results, its rule gives {}", where(), node.results.size(),
            types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const Value v = node.results[i];
    WS_ASSERT(v.id >= 0 && v.id < graph.num_values() && !made[static_cast<size_t>(v.id)], "{}: result {} is %{}", where(), i,
              v.id);
    WS_ASSERT(v.id == node.results[0].id + static_cast<int>(i), "{}: its results are not consecutive", where());
    WS_ASSERT(graph.type_of(v) == types[i], "{}: %{} is {}, the op's rule gives {}", where(), v.id, graph.type_of(v).str(),
              types[i].str());
    WS_ASSERT(graph.producer_of(v) == index, "{}: the producer of %{} is {}", where(), v.id, graph.producer_of(v));
    made[static_cast<size_t>(v.id)] = true;
  }
}

}  // namespace

void verify(const Graph& graph) {
  std::vector<bool> made(static_cast<size_t>(graph.num_values()));
  for (const GraphInput& input : graph.inputs()) {
    const int id = input.value.id;
    WS_ASSERT(id >= 0 && id < graph.num_values() && !made[static_cast<size_t>(id)], "input '{}' of graph {} is %{}", input.name,
              graph.name, id);
    WS_ASSERT(graph.producer_of(input.value) == -1, "input '{}' of graph {} has a producer", input.name, graph.name);
    made[static_cast<size_t>(id)] = true;
  }
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) verify_node(graph, i, made);
  WS_ASSERT(std::find(made.begin(), made.end(), false) == made.end(), "graph {} has values that nothing makes", graph.name);
  std::vector<bool> donated(graph.inputs().size());
  for (const GraphOutput& output : graph.outputs()) {
    WS_ASSERT(output.value.id >= 0 && output.value.id < graph.num_values(),
              "output '{}' of graph {} is %{}, which does not exist", output.name, graph.name, output.value.id);
    if (output.donates_input == -1) continue;
    const auto donor = static_cast<size_t>(output.donates_input);
    WS_ASSERT(output.donates_input >= 0 && donor < donated.size(), "output '{}' of graph {} donates input {} of {}", output.name,
              graph.name, output.donates_input, donated.size());
    WS_ASSERT(!donated[donor], "input {} of graph {} is donated twice", donor, graph.name);
    donated[donor] = true;
    const Type &from = graph.type_of(graph.inputs()[donor].value), &to = graph.type_of(output.value);
    WS_ASSERT(from == to, "output '{}' of graph {} is {}, the input {} it donates is {}", output.name, graph.name, to.str(),
              donor, from.str());
  }
}

}  // namespace ws
