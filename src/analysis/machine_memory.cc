#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "support/bytes.h"
#include "support/flags.h"
#include "wholestep/analysis.h"

namespace ws {

int64_t machine_memory_bytes() {
  if (!flags().memory_limit.empty()) return parse_bytes(flags().memory_limit, "memory_limit");
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  // A container's limit: control groups 2, then 1. "max" and the like do not read as a number.
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    int64_t limit = 0;
    if (in >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace ws
