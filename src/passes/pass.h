// What a pass is: a pure function from a graph to a better one, or to nothing where it found nothing to do.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

#include "ir/graph.h"

namespace ws {

struct PassContext {
  const std::set<std::string>& disabled;  // rules switched off
  std::map<std::string, int> hits;        // by rule, or by what the pass counts
};

struct Pass {
  std::string_view name;  // a verb phrase; the switch, the dump and the timing use it
  std::string_view purpose;
  std::optional<Graph> (*run)(const Graph&, PassContext&);
};

/// Local rewrite rules (rules.cc), to each node once its inputs are simplified. Exact in every bit.
std::optional<Graph> simplify(const Graph& graph, PassContext& context);
/// One node for equal op, attributes and inputs; streams of random ops are attributes, so draws never merge across streams.
std::optional<Graph> eliminate_common_subexpressions(const Graph& graph, PassContext& context);
/// Drops nodes that no output and no effect needs. Inputs stay: they are the signature.
std::optional<Graph> eliminate_dead_code(const Graph& graph, PassContext& context);

}  // namespace ws
