#include "memory/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace ws {

namespace {

using Order = std::vector<int>;
enum class Fit : uint8_t { kBest, kFirst };

// Places blocks one by one: into the tightest (or lowest) gap between those placed already that live at the same time, else on top.
ArenaLayout place(const std::vector<ArenaBlock>& blocks, const Order& order, Fit fit) {
  struct Placed {
    int64_t begin, end;
    int first, last;
  };
  ArenaLayout layout{0, std::vector<int64_t>(blocks.size(), 0)};
  std::vector<Placed> placed;  // by begin
  placed.reserve(blocks.size());
  for (int i : order) {
    const ArenaBlock& block = blocks[static_cast<size_t>(i)];
    int64_t top = 0, best = -1, best_gap = std::numeric_limits<int64_t>::max();
    for (const Placed& p : placed) {
      if (p.last < block.first || block.last < p.first) continue;
      const int64_t gap = p.begin - top;
      if (gap >= block.bytes && gap < best_gap) {
        best = top;
        best_gap = gap;
        if (fit == Fit::kFirst) break;
      }
      top = std::max(top, p.end);
    }
    const int64_t offset = best >= 0 ? best : top;
    layout.offsets[static_cast<size_t>(i)] = offset;
    layout.bytes = std::max(layout.bytes, offset + block.bytes);
    const Placed entry{offset, offset + block.bytes, block.first, block.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry, [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
  }
  return layout;
}

template <class Less>
Order sorted(const Order& order, Less&& less) {
  Order result = order;
  std::stable_sort(result.begin(), result.end(), less);
  return result;
}

}  // namespace

int64_t live_bytes(const std::vector<ArenaBlock>& blocks) {
  int end = 0;
  for (const ArenaBlock& b : blocks) end = std::max(end, b.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(end) + 1);
  for (const ArenaBlock& b : blocks) {
    change[static_cast<size_t>(b.first)] += b.bytes;
    change[static_cast<size_t>(b.last) + 1] -= b.bytes;
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

ArenaLayout lay_out(const std::vector<ArenaBlock>& blocks) {
  const int64_t bound = live_bytes(blocks);
  Order all(blocks.size());
  std::iota(all.begin(), all.end(), 0);
  const auto of = [&](int i) -> const ArenaBlock& { return blocks[static_cast<size_t>(i)]; };
  const auto length = [&](int i) { return of(i).last - of(i).first + 1; };
  const auto by_start = [&](int a, int b) {
    return of(a).first != of(b).first ? of(a).first < of(b).first : of(a).last > of(b).last;
  };
  const auto by_size = [&](int a, int b) {
    return of(a).bytes != of(b).bytes ? of(a).bytes > of(b).bytes : length(a) > length(b);
  };
  const auto by_length = [&](int a, int b) { return length(a) != length(b) ? length(a) > length(b) : of(a).bytes > of(b).bytes; };
  const auto by_area = [&](int a, int b) {
    return static_cast<double>(of(a).bytes) * length(a) > static_cast<double>(of(b).bytes) * length(b);
  };
  const Order orders[] = {sorted(all, by_size), sorted(all, by_start), sorted(all, by_length), sorted(all, by_area)};

  ArenaLayout best;
  Order best_order;
  Fit best_fit = Fit::kBest;
  const auto attempt = [&](const Order& order, Fit fit) {
    ArenaLayout layout = place(blocks, order, fit);
    if (best.offsets.empty() || layout.bytes < best.bytes) {
      best = std::move(layout);
      best_order = order;
      best_fit = fit;
    }
    return best.bytes <= bound;
  };
  for (const Order& order : orders)
    for (Fit fit : {Fit::kBest, Fit::kFirst})
      if (attempt(order, fit)) return best;

  // What sticks out highest was placed too late: move it to the front and try again. Few rounds for large programs.
  const auto rounds = static_cast<int>(std::clamp<size_t>(60000 / (blocks.size() + 1), 8, 256));
  Order order = best_order;
  const Fit fit = best_fit;
  ArenaLayout last = best;
  for (int round = 0; round < rounds; ++round) {
    size_t highest = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto end = [&](size_t n) { return last.offsets[static_cast<size_t>(order[n])] + of(order[n]).bytes; };
      if (end(i) > end(highest)) highest = i;
    }
    if (highest == 0) break;
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(highest),
                order.begin() + static_cast<std::ptrdiff_t>(highest) + 1);
    last = place(blocks, order, fit);
    if (last.bytes < best.bytes) best = last, best_order = order;
    if (best.bytes <= bound) return best;
  }

  // Then exchanges of two and moves of one, by a fixed sequence of numbers; one that is no worse stays. Many rounds for small programs.
  const auto more_rounds = static_cast<int>(std::clamp<size_t>(2'000'000 / (blocks.size() * blocks.size() + 1), 8, 2048));
  uint32_t state = 1;
  const auto draw = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<size_t>(state >> 8) % blocks.size();
  };
  for (int round = 0; round < more_rounds && best.bytes > bound; ++round) {
    order = best_order;
    const size_t from = draw(), to = draw();
    if (round % 2 == 0) {
      std::swap(order[from], order[to]);
    } else {
      const int moved = order[from];
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), moved);
    }
    ArenaLayout layout = place(blocks, order, fit);
    if (layout.bytes <= best.bytes) best = std::move(layout), best_order = order;
  }
  return best;
}

}  // namespace ws
