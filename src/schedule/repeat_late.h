// Repeats late: a value that is read soon after it is made and once more much later (a backward product's operand, mostly) need not
// stay in memory meanwhile. Where a short elementwise chain makes it again from values that are in memory then anyway, it is written
// twice: a copy for the late readers appears just before them. The same ops on the same values: the same bits.
#pragma once
#include "schedule/materialize.h"

namespace ws {

// Where all readers come later than another kernel that has what the value is made of, that one stores it instead of its maker.
/// Adds to `materialized` (copies, reads_copy, bodies) and, for chains that no kernel near the late readers can take up, to `groups`.
void repeat_late(const Graph& graph, const ViewMap& views, Groups& groups, Materialized& materialized);

}  // namespace ws
