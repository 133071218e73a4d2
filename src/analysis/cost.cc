#include <algorithm>
#include <map>

#include "analysis/kernel_kind.h"
#include "analysis/reports.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws {

CostAnalysis analyse_cost(const Program& program) {
  CostAnalysis cost;
  std::map<std::string, CostAnalysis::Kind> kinds;
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const KernelCall& call = program.calls[c];
    KernelCost kernel{static_cast<int>(c), call.name,       call.path,      kind_of(call),
                      call.cost.flops,     call.cost.bytes, call.recomputed};
    cost.flops += kernel.flops;
    cost.bytes += kernel.bytes;
    if (kernel.recomputed) cost.recomputed_flops += kernel.flops, cost.recomputed_bytes += kernel.bytes;
    CostAnalysis::Kind& kind = kinds[kernel.kind];
    kind.kind = kernel.kind;
    ++kind.num_kernels;
    kind.flops += kernel.flops;
    kind.bytes += kernel.bytes;
    cost.kernels.push_back(std::move(kernel));
  }
  cost.num_kernels = static_cast<int>(program.calls.size());
  for (auto& [name, kind] : kinds) cost.kinds.push_back(std::move(kind));
  std::stable_sort(cost.kinds.begin(), cost.kinds.end(), [](const auto& a, const auto& b) { return a.flops > b.flops; });
  return cost;
}

std::string CostAnalysis::text() const {
  TextTable table({"kind", "kernels", "GFLOP", "share", "MB", "FLOP/byte"});
  for (const Kind& k : kinds)
    table.add({k.kind, fmt::format("{}", k.num_kernels), fmt::format("{:.4g}", k.flops * 1e-9),
               fmt::format("{:.1f} %", flops > 0 ? 100 * k.flops / flops : 0), fmt::format("{:.4g}", k.bytes * 1e-6),
               fmt::format("{:.3g}", k.bytes > 0 ? k.flops / k.bytes : 0)});
  std::string text = fmt::format("{} kernels, {:.4g} GFLOP, {:.4g} MB\n", num_kernels, flops * 1e-9, bytes * 1e-6);
  if (recomputed_flops > 0)
    text += fmt::format("of these run twice to save memory: {:.4g} GFLOP ({:.1f} %)\n", recomputed_flops * 1e-9,
                        100 * recomputed_flops / flops);
  return text + table.str();
}

Json to_json(const CostAnalysis& cost) {
  Json kernels = Json::array(), kinds = Json::array();
  for (const KernelCost& k : cost.kernels)
    kernels.push_back({{"name", k.name},
                       {"path", k.path},
                       {"kind", k.kind},
                       {"flops", k.flops},
                       {"bytes", k.bytes},
                       {"recomputed", k.recomputed}});
  for (const CostAnalysis::Kind& k : cost.kinds)
    kinds.push_back({{"kind", k.kind}, {"kernels", k.num_kernels}, {"flops", k.flops}, {"bytes", k.bytes}});
  return {{"flops", cost.flops},
          {"bytes", cost.bytes},
          {"recomputed_flops", cost.recomputed_flops},
          {"recomputed_bytes", cost.recomputed_bytes},
          {"num_kernels", cost.num_kernels},
          {"kinds", std::move(kinds)},
          {"kernels", std::move(kernels)}};
}

std::string CostAnalysis::json() const { return to_json(*this).dump(); }

}  // namespace ws
