// When each buffer of a Program holds something: from its first write to its last read or write, by call index, ends included.
// The planner and its checker both start here.
#pragma once
#include <vector>

#include "schedule/program.h"

namespace ws {

struct Lifetime {
  int first = -1, last = -1;  // -1: never used
  bool used() const { return first >= 0; }
  bool meets(const Lifetime& o) const { return used() && o.used() && first <= o.last && o.first <= last; }
};

/// By buffer. What the program returns lives to one past the last call. InternalError for a temporary read before it is written.
std::vector<Lifetime> lifetimes(const Program& program);
/// Whether the arena holds this buffer.
bool lives_in_arena(const ProgramBuffer& buffer, bool outputs_outside);

}  // namespace ws
