// A second copy of a kernel call, on other buffers: what recomputation is made of.
#pragma once
#include <functional>

#include "schedule/program.h"

namespace ws {

/// `buffer` gives each buffer of the copy from that of the original.
KernelCall clone_call(const KernelCall& call, const std::function<int(int)>& buffer);

}  // namespace ws
