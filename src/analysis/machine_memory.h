// Whose limit machine_memory_bytes() (wholestep/analysis.h) is, for messages.
#pragma once
#include <string>

namespace ws {

/// "this machine has", "this container (its control group) has" or "--memory-limit (WHOLESTEP_MEMORY_LIMIT) allows".
std::string whose_memory();

}  // namespace ws
