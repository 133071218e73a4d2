// split_buckets: all-reduces of one bucket become two calls: one that begins them all, right after the last of their inputs, and one
// that waits for them, as late as their results allow. Between the two other kernels run; the results are alive throughout,
// since both calls write them.
#pragma once
#include <vector>

#include "schedule/program.h"

namespace ws {

/// Before the calls are ordered. `priority` by call, as for order_calls(): the waiting call of a bucket gets that of the beginning of
/// the one after the next, so that one bucket travels, one waits its turn, and no more memory is held than theirs.
void split_buckets(Program& program, std::vector<int>& priority);

}  // namespace ws
