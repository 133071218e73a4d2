#include <algorithm>

#include "analysis/kernel_kind.h"
#include "analysis/reports.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws {

Profile make_profile(const Program& program, const std::vector<double>& seconds, const Prediction& prediction,
                     const Roofs& roofs) {
  Profile profile;
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    Profile::Kernel k;
    k.call = static_cast<int>(c);
    k.name = call.name;
    k.path = call.path;
    k.kind = kind_of(call);
    k.seconds = seconds[c];
    k.flops = call.cost.flops;
    k.bytes = call.cost.bytes;
    k.recomputed = call.recomputed;
    k.predicted_seconds = prediction.kernels[c].seconds;
    if (k.seconds > 0) {
      k.flops_per_s = k.flops / k.seconds;
      k.bytes_per_s = k.bytes / k.seconds;
      const RateKey key = rate_key(program, call);
      const bool bf16 = key.kind.ends_with("bf16") && roofs.bf16_flops_per_s > 0;
      const double peak = bf16 ? roofs.bf16_flops_per_s : roofs.fp32_flops_per_s;
      const double least = std::max(peak > 0 ? key.times * k.flops / peak : 0, prediction.kernels[c].memory_seconds);
      k.roof_share = least / k.seconds;
    }
    profile.seconds += k.seconds;
    profile.kernels.push_back(std::move(k));
  }
  return profile;
}

std::string Profile::text() const {
  std::vector<const Kernel*> sorted;
  for (const Kernel& k : kernels) sorted.push_back(&k);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->seconds > b->seconds; });
  TextTable table({"kernel", "layer", "us", "share", "GFLOP/s", "GB/s", "of roof", "predicted us"});
  for (const Kernel* k : sorted)
    table.add({k->name + (k->recomputed ? " (again)" : ""), k->path.empty() ? "-" : k->path,
               fmt::format("{:.1f}", k->seconds * 1e6), fmt::format("{:.1f} %", seconds > 0 ? 100 * k->seconds / seconds : 0),
               fmt::format("{:.1f}", k->flops_per_s * 1e-9), fmt::format("{:.1f}", k->bytes_per_s * 1e-9),
               fmt::format("{:.0f} %", 100 * k->roof_share), fmt::format("{:.1f}", k->predicted_seconds * 1e6)});
  return table.str() + fmt::format("{} kernels, {:.3f} ms\n", kernels.size(), seconds * 1e3);
}

Json to_json(const Profile& profile) {
  Json kernels = Json::array();
  for (const Profile::Kernel& k : profile.kernels)
    kernels.push_back({{"name", k.name},
                       {"path", k.path},
                       {"kind", k.kind},
                       {"seconds", k.seconds},
                       {"flops", k.flops},
                       {"bytes", k.bytes},
                       {"flops_per_s", k.flops_per_s},
                       {"bytes_per_s", k.bytes_per_s},
                       {"roof_share", k.roof_share},
                       {"predicted_seconds", k.predicted_seconds},
                       {"recomputed", k.recomputed}});
  return {{"seconds", profile.seconds}, {"kernels", std::move(kernels)}};
}

std::string Profile::json() const { return to_json(*this).dump(); }

}  // namespace ws
