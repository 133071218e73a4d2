// Values with early and late readers: made twice, kept in memory for neither reader's sake, with the same bits.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "ir/graph.h"
#include "runtime/executable.h"
#include "support/flags.h"

namespace ws {
namespace {

// `blocks` forward, `depth` products, and back. Each block's h = sigmoid(a) * a and q = swap_pairs(a) * w are read at once and on the
// way back: h by a product, after a hole that reads a and gives h away; q by a routine that reads a as well.
std::string text(int blocks, int depth) {
  std::string s = "graph main(%0 \"x\": f32[256, 256], %1 \"w\": f32[256, 256]) {\n";
  int last = 1;
  const auto op = [&](const std::string& what, int rows = 256) {
    s += fmt::format("  %{} = {} : f32[{}, 256]\n", ++last, what, rows);
    return last;
  };
  const auto product = [&](int a, int b, bool transpose_a = false) {
    return op(fmt::format("matmul %{}, %{} {{out_dtype = f32, transpose_a = {}, transpose_b = false}}", a, b, transpose_a));
  };
  const auto binary = [&](const char* name, int a, int b) { return op(fmt::format("{} %{}, %{}", name, a, b)); };
  struct Block {
    int a, h, q;
  };
  std::vector<Block> made;
  int x = 0;
  for (int i = 0; i < blocks; ++i) {
    const int a = product(x, 1), h = binary("mul", op(fmt::format("sigmoid %{}", a)), a);
    const int q = binary("mul", op(fmt::format("swap_pairs %{}", a)), 1);
    made.push_back({a, h, q});
    x = product(h, q);
  }
  for (int i = 0; i < depth; ++i) x = product(op(fmt::format("tanh %{}", x)), 1);
  int sum = -1;
  for (; !made.empty(); made.pop_back()) {
    const auto [a, h, q] = made.back();
    x = binary("mul", product(x, 1), a);
    const int both = op(fmt::format("concatenate %{}, %{} {{axis = 0}}", q, a), 512);
    const int grad = binary("add", product(h, x, true), product(both, both, true));
    sum = sum < 0 ? grad : binary("add", sum, grad);
  }
  return s + fmt::format("  return %{} \"sum\", %{} \"x\"\n}}", sum, x);
}

struct Result {
  std::vector<std::vector<float>> outputs;
  int copies = 0;
  int64_t temporary_bytes = 0;
};

Result run(const Graph& g, int threads) {
  const auto e = Executable::compile(g, {.fuse = true, .num_threads = threads, .input_layouts = {}});
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<std::vector<float>> inputs(2, std::vector<float>(size_t{256} * 256));
  for (auto& input : inputs)
    for (float& x : input) x = normal(random);
  Result r;
  for (const GraphOutput& o : g.outputs()) r.outputs.emplace_back(static_cast<size_t>(g.type_of(o.value).shape.num_elements()));
  void* in[] = {inputs[0].data(), inputs[1].data()};
  void* out[] = {r.outputs[0].data(), r.outputs[1].data()};
  e->run(in, out);
  r.temporary_bytes = e->plan().arena_bytes;
  for (const ProgramBuffer& b : e->program().buffers) r.copies += b.name.ends_with("again") ? 1 : 0;
  return r;
}

TEST(RepeatLate, LateReadersGetACopyOfTheirOwn) {
  constexpr int kBlocks = 4;
  const Graph g = parse(text(kBlocks, 20));
  for (const int threads : {1, 3}) {
    const Result again = run(g, threads);
    const FlagScope without("disable", "repeat_late");
    const Result kept = run(g, threads);
    EXPECT_EQ(again.copies, 2 * kBlocks);
    EXPECT_EQ(kept.copies, 0);
    EXPECT_LE(again.temporary_bytes, kept.temporary_bytes - (2 * kBlocks - 2) * 256 * 256 * 4);
    EXPECT_EQ(again.outputs, kept.outputs);
  }
}

TEST(RepeatLate, ReadersNearbyShareOne) { EXPECT_EQ(run(parse(text(1, 3)), 1).copies, 0); }

// d is read by two loops; the rounded gradient, made of it, by a product after both: the second loop makes the gradient for its sum
// anyway and stores it, not the hole.
TEST(RepeatLate, AValueIsStoredWhereItIsNextMade) {
  const Graph g = parse(R"(graph main(%0 "x": f32[256, 256], %1 "w": f32[256, 256]) {
    %2 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[256, 256]
    %3 = sub %2, %1 : f32[256, 256]
    %4 = square %3 : f32[256, 256]
    %5 = reduce_sum %4 {first_axis = 0, num_axes = 2} : f32[]
    %6 = add %3, %3 : f32[256, 256]
    %7 = reduce_sum %6 {first_axis = 0, num_axes = 1} : f32[256]
    %8 = tanh %6 : f32[256, 256]
    %9 = matmul %8, %8 {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[256, 256]
    %10 = broadcast %5 {shape = [256]} : f32[256]
    %11 = add %7, %10 : f32[256]
    return %9 "out", %11 "sums"
  })");
  const auto writer = [&](const Program& p) {
    for (const KernelCall& call : p.calls)
      for (int b : call.writes)
        if (p.buffers[static_cast<size_t>(b)].name == "%8 tanh") return call.name;
    return std::string();
  };
  const auto compile = [&] { return Executable::compile(g, {.fuse = true, .num_threads = 1, .input_layouts = {}}); };
  EXPECT_EQ(writer(compile()->program()), "add+reduce_sum+tanh");
  const Result later = run(g, 2);
  EXPECT_EQ(later.copies, 0);
  const FlagScope without("disable", "repeat_late");
  EXPECT_EQ(writer(compile()->program()), "matmul+sub+add+tanh");
  const Result at_once = run(g, 2);
  EXPECT_EQ(later.outputs, at_once.outputs);
}

}  // namespace
}  // namespace ws
