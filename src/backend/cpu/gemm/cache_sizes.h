// Sizes of the data caches of the first core, from sysfs, with sane defaults where the system does not say. They set block sizes
// only: no bits depend on them.
#pragma once
#include <cstdint>

namespace ws::cpu {

struct CacheSizes {
  int64_t l1d_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 16 << 20;
};

/// Read once.
const CacheSizes& cache_sizes();

}  // namespace ws::cpu
