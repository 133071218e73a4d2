// partition: the graphs of all ranks, interpreted side by side with their collectives done, give what the whole graph gives.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/graph.h"
#include "passes/fill_buckets.h"
#include "passes/partition.h"
#include "support/communicator.h"
#include "support/error.h"

namespace ws {
namespace {

std::vector<Graph> split(const Graph& graph, std::vector<bool> batches, int ranks) {
  std::vector<Graph> parts;
  for (int r = 0; r < ranks; ++r) {
    parts.push_back(partition(graph, {r, ranks, batches}));
    verify(parts.back());
  }
  return parts;
}

/// Runs every rank to its next collective, meets there, goes on.
class Lockstep {
 public:
  Lockstep(const std::vector<Graph>& parts, std::span<const RefArray> inputs) : parts_(parts) {
    for (const Graph& g : parts) {
      values_.emplace_back(static_cast<size_t>(g.num_values()));
      for (size_t i = 0; i < g.inputs().size(); ++i) values_.back()[static_cast<size_t>(g.inputs()[i].value.id)] = inputs[i];
    }
    next_.assign(parts.size(), 0);
  }
  void run() {
    while (advance()) meet();
  }
  RefArray output(size_t rank, size_t i) const { return values_[rank][static_cast<size_t>(parts_[rank].outputs()[i].value.id)]; }

 private:
  const Node& node(size_t r) const { return parts_[r].nodes()[next_[r]]; }
  bool advance() {
    bool waiting = false;
    for (size_t r = 0; r < parts_.size(); ++r)
      for (; next_[r] < parts_[r].nodes().size(); ++next_[r]) {
        if (node(r).op->lowering == Lowering::kCollective) {
          waiting = true;
          break;
        }
        std::vector<RefArray> in;
        for (Value v : node(r).inputs) in.push_back(values_[r][static_cast<size_t>(v.id)]);
        auto out = interpret_node(parts_[r], node(r), in);
        for (size_t i = 0; i < out.size(); ++i) values_[r][static_cast<size_t>(node(r).results[i].id)] = std::move(out[i]);
      }
    return waiting;
  }
  void meet() {
    RefArray result{parts_[0].type_of(node(0).results[0]), {}};
    for (size_t r = 0; r < parts_.size(); ++r) {
      ASSERT_EQ(node(r).op, node(0).op);
      ASSERT_EQ(node(r).attrs, node(0).attrs) << "ranks meet in different collectives";
      const RefArray& mine = values_[r][static_cast<size_t>(node(r).inputs[0].id)];
      if (node(0).op->name == "all_gather") {
        result.data.insert(result.data.end(), mine.data.begin(), mine.data.end());
      } else if (r == 0) {
        result.data = mine.data;
      } else {
        for (size_t i = 0; i < mine.data.size(); ++i)
          result.data[i] = node(0).attrs.flag("maximum") ? std::max(result.data[i], mine.data[i]) : result.data[i] + mine.data[i];
      }
    }
    for (size_t r = 0; r < parts_.size(); ++r) values_[r][static_cast<size_t>(node(r).results[0].id)] = result, ++next_[r];
  }

  const std::vector<Graph>& parts_;
  std::vector<std::vector<RefArray>> values_;
  std::vector<size_t> next_;
};

std::vector<RefArray> random_inputs(const Graph& graph) {
  std::mt19937 random(1);
  std::vector<RefArray> inputs;
  for (const GraphInput& in : graph.inputs()) {
    RefArray a{graph.type_of(in.value), {}};
    for (int64_t i = 0; i < a.type.shape.num_elements(); ++i)
      a.data.push_back(is_floating(a.type.dtype) ? std::uniform_real_distribution<>(-2, 2)(random)
                                                 : static_cast<double>(random() % 3));
    inputs.push_back(std::move(a));
  }
  return inputs;
}

int count(const Graph& graph, std::string_view op) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.op->name == op;
  return n;
}

/// On 1 to 5 ranks (batches of 4 rows: also a rank without any); returns the graph of rank 0 of 2.
Graph check(const std::string& text, const std::vector<bool>& batches) {
  const Graph graph = parse(text);
  const std::vector<RefArray> inputs = random_inputs(graph);
  const std::vector<RefArray> want = interpret(graph, inputs);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const std::vector<Graph> parts = split(graph, batches, ranks);
    Lockstep all(parts, inputs);
    all.run();
    for (size_t r = 0; r < parts.size(); ++r)
      for (size_t i = 0; i < want.size(); ++i) {
        const RefArray got = all.output(r, i);
        EXPECT_EQ(got.type, want[i].type);
        EXPECT_EQ(got.data.size(), want[i].data.size());
        for (size_t j = 0; j < std::min(got.data.size(), want[i].data.size()); ++j)
          EXPECT_NEAR(got.data[j], want[i].data[j], 1e-9 * (1 + std::abs(want[i].data[j])))
              << "rank " << r << " of " << ranks << ", output " << i << ", element " << j;
      }
  }
  return split(graph, batches, 2)[0];
}

TEST(Partition, ProductsOverTheBatchBecomeOneAllReduceEach) {
  const Graph g = check(R"(graph step(%x: f32[4, 3], %g: f32[4, 2], %w: f32[3, 2]) {
  %3 = matmul %x, %w {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[4, 2]
  %4 = mul %3, %g : f32[4, 2]
  %5 = matmul %x, %4 {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[3, 2]
  %6 = reduce_sum %4 {first_axis = 0, num_axes = 2} : f32[]
  %7 = sub %w, %5 : f32[3, 2]
  return %7 "w", %6 "loss", %3 "prediction"
})",
                        {true, true, false});
  EXPECT_EQ(count(g, "all_reduce"), 2);
  EXPECT_EQ(count(g, "all_gather"), 1);  // the prediction
}

// A weight used twice travels once.
TEST(Partition, SummandsAreAddedBeforeTheyTravel) {
  const Graph g = check(R"(graph tied(%x: f32[4, 3], %g: f32[4, 3], %i: i32[4]) {
  %3 = matmul %x, %g {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[3, 3]
  %4 = scatter_add %i, %g {rows = 3} : f32[3, 3]
  %5 = transpose %3 {permutation = [1, 0]} : f32[3, 3]
  %6 = add %4, %5 : f32[3, 3]
  return %6 "grad"
})",
                        {true, true, true});
  EXPECT_EQ(count(g, "all_reduce"), 1);
}

TEST(Partition, ViewsKeepTheRows) {
  const Graph g = check(R"(graph views(%x: f32[4, 6, 2], %b: f32[6, 1]) {
  %2 = reshape %x {shape = [24, 2]} : f32[24, 2]
  %3 = reshape %2 {shape = [4, 1, 3, 2, 2]} : f32[4, 1, 3, 2, 2]
  %4 = transpose %3 {permutation = [2, 0, 1, 4, 3]} : f32[3, 4, 1, 2, 2]
  %5 = reduce_sum %4 {first_axis = 0, num_axes = 1} : f32[4, 1, 2, 2]
  %6 = broadcast %5 {shape = [2, 4, 3, 2, 2]} : f32[2, 4, 3, 2, 2]
  %7 = slice %6 {starts = [0, 0, 1, 0, 0], stops = [2, 4, 3, 2, 2], steps = [1, 1, 1, 1, 1]} : f32[2, 4, 2, 2, 2]
  %8 = reduce_max %7 {first_axis = 2, num_axes = 3} : f32[2, 4]
  %9 = broadcast %b {shape = [4, 6, 2]} : f32[4, 6, 2]
  %10 = mul %x, %9 : f32[4, 6, 2]
  %11 = reduce_max %10 {first_axis = 0, num_axes = 2} : f32[2]
  return %8 "y", %11 "max"
})",
                        {true, false});
  EXPECT_EQ(count(g, "all_gather"), 1);
  EXPECT_EQ(count(g, "all_reduce"), 1);
}

// Words of the whole batch, made for this rank's rows alone; indices, tables, attention, mixing along the batch.
TEST(Partition, RandomBitsAreThoseOfOneProcess) {
  const Graph g = check(R"(graph dropout(%x: f32[4, 5], %k: u32[]) {
  %2 = broadcast %k {shape = [4, 5]} : u32[4, 5]
  %3 = random_bits %2, %2 {offset = 0, stream = 3} : u32[4, 5]
  %4 = constant {dtype = u32, value = 2147483648} : u32[]
  %5 = broadcast %4 {shape = [4, 5]} : u32[4, 5]
  %6 = lt %3, %5 : bool[4, 5]
  %7 = sub %x, %x : f32[4, 5]
  %8 = select %6, %x, %7 : f32[4, 5]
  return %8 "y"
})",
                        {true, false});
  for (const Node& node : g.nodes())
    if (node.op->name == "random_bits") {
      EXPECT_EQ(g.type_of(node.results[0]).shape[0], 2);
    }
  EXPECT_EQ(count(g, "random_bits"), 1);
}

// Dropped weights are drawn by their place in the whole batch; the mask is made for this rank's rows.
TEST(Partition, MaskedAttentionKeepsTheRows) {
  const Graph g = check(R"(graph masked(%q: f32[4, 3, 2, 2], %m: f32[4, 1, 1, 3], %k: u32[]) {
  %3 = constant {dtype = f32, value = 0} : f32[]
  %4 = broadcast %3 {shape = [4, 1, 1, 3]} : f32[4, 1, 1, 3]
  %5 = lt %4, %m : bool[4, 1, 1, 3]
  %6 = broadcast %5 {shape = [4, 2, 3, 3]} : bool[4, 2, 3, 3]
  %7, %8, %9 = attention_masked %q, %q, %q, %6, %k, %k {causal = false, dropout = 0.3, first_row = 0, scale = 0.5} : f32[4, 3, 2, 2], f32[4, 2, 3], f32[4, 2, 3]
  %10, %11, %12 = attention_masked_grad %q, %q, %q, %6, %k, %k, %8, %9, %7 {causal = false, dropout = 0.3, first_row = 0, scale = 0.5} : f32[4, 3, 2, 2], f32[4, 3, 2, 2], f32[4, 3, 2, 2]
  %13 = mul %10, %11 : f32[4, 3, 2, 2]
  %14 = reduce_sum %13 {first_axis = 0, num_axes = 1} : f32[3, 2, 2]
  return %14 "sum"
})",
                        {true, true, false});
  EXPECT_EQ(count(g, "all_gather"), 0);
  EXPECT_EQ(count(g, "all_reduce"), 1);
}

constexpr const char* kStep = R"(graph step(%x: f32[4, 3], %g: f32[4, 5], %w: f32[3, 5], %m: f32[3, 5], %b: f32[5]) {
  %5 = matmul %x, %g {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[3, 5]
  %6 = add %m, %5 : f32[3, 5]
  %7 = sub %w, %6 : f32[3, 5]
  %8 = reduce_sum %g {first_axis = 0, num_axes = 1} : f32[5]
  %9 = sub %b, %8 : f32[5]
  %10 = reduce_sum %g {first_axis = 0, num_axes = 2} : f32[]
  return %7 "next/w" donates 2, %6 "next/m" donates 3, %9 "next/b" donates 4, %10 "loss"
})";

// Momentum kept in part: its rows come and go as they are, the weights are put together from updated rows.
TEST(Partition, ShardedStateStaysInPart) {
  const Graph whole = parse(kStep);
  for (int rank = 0; rank < 2; ++rank) {
    const Graph g = partition(
        whole, {rank, 2, {true, true, false, false, false}, {false, false, false, true, false}, {false, true, false, false}});
    verify(g);
    const Shape rows{rank == 0 ? 2 : 1, 5};
    EXPECT_EQ(g.type_of(g.inputs()[3].value).shape, rows);
    EXPECT_EQ(g.type_of(g.outputs()[1].value).shape, rows);
    EXPECT_EQ(g.type_of(g.outputs()[0].value).shape, Shape({3, 5}));
    EXPECT_EQ(count(g, "all_gather"), 1);
    EXPECT_EQ(count(g, "all_reduce"), 3);
  }
}

/// By all-reduce.
std::vector<int64_t> buckets_of(const Graph& graph, int64_t bucket_bytes) {
  const Graph filled = fill_buckets(graph, bucket_bytes);
  std::vector<int64_t> found;
  for (const Node& node : filled.nodes())
    if (node.op->name == "all_reduce") found.push_back(node.attrs.integer("bucket"));
  return found;
}

// A sum of summands travels once, also where only its rows are wanted.
TEST(Partition, ShardedStateDoesNotSplitSumsOfSummands) {
  const Graph whole = parse(R"(graph tied(%x: f32[4, 3], %g: f32[4, 3], %i: i32[4], %m: f32[3, 3]) {
  %4 = matmul %x, %g {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[3, 3]
  %5 = scatter_add %i, %g {rows = 3} : f32[3, 3]
  %6 = add %5, %4 : f32[3, 3]
  %7 = add %m, %6 : f32[3, 3]
  return %7 "next/m" donates 3
})");
  const Graph g = partition(whole, {0, 2, {true, true, true, false}, {false, false, false, true}, {true}});
  EXPECT_EQ(count(g, "all_reduce"), 1);
  EXPECT_EQ(count(g, "all_gather"), 0);
}

TEST(FillBuckets, GradientsTravelTogetherAndTheLossAlone) {
  const Graph g = partition(parse(kStep), {0, 2, {true, true, false, false, false}});
  EXPECT_EQ(buckets_of(g, 1 << 20), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(buckets_of(g, 61), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(buckets_of(g, 60), (std::vector<int64_t>{1, 2, 0}));
}

// A loss that is added to state may travel late, but is checked before anything else: its bucket ends there.
TEST(FillBuckets, AChecksBucketEndsBeforeIt) {
  const Graph g = partition(parse(R"(graph sums(%x: f32[4, 3], %m: f32[], %w: f32[3]) {
  %3 = reduce_sum %x {first_axis = 0, num_axes = 2} : f32[]
  %4 = check_finite %3 {what = "loss"} : f32[]
  %5 = add %m, %4 : f32[]
  %6 = reduce_sum %x {first_axis = 0, num_axes = 1} : f32[3]
  %7 = sub %w, %6 : f32[3]
  return %5 "next/m" donates 1, %7 "next/w" donates 2
})"),
                            {0, 2, {true, false, false}});
  EXPECT_EQ(buckets_of(g, 1 << 20), (std::vector<int64_t>{1, 2}));
}

// What the backward pass itself waits for (a sum that another all-reduce needs) does not travel late.
TEST(FillBuckets, SumsThatOthersNeedAreNotPutOff) {
  const Graph g = partition(parse(R"(graph norm(%x: f32[4, 3], %m: f32[3], %w: f32[3]) {
  %3 = reduce_sum %x {first_axis = 0, num_axes = 1} : f32[3]
  %4 = add %m, %3 : f32[3]
  %5 = broadcast %3 {shape = [4, 3]} : f32[4, 3]
  %6 = mul %x, %5 : f32[4, 3]
  %7 = reduce_sum %6 {first_axis = 0, num_axes = 1} : f32[3]
  %8 = sub %w, %7 : f32[3]
  return %4 "next/m" donates 1, %8 "next/w" donates 2
})"),
                            {0, 2, {true, false, false}});
  EXPECT_EQ(buckets_of(g, 1), (std::vector<int64_t>{0, 1}));
}

TEST(Partition, WhatMixesRowsIsGatheredFirst) {
  check(R"(graph mix(%x: f32[4, 3], %t: f32[3, 3], %i: i32[4]) {
  %3 = gather %t, %i : f32[4, 3]
  %4 = add %x, %3 : f32[4, 3]
  %5 = slice %4 {starts = [1, 0], stops = [4, 3], steps = [2, 1]} : f32[2, 3]
  %6 = concatenate %4, %x {axis = 0} : f32[8, 3]
  %7 = reshape %4 {shape = [2, 6]} : f32[2, 6]
  %8 = gather %x, %i : f32[4, 3]
  %9 = pad %x {high = [0, 1], interior = [0, 0], low = [0, 0]} : f32[4, 4]
  return %5 "a", %6 "b", %7 "c", %8 "d", %9 "e"
})",
        {true, false, true});
}

}  // namespace
}  // namespace ws
