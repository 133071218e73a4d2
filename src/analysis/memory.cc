#include <algorithm>

#include "analysis/reports.h"
#include "memory/lifetimes.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws {
namespace {

const char* role_of(const ProgramBuffer& b) {
  if (b.derived) return "derived";
  if (b.alias_of >= 0) return "donated";
  switch (b.role) {
    case ProgramBuffer::Role::kInput: return "argument";
    case ProgramBuffer::Role::kOutput: return "output";
    case ProgramBuffer::Role::kTemporary: return "temporary";
  }
  return "";
}

/// The kernel at which most of the arena holds something.
int fullest_call(const MemoryAnalysis& m) {
  int64_t most = -1;
  int at = 0;
  for (int c = 0; c < m.num_calls; ++c) {
    int64_t live = 0;
    for (const TensorMemory& t : m.tensors)
      if (t.offset >= 0 && !t.in_place && t.first_call <= c && c <= t.last_call) live += t.bytes;
    if (live > most) most = live, at = c;
  }
  return at;
}

}  // namespace

MemoryAnalysis analyse_memory(const Program& program, const MemoryPlan& plan, int64_t scratch_bytes) {
  MemoryAnalysis m;
  m.argument_bytes = plan.argument_bytes;
  m.output_bytes = plan.output_bytes;
  m.donated_bytes = plan.donated_bytes;
  m.derived_bytes = plan.derived_bytes;
  m.arena_bytes = plan.arena_bytes;
  m.temporary_bytes = plan.arena_bytes + scratch_bytes;
  m.lower_bound_bytes = plan.lower_bound_bytes;
  m.peak_bytes = plan.fixed_bytes() + m.arena_bytes;
  m.num_calls = static_cast<int>(program.calls.size());
  std::vector<std::string> path(program.buffers.size());
  for (auto call = program.calls.rbegin(); call != program.calls.rend(); ++call) {
    for (int b : call->writes) path[static_cast<size_t>(b)] = call->path;
    m.num_recomputed += call->recomputed;
  }
  const std::vector<Lifetime> lives = lifetimes(program);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const ProgramBuffer& buffer = program.buffers[b];
    if (buffer.num_elements == 0 || !lives[b].used()) continue;
    if (buffer.alias_of >= 0 && program.buffers[static_cast<size_t>(buffer.alias_of)].derived) continue;  // listed as that
    m.tensors.push_back({buffer.name, path[b], role_of(buffer), std::string(name_of(buffer.dtype)), buffer.num_bytes(),
                         plan.offsets[b], lives[b].first, lives[b].last, plan.shares_with[b] >= 0});
  }
  return m;
}

std::string MemoryAnalysis::text() const {
  auto line = [](const char* what, int64_t bytes, const std::string& remark = "") {
    return fmt::format("{:<12} {:>10}{}{}\n", what, bytes_text(static_cast<double>(bytes)), remark.empty() ? "" : "   ", remark);
  };
  std::string text =
      line("arguments", argument_bytes, fmt::format("{} written in place", bytes_text(static_cast<double>(donated_bytes)))) +
      line("results", output_bytes - donated_bytes) +
      (derived_bytes > 0 ? line("derived", derived_bytes, "copies of parameters in the dtype of products, kept from step to step")
                         : "") +
      line("temporaries", temporary_bytes,
           fmt::format("arena {}, at least {} live at once", bytes_text(static_cast<double>(arena_bytes)),
                       bytes_text(static_cast<double>(lower_bound_bytes)))) +
      line("peak", peak_bytes);
  if (budget_bytes > 0)
    text += limited ? fmt::format("budget {}: memory was limiting (peak {} without it); {} kernels run twice\n",
                                  bytes_text(static_cast<double>(budget_bytes)),
                                  bytes_text(static_cast<double>(unlimited_peak_bytes)), num_recomputed)
                    : fmt::format("budget {}: memory is not limiting\n", bytes_text(static_cast<double>(budget_bytes)));
  else if (num_recomputed > 0)
    text += fmt::format("{} kernels run twice, for checkpoint() (peak {} without)\n", num_recomputed,
                        bytes_text(static_cast<double>(unlimited_peak_bytes)));
  const int at = fullest_call(*this);
  std::vector<const TensorMemory*> largest;
  for (const TensorMemory& t : tensors)
    if (t.offset >= 0 && !t.in_place && t.first_call <= at && at <= t.last_call) largest.push_back(&t);
  std::stable_sort(largest.begin(), largest.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  if (largest.empty()) return text;
  text += fmt::format("\nthe arena is fullest at kernel {} of {}; largest then:\n", at, num_calls);
  TextTable table({"tensor", "layer", "bytes", "from", "to"});
  for (size_t i = 0; i < std::min<size_t>(largest.size(), 12); ++i) {
    const TensorMemory& t = *largest[i];
    table.add({fmt::format("{} {}", t.name, t.dtype), t.path.empty() ? "-" : t.path, bytes_text(static_cast<double>(t.bytes)),
               fmt::format("{}", t.first_call), fmt::format("{}", t.last_call)});
  }
  return text + table.str();
}

Json to_json(const MemoryAnalysis& m) {
  Json tensors = Json::array();
  for (const TensorMemory& t : m.tensors)
    tensors.push_back({{"name", t.name},
                       {"path", t.path},
                       {"role", t.role},
                       {"dtype", t.dtype},
                       {"bytes", t.bytes},
                       {"offset", t.offset},
                       {"first_call", t.first_call},
                       {"last_call", t.last_call},
                       {"in_place", t.in_place}});
  return {{"argument_bytes", m.argument_bytes},
          {"output_bytes", m.output_bytes},
          {"donated_bytes", m.donated_bytes},
          {"derived_bytes", m.derived_bytes},
          {"temporary_bytes", m.temporary_bytes},
          {"arena_bytes", m.arena_bytes},
          {"lower_bound_bytes", m.lower_bound_bytes},
          {"peak_bytes", m.peak_bytes},
          {"budget_bytes", m.budget_bytes},
          {"unlimited_peak_bytes", m.unlimited_peak_bytes},
          {"limited", m.limited},
          {"num_recomputed", m.num_recomputed},
          {"num_calls", m.num_calls},
          {"tensors", std::move(tensors)}};
}

std::string MemoryAnalysis::json() const { return to_json(*this).dump(); }

}  // namespace ws
