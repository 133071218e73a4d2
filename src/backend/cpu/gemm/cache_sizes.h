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

/// For tests: while it lives, cache_sizes() says this, so that small products take the paths of large ones. Not beside running kernels.
class AssumedCacheSizes {
 public:
  explicit AssumedCacheSizes(const CacheSizes& sizes);
  AssumedCacheSizes(const AssumedCacheSizes&) = delete;
  AssumedCacheSizes& operator=(const AssumedCacheSizes&) = delete;
  ~AssumedCacheSizes();

 private:
  CacheSizes before_;
};

}  // namespace ws::cpu
