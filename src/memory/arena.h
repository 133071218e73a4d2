// Offsets in one arena for blocks of known size and lifetime: dynamic storage allocation, by greedy placement in several orders.
#pragma once
#include <cstdint>
#include <vector>

namespace ws {

struct ArenaBlock {
  int64_t bytes = 0;        // a multiple of the alignment
  int first = 0, last = 0;  // lives in [first, last]
};

struct ArenaLayout {
  int64_t bytes = 0;  // the highest end
  std::vector<int64_t> offsets;
};

/// The largest sum of blocks that live at once: no layout is smaller.
int64_t live_bytes(const std::vector<ArenaBlock>& blocks);
/// Deterministic. About 1 ms per 1,000 blocks and order tried; stops at the first layout that meets the bound.
ArenaLayout lay_out(const std::vector<ArenaBlock>& blocks);

}  // namespace ws
