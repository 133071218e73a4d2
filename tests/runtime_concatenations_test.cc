// Concatenations whose parts are written in place: the bits of copied ones, along every axis, by loops and by store holes of products;
// what has another reader, or is no result of a loop, is copied as before.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <random>

#include "ir/graph.h"
#include "runtime/executable.h"
#include "support/flags.h"

namespace ws {
namespace {

struct Result {
  std::vector<std::vector<float>> outputs;
  int in_place = 0, copied = 0;  // parts
  double copied_bytes = 0;
  int64_t temporary_bytes = 0;
};

Result run(const std::string& text, int threads) {
  const Graph g = parse(text);
  const auto e = Executable::compile(g, {.fuse = true, .num_threads = threads, .input_layouts = {}});
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> inputs;
  std::vector<void*> in, out;
  for (const GraphInput& i : g.inputs()) {
    inputs.emplace_back(static_cast<size_t>(g.type_of(i.value).shape.num_elements()));
    for (float& x : inputs.back()) x = normal(random);
  }
  for (auto& x : inputs) in.push_back(x.data());
  Result r;
  for (const GraphOutput& o : g.outputs()) r.outputs.emplace_back(static_cast<size_t>(g.type_of(o.value).shape.num_elements()));
  for (auto& x : r.outputs) out.push_back(x.data());
  e->run(in.data(), out.data());
  e->run(in.data(), out.data());
  r.temporary_bytes = e->plan().arena_bytes;
  for (const KernelCall& call : e->program().calls) {
    const auto* library = std::get_if<LibraryCall>(&call.what);
    if (library == nullptr || library->op == nullptr || library->op->lowering != Lowering::kConcatenate) continue;
    for (size_t i = 0; i + 1 < library->views.size(); ++i)
      ++(library->views[i].buffer == library->views.back().buffer ? r.in_place : r.copied);
    r.copied_bytes += call.cost.bytes;
  }
  return r;
}

/// Runs with and without, on 1 and 3 threads, plain and under every check; all must agree. Returns the result with.
Result expect_same(const std::string& text) {
  const FlagScope off("disable", "write_parts");
  const Result copied = run(text, 1);
  EXPECT_EQ(copied.in_place, 0);
  const FlagScope on("disable", "");
  const Result written = run(text, 1);
  EXPECT_EQ(written.outputs, copied.outputs);
  EXPECT_EQ(run(text, 3).outputs, copied.outputs);
  EXPECT_LE(written.temporary_bytes, copied.temporary_bytes);
  const FlagScope verify("verify", "3"), poison("poison", "1"), nan("nan_check", "1");
  EXPECT_EQ(run(text, 2).outputs, copied.outputs);
  return written;
}

// Parts of sizes 2, 3 and 1 along `axis` of [.., .., ..]; the whole is read by a product's transpose and by a loop.
std::string along(int axis) {
  std::vector<int64_t> dims = {4, 6, 8}, whole = dims;
  const auto text_of = [](const std::vector<int64_t>& d) { return fmt::format("f32[{}, {}, {}]", d[0], d[1], d[2]); };
  std::string inputs, body, names;
  int64_t total = 0;
  for (int i = 0; i < 3; ++i) {
    dims[static_cast<size_t>(axis)] = std::vector<int64_t>{2, 3, 1}[static_cast<size_t>(i)];
    total += dims[static_cast<size_t>(axis)];
    inputs += fmt::format("{}%x{}: {}", i == 0 ? "" : ", ", i, text_of(dims));
    body += fmt::format("  %p{0} = {1} %x{0} : {2}\n", i, i == 1 ? "exp" : "tanh", text_of(dims));
    names += fmt::format("{}%p{}", i == 0 ? "" : ", ", i);
  }
  whole[static_cast<size_t>(axis)] = total;
  return fmt::format(
      "graph main({}) {{\n{}  %c = concatenate {} {{axis = {}}} : {}\n  %y = reduce_sum %c {{first_axis = 2, num_axes = 1}} "
      ": f32[{}, {}]\n  %s = swap_pairs %c : {}\n  return %y \"y\", %s \"s\"\n}}",
      inputs, body, names, axis, text_of(whole), whole[0], whole[1], text_of(whole));
}

TEST(Concatenations, AlongEveryAxis) {
  for (int axis : {0, 1, 2}) {
    const Result r = expect_same(along(axis));
    EXPECT_EQ(r.in_place + r.copied, 3);
    EXPECT_GE(r.in_place, 2) << axis;  // a single column is left to the copy
    EXPECT_EQ(r.copied_bytes == 0, r.copied == 0);
  }
}

TEST(Concatenations, AHoleOfAProductWritesIntoIt) {
  const Result r = expect_same(R"(graph main(%x: f32[512, 24], %w: f32[24, 64], %z: f32[512, 16]) {
    %p = matmul %x, %w {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[512, 64]
    %h = relu %p : f32[512, 64]
    %n = neg %z : f32[512, 16]
    %c = concatenate %n, %h, %n {axis = 1} : f32[512, 96]
    %q = matmul %c, %c {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[96, 96]
    return %q "q"
  })");
  EXPECT_EQ(r.in_place, 1);
  EXPECT_EQ(r.copied, 2);  // one value twice
}

TEST(Concatenations, WhatIsReadElsewhereIsCopied) {
  const Result r = expect_same(R"(graph main(%x: f32[8, 16], %y: f32[8, 16]) {
    %a = exp %x : f32[8, 16]
    %b = tanh %y : f32[8, 16]
    %k = sin %y : f32[8, 16]
    %c = concatenate %a, %x, %b, %k {axis = 0} : f32[32, 16]
    %d = swap_pairs %c : f32[32, 16]
    %e = swap_pairs %a : f32[8, 16]
    return %d "d", %e "e", %k "k"
  })");
  EXPECT_EQ(r.in_place, 1);  // b: a has a reader, x is an input, k an output
  EXPECT_EQ(r.copied, 3);
}

TEST(Concatenations, ThatAreOutputsAreCopied) {
  const Result r = expect_same(R"(graph main(%x: f32[8, 16]) {
    %a = exp %x : f32[8, 16]
    %b = tanh %x : f32[8, 16]
    %c = concatenate %a, %b {axis = 1} : f32[8, 32]
    return %c "c"
  })");
  EXPECT_EQ(r.in_place, 0);
}

}  // namespace
}  // namespace ws
