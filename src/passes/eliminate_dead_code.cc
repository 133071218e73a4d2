#include "passes/pass.h"
#include "passes/rewriter.h"

namespace ws {

std::optional<Graph> eliminate_dead_code(const Graph& graph, PassContext& context) {
  std::vector<bool> needed(static_cast<size_t>(graph.num_values()));
  for (const GraphOutput& output : graph.outputs()) needed[static_cast<size_t>(output.value.id)] = true;
  const auto& nodes = graph.nodes();
  std::vector<bool> lives(nodes.size());
  int dead = 0;
  for (size_t n = nodes.size(); n-- > 0;) {
    lives[n] = nodes[n].op->has(kEffect);
    for (Value v : nodes[n].results) lives[n] = lives[n] || needed[static_cast<size_t>(v.id)];
    if (!lives[n])
      ++dead;
    else
      for (Value v : nodes[n].inputs) needed[static_cast<size_t>(v.id)] = true;
  }
  if (dead == 0) return std::nullopt;
  context.hits["dead"] = dead;
  Rewriter rewriter(graph);
  for (size_t n = 0; n < nodes.size(); ++n)
    if (lives[n]) rewriter.copy(nodes[n]);
  return rewriter.finish();
}

}  // namespace ws
