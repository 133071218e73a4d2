// Concatenations without copies: the values that are written where they will lie in the concatenation that alone reads them. Its call
// stays, after all of them, and copies only the parts that cannot be. (DISABLE=write_parts)
#pragma once
#include <map>

#include "schedule/materialize.h"

namespace ws {

/// Where a part lies in the buffer of `whole`.
struct PartWindow {
  Value whole;
  int64_t offset = 0;
  std::array<int64_t, kMaxRank> strides{};  // of the part's dims
};

/// By value id. Results of elementwise nodes only: loops and store holes can write a strided window.
std::map<int, PartWindow> find_parts(const Graph& graph, const ViewMap& views, const Groups& groups,
                                     const Materialized& materialized);

}  // namespace ws
