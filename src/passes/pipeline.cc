#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "ir/text.h"
#include "passes/rules.h"
#include "support/error.h"
#include "support/log.h"

namespace ws {

namespace {

// The only list of passes, in order. Dead code goes last, so that it takes what the others left behind.
constexpr Pass kPasses[] = {
    {"simplify", "bit-exact local rewrite rules", simplify},
    {"eliminate_common_subexpressions", "one node for equal computations", eliminate_common_subexpressions},
    {"eliminate_dead_code", "drops what nothing needs", eliminate_dead_code},
};

// Each round only shrinks the graph or canonicalises it; two or three are usual. The limit guards against rules that undo each other.
constexpr int kMaxRounds = 16;

void write_dump(const PipelineOptions& options, int number, std::string_view pass, const Graph& graph) {
  if (options.dump_directory.empty()) return;
  const std::filesystem::path folder = options.dump_directory;
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  std::string name = graph.name;  // one folder takes several graphs
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_word_char(c) || c == '/'; }, '_');
  const auto path = folder / fmt::format("{}.{:02}_{}.ir", name, number, pass);
  std::ofstream file(path, std::ios::binary);
  file << print(graph);
  if (!file.flush()) note("cannot write {}", path.string());
}

void verify_after(const Graph& graph, std::string_view pass) {
  try {
    verify(graph);
  } catch (const InternalError& e) {
    throw InternalError(fmt::format("{}\nfound after pass {} in\n{}", e.what(), pass, print(graph)));
  }
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

std::vector<std::string> pass_and_rule_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  for (const Rule& rule : all_rules()) names.emplace_back(rule.name);
  return names;
}

PipelineResult run_pipeline(const Graph& graph, const PipelineOptions& options) {
  PipelineResult result{graph, {}};
  int num_dumps = 0;
  write_dump(options, num_dumps++, "trace", graph);
  if (options.verify >= 1) verify_after(graph, "trace");
  bool any_changed = true;
  for (int round = 0; any_changed; ++round) {
    WS_ASSERT(round < kMaxRounds, "the passes do not settle on graph {}", graph.name);
    any_changed = false;
    for (const Pass& pass : kPasses) {
      if (options.disabled.count(std::string(pass.name))) continue;
      PassContext context{options.disabled, {}};
      const auto start = std::chrono::steady_clock::now();
      std::optional<Graph> better = pass.run(result.graph, context);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (better) result.graph = std::move(*better);
      any_changed |= better.has_value();
      const int num_nodes = static_cast<int>(result.graph.nodes().size());
      if (round == 0 || better) write_dump(options, num_dumps++, pass.name, result.graph);
      if (options.verify >= 2 && better) verify_after(result.graph, pass.name);
      if (options.time)
        note("pass {:<32} {:9.3f} ms  {} nodes{}", pass.name, seconds * 1e3, num_nodes, better ? "" : ", unchanged");
      if (flags().debug >= 3 && better) {
        std::string hits;
        for (const auto& [what, count] : context.hits) hits += fmt::format("{}{} {}", hits.empty() ? "" : ", ", what, count);
        note("{}: {} leaves {} nodes: {}", graph.name, pass.name, num_nodes, hits);
      }
      result.passes.push_back({std::string(pass.name), seconds, better.has_value(), num_nodes, std::move(context.hits)});
    }
  }
  if (options.verify == 1) verify_after(result.graph, "pipeline");
  return result;
}

}  // namespace ws
