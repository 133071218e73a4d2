#include "backend/cpu/gemm/cache_sizes.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace ws::cpu {
namespace {

CacheSizes read_cache_sizes() {
  CacheSizes sizes;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), type_file(folder + "type"), size_file(folder + "size");
    int level = 0;
    std::string type;
    int64_t size = 0;
    char unit = 'K';
    if (!(level_file >> level) || !(type_file >> type) || !(size_file >> size)) continue;
    size_file >> unit;
    const int64_t bytes = size * (unit == 'M' ? 1 << 20 : 1 << 10);
    if (type == "Instruction" || bytes <= 0) continue;
    if (level == 1) sizes.l1d_bytes = bytes;
    if (level == 2) sizes.l2_bytes = bytes;
    if (level == 3) sizes.l3_bytes = bytes;
  }
  // A hypervisor may report nonsense; outside these bounds block sizes would be useless.
  sizes.l2_bytes = std::clamp<int64_t>(sizes.l2_bytes, 256 << 10, 8 << 20);
  return sizes;
}

CacheSizes& current_sizes() {
  static CacheSizes sizes = read_cache_sizes();
  return sizes;
}

}  // namespace

const CacheSizes& cache_sizes() { return current_sizes(); }

AssumedCacheSizes::AssumedCacheSizes(const CacheSizes& sizes) : before_(current_sizes()) { current_sizes() = sizes; }
AssumedCacheSizes::~AssumedCacheSizes() { current_sizes() = before_; }

}  // namespace ws::cpu
