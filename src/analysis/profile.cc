#include <algorithm>

#include "analysis/kernel_kind.h"
#include "analysis/reports.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws {
namespace {

void add(Profile::Kind& to, const Profile::Kind& k) {
  to.kernels += k.kernels, to.seconds += k.seconds, to.flops += k.flops, to.bytes += k.bytes;
  to.least_seconds += k.least_seconds, to.predicted_seconds += k.predicted_seconds;
}

}  // namespace

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
    const RateKey key = rate_key(program, call);
    const bool bf16 = key.kind.ends_with("bf16") && roofs.bf16_flops_per_s > 0;
    const double peak = bf16 ? roofs.bf16_flops_per_s : roofs.fp32_flops_per_s;
    k.least_seconds = std::max(peak > 0 ? key.times * k.flops / peak : 0, prediction.kernels[c].memory_seconds);
    if (k.seconds > 0) {
      k.flops_per_s = k.flops / k.seconds;
      k.bytes_per_s = k.bytes / k.seconds;
      k.roof_share = k.least_seconds / k.seconds;
    }
    profile.seconds += k.seconds;
    profile.kernels.push_back(std::move(k));
  }
  return profile;
}

std::vector<Profile::Kind> Profile::by_kind() const {
  std::vector<Kind> kinds;
  for (const Kernel& k : kernels) {
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& other) { return other.kind == k.kind; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), Kind{k.kind});
    add(*found, {k.kind, 1, k.seconds, k.flops, k.bytes, k.least_seconds, k.predicted_seconds});
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const Kind& a, const Kind& b) { return a.seconds > b.seconds; });
  return kinds;
}

std::string Profile::kinds_text() const {
  TextTable table({"kind", "kernels", "ms", "share", "GFLOP/s", "GB/s", "of roof", "predicted ms"});
  const auto per = [](double x, double y) { return y > 0 ? x / y : 0; };
  const auto row = [&](const Kind& k) {
    table.add({k.kind, fmt::format("{}", k.kernels), fmt::format("{:.2f}", k.seconds * 1e3),
               fmt::format("{:.1f} %", 100 * per(k.seconds, seconds)), fmt::format("{:.1f}", per(k.flops, k.seconds) * 1e-9),
               fmt::format("{:.1f}", per(k.bytes, k.seconds) * 1e-9),
               fmt::format("{:.0f} %", 100 * per(k.least_seconds, k.seconds)), fmt::format("{:.2f}", k.predicted_seconds * 1e3)});
  };
  Kind all{"all"};
  for (const Kind& k : by_kind()) {
    row(k);
    add(all, k);
  }
  row(all);
  return table.str();
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
  return table.str() + "\n" + kinds_text();
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
                       {"least_seconds", k.least_seconds},
                       {"roof_share", k.roof_share},
                       {"predicted_seconds", k.predicted_seconds},
                       {"recomputed", k.recomputed}});
  Json kinds = Json::array();
  for (const Profile::Kind& k : profile.by_kind())
    kinds.push_back({{"kind", k.kind},
                     {"kernels", k.kernels},
                     {"seconds", k.seconds},
                     {"flops", k.flops},
                     {"bytes", k.bytes},
                     {"least_seconds", k.least_seconds},
                     {"predicted_seconds", k.predicted_seconds}});
  return {{"seconds", profile.seconds}, {"kernels", std::move(kernels)}, {"kinds", std::move(kinds)}};
}

std::string Profile::json() const { return to_json(*this).dump(); }

}  // namespace ws
