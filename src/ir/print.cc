#include "ir/graph.h"
#include "ir/text.h"
#include "support/error.h"

namespace ws {

namespace {

template <class Items, class Text>
void append_list(std::string& out, const Items& items, Text&& text) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    text(item);
  }
}

}  // namespace

std::string print(const Graph& graph) {
  // Inputs first, as the text has them: a trace may have added one between nodes.
  std::vector<int> number(static_cast<size_t>(graph.num_values()), -1);
  int next = 0;
  for (const GraphInput& input : graph.inputs()) number[static_cast<size_t>(input.value.id)] = next++;
  for (const Node& node : graph.nodes())
    for (Value v : node.results) number[static_cast<size_t>(v.id)] = next++;

  std::string out = "graph " + bare_or_quoted(graph.name) + "(";
  const auto value = [&](Value v) {  // a broken graph prints too: verify's message shows it
    const bool exists = v.id >= 0 && v.id < graph.num_values();
    fmt::format_to(std::back_inserter(out), "%{}", exists ? number[static_cast<size_t>(v.id)] : v.id);
  };
  const auto type = [&](Value v) { out += graph.type_of(v).str(); };
  append_list(out, graph.inputs(), [&](const GraphInput& input) {
    value(input.value);
    out += " " + quoted(input.name) + ": ";
    type(input.value);
  });
  out += ") {\n";
  for (const Node& node : graph.nodes()) {
    out += "  ";
    append_list(out, node.results, value);
    fmt::format_to(std::back_inserter(out), " = {}", node.op->name);
    if (!node.inputs.empty()) out += ' ';
    append_list(out, node.inputs, value);
    if (!node.attrs.empty()) out += ' ' + node.attrs.str();
    out += " : ";
    append_list(out, node.results, type);
    if (!node.path.empty()) out += "  @" + bare_or_quoted(node.path);
    if (node.checkpoint != 0) fmt::format_to(std::back_inserter(out), "  checkpoint {}", node.checkpoint);
    out += '\n';
  }
  out += "  return";
  if (!graph.outputs().empty()) out += ' ';
  append_list(out, graph.outputs(), [&](const GraphOutput& output) {
    value(output.value);
    out += " " + quoted(output.name);
    if (output.donates_input >= 0) fmt::format_to(std::back_inserter(out), " donates {}", output.donates_input);
  });
  return out + "\n}\n";
}

}  // namespace ws
