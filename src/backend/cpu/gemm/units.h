// Shares units of work out to lanes. A lane walks its own range in order, so that what it prepared for one unit serves the next,
// then helps the others. No result depends on who ran what.
#pragma once
#include <atomic>
#include <cstdint>
#include <new>

#include "backend/cpu/gemm/plan.h"

namespace ws::cpu {
namespace {

/// Up to where a lane's own range is taken.
struct alignas(64) Cursor {
  std::atomic<int64_t> next;
  int64_t end;
};

/// Calls body(unit, lane, worker) for each unit; one lane is on one worker at a time. `cursors` has one a lane.
template <class Body>
void run_units(int64_t units, int lanes, Cursor* cursors, Workers& workers, Body&& body) {
  if (lanes == 1 || units == 1) {
    for (int64_t u = 0; u < units; ++u) body(u, 0, 0);
    return;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    new (&cursors[lane].next) std::atomic<int64_t>(part_begin(units, lanes, lane));
    cursors[lane].end = part_begin(units, lanes, lane + 1);
  }
  workers.parallel_for(lanes, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t lane = begin; lane < end; ++lane) {
      for (int step = 0; step < lanes; ++step) {
        Cursor& cursor = cursors[(lane + step) % lanes];
        for (int64_t u; (u = cursor.next.fetch_add(1, std::memory_order_relaxed)) < cursor.end;)
          body(u, static_cast<int>(lane), worker);
      }
    }
  });
}

}  // namespace
}  // namespace ws::cpu
