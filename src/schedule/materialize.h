// Which values are written to memory, and which are computed again where they are read: a cheap chain over values that are in
// memory anyway costs less to repeat than to store and load.
#pragma once
#include <vector>

#include "schedule/groups.h"

namespace ws {

struct Materialized {
  std::vector<bool> stored;              // by value id (bases)
  std::vector<std::vector<int>> bodies;  // by group: nodes to compute, own and repeated, ascending, without dead ones
};

Materialized materialize(const Graph& graph, const ViewMap& views, const Groups& groups, bool repeat_cheap);

}  // namespace ws
