// Time by roofline. Arithmetic at the rate that a kernel of its kind reaches; bytes from the level of memory where they lie.
#include <algorithm>

#include "analysis/kernel_kind.h"
#include "analysis/reports.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws {
namespace {

const Roofs::Level* level_of(const Roofs& roofs, double bytes) {
  for (const Roofs::Level& level : roofs.levels) {
    const bool shared = level.name != "L1" && level.name != "L2";
    if (level.bytes == 0 || bytes <= static_cast<double>(level.bytes) * (shared ? 1 : roofs.threads)) return &level;
  }
  return roofs.levels.empty() ? nullptr : &roofs.levels.back();
}

/// How many bytes the step moves between two touches of the same buffer, by call and buffer. Two rounds: the first one only says
/// when each was last touched in the step before.
class Traffic {
 public:
  Traffic(const Program& program, const MemoryPlan& plan, const Roofs& roofs)
      : program_(program), plan_(plan), roofs_(roofs), touched_(program.buffers.size(), 0) {
    for (const KernelCall& call : program.calls) pass(call);
  }
  /// To be asked call by call, in order.
  double seconds(const KernelCall& call) {
    double sum = 0;
    // What is counted for the call, shared out over its buffers.
    double all = 0;
    for (const auto* list : {&call.reads, &call.writes})
      for (int b : *list) all += bytes_of(b);
    const double scale = all > 0 ? call.cost.bytes / all : 0;
    for (int b : call.reads)
      if (const Roofs::Level* level = level_of(roofs_, clock_ - touched_[static_cast<size_t>(b)] + bytes_of(b)))
        sum += scale * bytes_of(b) / level->read_bytes_per_s;
    for (int b : call.writes)  // into memory last used by whatever lay there before
      if (const Roofs::Level* level = level_of(roofs_, std::max(static_cast<double>(plan_.arena_bytes), bytes_of(b))))
        sum += scale * bytes_of(b) / level->copy_bytes_per_s;
    pass(call);
    return sum;
  }

 private:
  double bytes_of(int b) const { return static_cast<double>(program_.buffers[static_cast<size_t>(b)].num_bytes()); }
  void pass(const KernelCall& call) {
    clock_ += call.cost.bytes;
    for (const auto* list : {&call.reads, &call.writes})
      for (int b : *list) touched_[static_cast<size_t>(b)] = clock_;
  }
  const Program& program_;
  const MemoryPlan& plan_;
  const Roofs& roofs_;
  std::vector<double> touched_;
  double clock_ = 0;
};

}  // namespace

Prediction predict_time(const Program& program, const MemoryPlan& plan, const Roofs& roofs) {
  Prediction p;
  Traffic traffic(program, plan, roofs);
  double by_bound[3] = {0, 0, 0};
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    const RateKey key = rate_key(program, call);
    Prediction::Kernel k;
    k.call = static_cast<int>(c);
    k.compute_seconds = key.times * call.cost.flops / std::max(roofs.flops_per_s(key.kind, key.size), 1.0);
    k.memory_seconds = traffic.seconds(call);
    k.dispatch_seconds = 1e-9 * (call.cost.bytes > 65536 || call.cost.flops > 65536 ? roofs.barrier_ns : roofs.dispatch_ns);
    k.seconds = std::max(k.compute_seconds, k.memory_seconds) + k.dispatch_seconds;
    const double parts[] = {k.compute_seconds, k.memory_seconds, k.dispatch_seconds};
    const auto largest = static_cast<size_t>(std::max_element(parts, parts + 3) - parts);
    static constexpr const char* kBounds[] = {"compute", "memory", "dispatch"};
    k.bound = kBounds[largest];
    by_bound[largest] += k.seconds;
    p.seconds += k.seconds;
    p.kernels.push_back(std::move(k));
  }
  if (p.seconds > 0)
    p.compute_share = by_bound[0] / p.seconds, p.memory_share = by_bound[1] / p.seconds,
    p.dispatch_share = by_bound[2] / p.seconds;
  return p;
}

std::string Prediction::text() const {
  return fmt::format("predicted {:.4g} ms a step: {:.0f} % compute, {:.0f} % memory, {:.0f} % dispatch\n", seconds * 1e3,
                     100 * compute_share, 100 * memory_share, 100 * dispatch_share);
}

Json to_json(const Prediction& p) {
  Json kernels = Json::array();
  for (const Prediction::Kernel& k : p.kernels)
    kernels.push_back({{"call", k.call},
                       {"seconds", k.seconds},
                       {"compute_seconds", k.compute_seconds},
                       {"memory_seconds", k.memory_seconds},
                       {"dispatch_seconds", k.dispatch_seconds},
                       {"bound", k.bound}});
  return {{"seconds", p.seconds},
          {"compute_share", p.compute_share},
          {"memory_share", p.memory_share},
          {"dispatch_share", p.dispatch_share},
          {"kernels", std::move(kernels)}};
}

std::string Prediction::json() const { return to_json(*this).dump(); }

}  // namespace ws
