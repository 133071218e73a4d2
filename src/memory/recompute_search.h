// The search for what to compute again: plans between "keep everything" and "as little memory as possible", cheapest first.
#pragma once
#include <vector>

#include "memory/timeline.h"

namespace ws {

struct RecomputePlan {
  Drops drops;
  int64_t peak_bytes = 0;  // live at once: a layout may need a little more
  double extra_seconds = 0;
  int num_repeated = 0;
};

/// None is both slower and larger than another; by falling peak and growing time. `base` (what checkpoint() asks for) is dropped in
/// all of them; the first is `base` alone. Depends on the program and the times only, so that one list answers every budget: the first
/// plan that fits a lower budget never needs more memory.
std::vector<RecomputePlan> find_recompute_plans(Timeline& timeline, const Drops& base);

}  // namespace ws
