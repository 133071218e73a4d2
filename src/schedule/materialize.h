// Which values are written to memory, and which are computed again where they are read: a cheap chain over values that are in
// memory anyway costs less to repeat than to store and load.
#pragma once
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "schedule/groups.h"

namespace ws {

struct Materialized {
  std::vector<bool> stored;              // by value id (bases)
  std::vector<std::vector<int>> bodies;  // by group: nodes to compute, own and repeated, ascending, without dead ones
  std::map<int, std::set<int>> copies;  // by group: ids of stored values of other groups that it stores once more (repeat_late.h)
  std::set<std::pair<int, int>> reads_copy;  // (value id, group): which read that
};

/// Takes out of group g's body what nothing that it stores, or reduces, needs.
void drop_dead(const Graph& graph, const ViewMap& views, const Groups& groups, Materialized& materialized, int g);

Materialized materialize(const Graph& graph, const ViewMap& views, const Groups& groups, bool repeat_cheap);

}  // namespace ws
