#include "tensor/mode.h"

#include <algorithm>
#include <atomic>

#include "tensor/context.h"
#include "tensor/tracer.h"

namespace ws {

namespace {
std::atomic<uint64_t> counter{0};
}  // namespace

bool read_mode(const std::shared_ptr<bool>& mode) {
  if (Tracer* tracer = context().tracer) {
    std::vector<ModeRead>& modes = tracer->modes;
    if (std::none_of(modes.begin(), modes.end(), [&](const ModeRead& m) { return m.mode == mode; }))
      modes.push_back({mode, *mode});
  }
  return *mode;
}

void set_mode(bool& mode, bool value) {
  if (mode == value) return;
  mode = value;
  counter.fetch_add(1, std::memory_order_relaxed);
}

uint64_t mode_changes() { return counter.load(std::memory_order_relaxed); }

}  // namespace ws
