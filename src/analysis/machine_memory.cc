#include "analysis/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "support/bytes.h"
#include "support/flags.h"
#include "wholestep/analysis.h"

namespace ws {
namespace {

int64_t physical_bytes() { return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE)); }

/// A container's limit, or as much as there is: control groups 2, then 1. "max" and the like do not read as a number.
int64_t contained_bytes() {
  int64_t bytes = physical_bytes();
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    int64_t limit = 0;
    if (in >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace

int64_t machine_memory_bytes() {
  return flags().memory_limit.empty() ? contained_bytes()
                                      : parse_bytes(flags().memory_limit, "--memory-limit (WHOLESTEP_MEMORY_LIMIT)");
}

std::string whose_memory() {
  if (!flags().memory_limit.empty()) return "--memory-limit (WHOLESTEP_MEMORY_LIMIT) allows";
  return contained_bytes() < physical_bytes() ? "this container (its control group) has" : "this machine has";
}

}  // namespace ws
