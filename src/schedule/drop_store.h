// A kernel that runs again for one of its results need not write the others.
#pragma once
#include "schedule/program.h"

namespace ws {

/// Takes the stores to `buffer` out of the call's loop, and what only they needed; the bits of the others stay. False, and the call
/// untouched, where the buffer is written otherwise or nothing would be left to do.
bool drop_store(KernelCall& call, int buffer);

}  // namespace ws
