#include "memory/plan.h"

#include <algorithm>

#include "memory/arena.h"
#include "memory/in_place.h"
#include "memory/lifetimes.h"
#include "support/error.h"

namespace ws {

namespace {

constexpr int64_t kAlignment = 64;

/// The buffer, or the one that it is written over.
bool is_derived(const Program& program, const ProgramBuffer& b) {
  return b.alias_of >= 0 ? program.buffers[static_cast<size_t>(b.alias_of)].derived : b.derived;
}

void count_signature(const Program& program, bool outputs_outside, MemoryPlan& plan) {
  int64_t outside = 0;
  for (const ProgramBuffer& b : program.buffers) {
    if (b.role == ProgramBuffer::Role::kInput) (b.derived ? plan.derived_bytes : plan.argument_bytes) += b.num_bytes();
    if (b.role != ProgramBuffer::Role::kOutput || is_derived(program, b)) continue;
    if (b.alias_of >= 0)
      plan.donated_bytes += b.num_bytes();
    else if (outputs_outside)
      outside += b.num_bytes();
  }
  for (size_t o = 0; o < program.output_types.size(); ++o)
    if (!is_derived(program, program.buffers[static_cast<size_t>(program.outputs[o].buffer)]))
      plan.output_bytes += program.output_types[o].num_bytes();
  plan.peak_bytes = plan.argument_bytes + plan.derived_bytes + outside + plan.arena_bytes;
}

}  // namespace

int64_t aligned_bytes(const ProgramBuffer& buffer) { return (buffer.num_bytes() + kAlignment - 1) / kAlignment * kAlignment; }

MemoryPlan plan_memory(const Program& program, bool outputs_outside) {
  const std::vector<Lifetime> lives = lifetimes(program);
  MemoryPlan plan;
  plan.offsets.assign(program.buffers.size(), -1);
  plan.shares_with = find_takeovers(program, lives, outputs_outside);

  // Buffers that follow each other in one memory are one block. A successor first appears in the call that ends its predecessor, so
  // going by first call meets predecessors first.
  std::vector<int> by_start;
  for (int b = 0; b < static_cast<int>(program.buffers.size()); ++b)
    if (lives_in_arena(program.buffers[static_cast<size_t>(b)], outputs_outside)) by_start.push_back(b);
  std::stable_sort(by_start.begin(), by_start.end(),
                   [&](int a, int b) { return lives[static_cast<size_t>(a)].first < lives[static_cast<size_t>(b)].first; });
  std::vector<ArenaBlock> blocks;
  std::vector<int> block_of(program.buffers.size(), -1);
  for (int b : by_start) {
    const auto i = static_cast<size_t>(b);
    if (!lives[i].used() || program.buffers[i].num_elements == 0) continue;
    if (plan.shares_with[i] >= 0) {
      block_of[i] = block_of[static_cast<size_t>(plan.shares_with[i])];
      blocks[static_cast<size_t>(block_of[i])].last = lives[i].last;
    } else {
      block_of[i] = static_cast<int>(blocks.size());
      blocks.push_back({aligned_bytes(program.buffers[i]), lives[i].first, lives[i].last});
    }
  }

  const ArenaLayout layout = lay_out(blocks);
  plan.arena_bytes = layout.bytes;
  plan.lower_bound_bytes = live_bytes(blocks);
  for (int b : by_start) {  // what is empty or unused needs no memory: offset 0
    const int block = block_of[static_cast<size_t>(b)];
    plan.offsets[static_cast<size_t>(b)] = block < 0 ? 0 : layout.offsets[static_cast<size_t>(block)];
  }
  count_signature(program, outputs_outside, plan);
  return plan;
}

void verify_plan(const Program& program, const MemoryPlan& plan) {
  const std::vector<Lifetime> lives = lifetimes(program);
  WS_ASSERT(plan.offsets.size() == program.buffers.size() && plan.shares_with.size() == program.buffers.size(),
            "the plan of {} is for another program", program.name);
  const auto name = [&](int b) {
    return fmt::format("buffer {} '{}' (calls {} to {}, at {})", b, program.buffers[static_cast<size_t>(b)].name,
                       lives[static_cast<size_t>(b)].first, lives[static_cast<size_t>(b)].last,
                       plan.offsets[static_cast<size_t>(b)]);
  };
  const auto bytes = [&](int b) { return program.buffers[static_cast<size_t>(b)].num_bytes(); };
  const auto begin = [&](int b) { return plan.offsets[static_cast<size_t>(b)]; };
  std::vector<int> placed;  // by offset
  for (int b = 0; b < static_cast<int>(program.buffers.size()); ++b) {
    const ProgramBuffer& buffer = program.buffers[static_cast<size_t>(b)];
    const bool inside = begin(b) >= 0;
    if (buffer.role == ProgramBuffer::Role::kTemporary && buffer.alias_of < 0)
      WS_ASSERT(inside, "{} of {} has no memory", name(b), program.name);
    if (buffer.role == ProgramBuffer::Role::kInput || buffer.alias_of >= 0)
      WS_ASSERT(!inside, "{} of {} is in the arena", name(b), program.name);
    if (!inside) continue;
    WS_ASSERT(begin(b) % kAlignment == 0, "{} of {} is not aligned", name(b), program.name);
    WS_ASSERT(begin(b) + bytes(b) <= plan.arena_bytes, "{} of {} ends beyond the arena of {} bytes", name(b), program.name,
              plan.arena_bytes);
    if (bytes(b) > 0 && lives[static_cast<size_t>(b)].used()) placed.push_back(b);
  }
  const auto took_over = [&](int write, int read) {
    return plan.shares_with[static_cast<size_t>(write)] == read && begin(write) == begin(read) &&
           may_take_over(program, lives, lives[static_cast<size_t>(write)].first, write, read);
  };
  std::sort(placed.begin(), placed.end(), [&](int a, int b) { return begin(a) < begin(b); });
  for (size_t i = 0; i < placed.size(); ++i) {
    const int a = placed[i];
    for (size_t j = i + 1; j < placed.size() && begin(placed[j]) < begin(a) + bytes(a); ++j) {
      const int b = placed[j];
      if (!lives[static_cast<size_t>(a)].meets(lives[static_cast<size_t>(b)]) || took_over(a, b) || took_over(b, a)) continue;
      WS_ASSERT(false, "{} and {} of {} share memory while both live", name(a), name(b), program.name);
    }
  }
}

std::string print(const Program& program, const MemoryPlan& plan) {
  const std::vector<Lifetime> lives = lifetimes(program);
  std::string out =
      fmt::format("plan of {}: arena {} bytes (bound {}), arguments {}, outputs {}, donated {}, {}peak {}\n", program.name,
                  plan.arena_bytes, plan.lower_bound_bytes, plan.argument_bytes, plan.output_bytes, plan.donated_bytes,
                  plan.derived_bytes > 0 ? fmt::format("derived {}, ", plan.derived_bytes) : "", plan.peak_bytes);
  std::vector<int> order;
  for (int b = 0; b < static_cast<int>(program.buffers.size()); ++b)
    if (plan.offsets[static_cast<size_t>(b)] >= 0) order.push_back(b);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto x = static_cast<size_t>(a), y = static_cast<size_t>(b);
    return plan.offsets[x] != plan.offsets[y] ? plan.offsets[x] < plan.offsets[y] : lives[x].first < lives[y].first;
  });
  fmt::format_to(std::back_inserter(out), "{:>12} {:>12} {:>5} {:>5}  buffer\n", "offset", "bytes", "first", "last");
  for (int b : order) {
    const auto i = static_cast<size_t>(b);
    fmt::format_to(std::back_inserter(out), "{:>12} {:>12} {:>5} {:>5}  {} {}", plan.offsets[i], program.buffers[i].num_bytes(),
                   lives[i].first, lives[i].last, b, program.buffers[i].name);
    if (plan.shares_with[i] >= 0) fmt::format_to(std::back_inserter(out), "  (in place of {})", plan.shares_with[i]);
    out += '\n';
  }
  return out;
}

}  // namespace ws
