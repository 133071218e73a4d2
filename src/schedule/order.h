// Order: puts kernel calls in execution order, decides which donated outputs are written over their inputs, and sees to it that
// no check comes after a write to state.
#pragma once
#include <vector>

#include "schedule/program.h"

namespace ws {

/// `donations`: (output buffer, input buffer) wished for. Where every reader of the input can come first, the output becomes an
/// alias; else it becomes a temporary and a copy at the end writes the alias. `priority` by call: lower runs earlier if free to.
void order_calls(Program& program, std::vector<int> priority, const std::vector<std::array<int, 2>>& donations);

}  // namespace ws
