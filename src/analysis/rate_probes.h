// What our own kernels reach with their data in cache, by kind: the arithmetic half of a prediction.
#pragma once
#include <vector>

#include "wholestep/analysis.h"

namespace ws {

/// About half a second. Kinds as in kernel_kind.h.
std::vector<Roofs::Rate> measure_rates(int num_threads);

}  // namespace ws
