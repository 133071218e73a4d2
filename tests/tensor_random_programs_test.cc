// Random programs have the same bits however they run: compiled or in the loop, on any number of threads, without passes or rules, within a
// budget, from poisoned memory; and those bits are the contract's in plain C++, whatever WHOLESTEP_ISA says.
//
// A longer search: RANDOM_PROGRAMS=FIRST:COUNT build/test_tensor --gtest_filter='RandomPrograms.*' runs all checks on the programs of COUNT
// seeds from FIRST on (the default run gives each program some of them). WHOLESTEP_CACHE=0 leaves the code cache on disk alone. A failure
// prints the seed and the program, made as small as it goes while the same check fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "backend/cpu/isa.h"
#include "numerics_contract.h"
#include "random_programs_run.h"

namespace ws::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kNumPrograms = 30;
#else
constexpr uint64_t kNumPrograms = 200;
#endif

struct Seeds {
  uint64_t first = 0, count = kNumPrograms;
  bool all_checks = false;
};

Seeds wanted_seeds() {
  Seeds seeds;
  const char* text = std::getenv("RANDOM_PROGRAMS");
  if (text == nullptr) return seeds;
  unsigned long long first = 0, count = 0;
  EXPECT_EQ(std::sscanf(text, "%llu:%llu", &first, &count), 2) << "RANDOM_PROGRAMS is FIRST:COUNT, not " << text;
  return {first, count, true};
}

using Values = std::vector<Bytes>;  // by value id, from the loop

// ---- Checks: "" where all is well.

std::string compiled(const RandomProgram& p, const Values& loop, uint64_t) { return run_compiled(p, {.runs = 2}, loop); }

std::string on_threads(const RandomProgram& p, const Values& loop, uint64_t seed) {
  for (const int threads : {2, seed % 2 == 0 ? 3 : 4}) {
    const std::string found = run_compiled(p, {.threads = threads}, loop);
    if (!found.empty()) return fmt::format("on {} threads, {}", threads, found);
  }
  return "";
}

std::string op_by_op(const RandomProgram& p, const Values& loop, uint64_t) {
  return run_compiled(p, {.passes = false, .fuse = false, .threads = 3}, loop);
}

std::string without(const RandomProgram& p, const Values& loop, const std::string& names) {
  const FlagScope scope("disable", names);
  const std::string found = run_compiled(p, {}, loop);
  return found.empty() ? "" : fmt::format("without {}, {}", names, found);
}

/// One part of the compiler left out, and one of the rules that did something here.
std::string in_parts(const RandomProgram& p, const Values& loop, uint64_t seed) {
  std::string rules;
  for (const std::string& name : pass_and_rule_names()) rules += name + ",";
  const std::string parts[] = {
      "simplify", "eliminate_common_subexpressions", "eliminate_dead_code", "fuse", "repeat_late", "write_parts", rules};
  const std::string found = without(p, loop, parts[seed % std::size(parts)]);
  if (!found.empty()) return found;
  std::set<std::string> hits;
  for (const PassStatistics& pass : run_pipeline(p.graph).passes)
    for (const auto& [name, count] : pass.hits) hits.insert(name);
  if (hits.empty()) return "";
  return without(p, loop, *std::next(hits.begin(), static_cast<std::ptrdiff_t>(seed / 7 % hits.size())));
}

std::string within_a_budget(const RandomProgram& p, const Values& loop, uint64_t seed) {
  return run_compiled(p, {.threads = 1 + static_cast<int>(seed % 2), .arena_part = seed % 3 == 0 ? 0.01 : 0.7}, loop);
}

std::string with_derived_inputs(const RandomProgram& p, const Values& loop, uint64_t) {
  return run_compiled(p, {.derive = true, .runs = 2}, loop);
}

std::string poisoned(const RandomProgram& p, const Values& loop, uint64_t seed) {
  const FlagScope poison("poison", "1"), verify("verify", "1");
  return run_compiled(p, {.threads = 1 + static_cast<int>(seed % 2), .arena_part = seed % 4 == 0 ? 0.5 : 0, .runs = 2}, loop);
}

std::string verified(const RandomProgram& p, const Values& loop, uint64_t) {
  const FlagScope verify("verify", "3");
  return p.smooth ? run_compiled(p, {}, loop) : "";
}

std::string as_text(const RandomProgram& p, const Values&, uint64_t) {
  const std::string text = print(p.graph);
  const Graph back = parse(text);
  verify(back);
  if (print(back) != text) return "its text comes back as\n" + print(back);
  for (size_t n = 0; n < p.graph.nodes().size(); ++n) {  // print() may say too little
    const Node &node = p.graph.nodes()[n], &other = back.nodes()[n];
    if (node.op != other.op || !(node.attrs == other.attrs) || node.checkpoint != other.checkpoint)
      return fmt::format("node {} ({}) comes back another", n, node.op->name);
  }
  return "";
}

double flushed(double x, DType dtype) {
  return dtype == DType::f64 || std::abs(x) >= 0x1p-126 || std::isnan(x) ? x : std::copysign(0.0, x);
}

/// Where the contract says no bits: within rounding of the double-precision reference, judged by the size of what went in.
std::string far_from(const RefArray& wanted, const RefArray& got, double scale) {
  const double step = got.type.dtype == DType::bf16 ? 0x1p-7 : 1e-4;
  for (size_t i = 0; i < got.data.size(); ++i) {
    const double x = got.data[i], y = wanted.data[i];
    if (!(std::abs(x - y) <= step * std::abs(y) + scale))
      return fmt::format("element {} is {:.9g}, the reference has {:.9g}", i, x, y);
  }
  return "";
}

std::string check_node(const Graph& graph, const Node& node, const Values& loop) {
  std::vector<RefArray> in;
  double largest = 1;
  bool any_bf16 = false;
  for (Value v : node.inputs) {
    in.push_back(as_reference(graph.type_of(v), loop[static_cast<size_t>(v.id)]));
    any_bf16 |= graph.type_of(v).dtype == DType::bf16;
    for (double x : in.back().data)
      if (is_floating(in.back().type.dtype)) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : HUGE_VAL);
  }
  const auto exact = by_contract(graph, node, in);
  const bool reference_too = !exact && largest < 100;  // larger ones may overflow, or cancel, on the way
  const auto reference = reference_too ? interpret_node(graph, node, in) : std::vector<RefArray>{};
  for (size_t r = 0; r < node.results.size(); ++r) {
    const Value v = node.results[r];
    const Type& type = graph.type_of(v);
    const RefArray got = as_reference(type, loop[static_cast<size_t>(v.id)]);
    if (reference_too) {
      const double scale = std::pow(largest, node.op->lowering == Lowering::kAttentionGrad ? 4 : 2) * (any_bf16 ? 0.1 : 1e-3);
      if (std::string found = far_from(reference[r], got, scale); !found.empty()) return found;
    }
    for (size_t i = 0; exact && i < got.data.size(); ++i) {
      const double x = flushed(got.data[i], type.dtype), y = flushed((*exact)[r].data[i], type.dtype);
      if (std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (std::isnan(x) && std::isnan(y))) continue;
      return fmt::format("element {} of {} is {:.9g} ({:a}), the contract's {:.9g} ({:a})", i, type.str(), x, x, y, y);
    }
  }
  return "";
}

std::string by_the_contract(const RandomProgram& p, const Values& loop, uint64_t) {
  for (const Node& node : p.graph.nodes()) {
    const std::string found = check_node(p.graph, node, loop);
    if (!found.empty()) return fmt::format("%{} = {}: {}", node.results[0].id, node.op->name, found);
  }
  return "";
}

struct Check {
  const char* name;
  std::string (*run)(const RandomProgram&, const Values& loop, uint64_t seed);
  uint64_t one_in;  // programs of the default run
};

constexpr Check kChecks[] = {{"compiled", compiled, 1},
                             {"on threads", on_threads, 1},
                             {"op by op", op_by_op, 3},
                             {"in parts", in_parts, 1},
                             {"within a budget", within_a_budget, 2},
                             {"with derived inputs", with_derived_inputs, 3},
                             {"poisoned", poisoned, 4},
                             {"verified", verified, 4},
                             {"as text", as_text, 1},
                             {"by the contract", by_the_contract, 2}};

std::string outcome(const Check& check, const RandomProgram& p, uint64_t seed) {
  try {
    return check.run(p, run_loop(p), seed);
  } catch (const std::exception& e) {
    return fmt::format("an exception: {}", e.what());
  }
}

void expect_same_bits(const RandomProgram& p, uint64_t seed, const Check& check, const Values& loop) {
  std::string found;
  try {
    found = check.run(p, loop, seed);
  } catch (const std::exception& e) {
    found = e.what();
  }
  if (found.empty()) return;
  const RandomProgram small = shrink(p, [&](const RandomProgram& q) { return !outcome(check, q, seed).empty(); });
  ADD_FAILURE() << "program " << seed << ", " << check.name << ": " << found << "\nmade smaller: " << outcome(check, small, seed)
                << "\n"
                << describe(small);
}

TEST(RandomPrograms, HaveTheSameBitsHoweverTheyRun) {
  const FlagScope one_thread("threads", "1");  // of the loop
  const Seeds seeds = wanted_seeds();
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    RandomProgram p;
    Values loop;
    try {
      p = random_program(seed);
      verify(p.graph);
      loop = run_loop(p);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "program " << seed << ": " << e.what() << "\n" << describe(p);
      continue;
    }
    for (size_t c = 0; c < std::size(kChecks); ++c)
      if (seeds.all_checks || (seed + c) % kChecks[c].one_in == 0) expect_same_bits(p, seed, kChecks[c], loop);
  }
}

}  // namespace
}  // namespace ws::test
