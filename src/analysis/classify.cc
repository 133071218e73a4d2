// What limits a step, in shares of its time, with the figures that say so and what to change first.
#include <algorithm>

#include "analysis/kernel_kind.h"
#include "analysis/reports.h"
#include "support/bytes.h"
#include "support/error.h"

namespace ws {
namespace {

constexpr double kMostly = 0.6;

bool multiplies_in_bf16(const Program& program) {
  double bf16 = 0, all = 0;
  for (const KernelCall& call : program.calls) {
    const std::string kind = rate_key(program, call).kind;
    if (!kind.starts_with("matmul")) continue;
    all += call.cost.flops;
    if (kind.ends_with("bf16")) bf16 += call.cost.flops;
  }
  return bf16 > all / 2;
}

std::string advice(const std::string& bound, const Classification& c, bool bf16, const Roofs& roofs) {
  if (bound == "dispatch") return "a larger batch, or wider layers: kernels are too short for what starting them costs";
  if (bound == "memory")
    return bf16 ? "a larger batch raises the arithmetic done for each byte of weights; else fewer elementwise passes between "
                  "products"
                : "bf16 halves the bytes of activations and weights; else a larger batch";
  const std::string first = bound == "mixed" ? "of several limits arithmetic is the cheapest to move: " : "";
  if (!bf16)
    return first + (roofs.bf16_flops_per_s > roofs.fp32_flops_per_s
                        ? "bf16: this machine multiplies it faster than fp32"
                        : "bf16 halves memory traffic, though this machine has no faster instruction for it");
  if (c.peak_share < 0.5) return first + "larger products (batch, width): the kernels are well below the peak";
  return first + "the kernels are near the peak: more threads or more machines, or a smaller model";
}

}  // namespace

Classification classify_step(const Program& program, const Prediction& prediction, const Roofs& roofs, double measured_seconds) {
  Classification c;
  c.measured = measured_seconds > 0;
  const double seconds = c.measured ? measured_seconds : prediction.seconds;
  double flops = 0, bytes = 0;
  for (const KernelCall& call : program.calls) flops += call.cost.flops, bytes += call.cost.bytes;
  c.compute_share = prediction.compute_share;
  c.memory_share = prediction.memory_share;
  c.dispatch_share = prediction.dispatch_share;
  // Time that neither roof explains is spent between and around kernels: that is dispatch where kernels are short.
  if (c.measured && measured_seconds > prediction.seconds && !program.calls.empty() &&
      measured_seconds / static_cast<double>(program.calls.size()) < 20e-6) {
    const double known = prediction.seconds / measured_seconds;
    c.compute_share *= known, c.memory_share *= known;
    c.dispatch_share = 1 - c.compute_share - c.memory_share;
  }
  const bool bf16 = multiplies_in_bf16(program);
  const double peak = bf16 && roofs.bf16_flops_per_s > 0 ? roofs.bf16_flops_per_s : roofs.fp32_flops_per_s;
  if (seconds > 0) c.flops_per_s = flops / seconds, c.bytes_per_s = bytes / seconds;
  c.peak_share = peak > 0 ? c.flops_per_s / peak : 0;
  c.bandwidth_share = roofs.memory_bytes_per_s > 0 ? c.bytes_per_s / roofs.memory_bytes_per_s : 0;
  c.bound = c.dispatch_share >= kMostly  ? "dispatch"
            : c.compute_share >= kMostly ? "compute"
            : c.memory_share >= kMostly  ? "memory"
                                         : "mixed";
  c.evidence.push_back(
      fmt::format("{:.0f} % of the time is in kernels limited by arithmetic, {:.0f} % by memory, {:.0f} % by dispatch",
                  100 * c.compute_share, 100 * c.memory_share, 100 * c.dispatch_share));
  c.evidence.push_back(fmt::format("{:.4g} GFLOP/s, {:.0f} % of the {} peak ({:.4g})", c.flops_per_s * 1e-9, 100 * c.peak_share,
                                   bf16 ? "bf16" : "fp32", peak * 1e-9));
  c.evidence.push_back(fmt::format("{:.4g} GB/s moved, {:.0f} % of what memory gives ({:.4g}); values in cache count too",
                                   c.bytes_per_s * 1e-9, 100 * c.bandwidth_share, roofs.memory_bytes_per_s * 1e-9));
  const double balance = roofs.memory_bytes_per_s > 0 ? peak / roofs.memory_bytes_per_s : 0;
  c.evidence.push_back(fmt::format("{:.3g} FLOP a byte; above {:.3g} this machine's arithmetic is the limit",
                                   bytes > 0 ? flops / bytes : 0, balance));
  c.evidence.push_back(fmt::format("{} kernels, {:.3g} us each", program.calls.size(),
                                   1e6 * seconds / std::max<double>(static_cast<double>(program.calls.size()), 1)));
  if (c.measured)
    c.evidence.push_back(fmt::format("measured {:.4g} ms, predicted {:.4g} ({:+.0f} %)", measured_seconds * 1e3,
                                     prediction.seconds * 1e3, 100 * (prediction.seconds / measured_seconds - 1)));
  c.next_change = advice(c.bound, c, bf16, roofs);
  return c;
}

std::string Classification::text() const {
  std::string text = (bound == "mixed" ? std::string("mixed") : bound + "-bound") + (measured ? "" : " (predicted)") + '\n';
  for (const std::string& line : evidence) text += "  " + line + '\n';
  return text + "  next: " + next_change + '\n';
}

Json to_json(const Classification& c) {
  return {{"bound", c.bound},
          {"compute_share", c.compute_share},
          {"memory_share", c.memory_share},
          {"dispatch_share", c.dispatch_share},
          {"flops_per_s", c.flops_per_s},
          {"bytes_per_s", c.bytes_per_s},
          {"peak_share", c.peak_share},
          {"bandwidth_share", c.bandwidth_share},
          {"measured", c.measured},
          {"evidence", c.evidence},
          {"next_change", c.next_change}};
}

std::string Classification::json() const { return to_json(*this).dump(); }

}  // namespace ws
