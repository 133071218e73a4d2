// Graphs through schedule, plan, code and run: against the double-precision interpreter, and fused against unfused bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ir/graph.h"
#include "runtime/executable.h"
#include "support/bf16.h"
#include "support/error.h"
#include "support/flags.h"

namespace ws {
namespace {

using Bytes = std::vector<char>;

Bytes random_input(const Type& t, std::mt19937& rng) {
  Bytes bytes(static_cast<size_t>(t.num_bytes()) + 64);
  std::uniform_real_distribution<float> real(-2, 2);
  for (int64_t i = 0; i < t.shape.num_elements(); ++i) {
    if (t.dtype == DType::f32)
      reinterpret_cast<float*>(bytes.data())[i] = real(rng);
    else if (t.dtype == DType::bf16)
      reinterpret_cast<Bf16*>(bytes.data())[i] = narrow(real(rng));
    else if (t.dtype == DType::f64)
      reinterpret_cast<double*>(bytes.data())[i] = real(rng);
    else if (t.dtype == DType::boolean)
      bytes[static_cast<size_t>(i)] = static_cast<char>(rng() % 2);
    else
      reinterpret_cast<int32_t*>(bytes.data())[i] = static_cast<int32_t>(rng() % 3);
  }
  return bytes;
}

RefArray as_reference(const Type& t, const Bytes& bytes) {
  RefArray r{t, std::vector<double>(static_cast<size_t>(t.shape.num_elements()))};
  for (size_t i = 0; i < r.data.size(); ++i) {
    if (t.dtype == DType::f32)
      r.data[i] = static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
    else if (t.dtype == DType::bf16)
      r.data[i] = static_cast<double>(widen(reinterpret_cast<const Bf16*>(bytes.data())[i]));
    else if (t.dtype == DType::f64)
      r.data[i] = reinterpret_cast<const double*>(bytes.data())[i];
    else if (t.dtype == DType::boolean)
      r.data[i] = bytes[i];
    else
      r.data[i] = reinterpret_cast<const int32_t*>(bytes.data())[i];
  }
  return r;
}

/// Runs the graph; donated outputs come back from the inputs' memory.
std::vector<Bytes> run(const Graph& g, std::vector<Bytes> inputs, bool fuse, int threads) {
  auto e = Executable::compile(g, {.fuse = fuse, .num_threads = threads, .input_layouts = {}});
  std::vector<void*> in, out;
  for (Bytes& b : inputs) in.push_back(b.data());
  std::vector<Bytes> outputs;
  for (const GraphOutput& o : g.outputs()) outputs.emplace_back(static_cast<size_t>(g.type_of(o.value).num_bytes()) + 64, '\x5a');
  for (size_t i = 0; i < outputs.size(); ++i) out.push_back(g.outputs()[i].donates_input >= 0 ? nullptr : outputs[i].data());
  e->run(in.data(), out.data());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (const int d = g.outputs()[i].donates_input; d >= 0) outputs[i] = inputs[static_cast<size_t>(d)];
  return outputs;
}

void expect_right(const Graph& g, double tolerance = 2e-5) {
  std::mt19937 rng(7);
  std::vector<Bytes> inputs;
  std::vector<RefArray> reference_inputs;
  for (const GraphInput& in : g.inputs()) {
    inputs.push_back(random_input(g.type_of(in.value), rng));
    reference_inputs.push_back(as_reference(g.type_of(in.value), inputs.back()));
  }
  const std::vector<RefArray> expected = interpret(g, reference_inputs);
  const std::vector<Bytes> fused = run(g, inputs, true, 1), unfused = run(g, inputs, false, 1),
                           threaded = run(g, inputs, true, 3);
  for (size_t o = 0; o < expected.size(); ++o) {
    const Type t = g.type_of(g.outputs()[o].value);
    const auto n = static_cast<size_t>(t.num_bytes());
    EXPECT_EQ(std::memcmp(fused[o].data(), unfused[o].data(), n), 0) << "fusing changed bits of output " << o << "\n" << print(g);
    EXPECT_EQ(std::memcmp(fused[o].data(), threaded[o].data(), n), 0) << "threads changed bits of output " << o << "\n"
                                                                      << print(g);
    const RefArray got = as_reference(t, fused[o]);
    for (size_t i = 0; i < got.data.size(); ++i) {
      const double e = expected[o].data[i];
      ASSERT_NEAR(got.data[i], e, tolerance * (1 + std::abs(e))) << "output " << o << " element " << i << "\n" << print(g);
    }
  }
}

TEST(Executable, ElementwiseAndBroadcast) {
  expect_right(parse(R"(graph main(%0 "x": f32[5, 33], %1 "b": f32[33], %2 "c": f32[5, 1]) {
    %3 = broadcast %1 {shape = [5, 33]} : f32[5, 33]
    %4 = add %0, %3 : f32[5, 33]
    %5 = relu %4 : f32[5, 33]
    %6 = broadcast %2 {shape = [5, 33]} : f32[5, 33]
    %7 = mul %5, %6 : f32[5, 33]
    return %7 "y", %5 "r"
  })"));
}

TEST(Executable, RowReductionsFuse) {
  const Graph g = parse(R"(graph main(%0 "x": f32[6, 70]) {
    %1 = reduce_max %0 {first_axis = 1, num_axes = 1} : f32[6]
    %2 = reshape %1 {shape = [6, 1]} : f32[6, 1]
    %3 = broadcast %2 {shape = [6, 70]} : f32[6, 70]
    %4 = sub %0, %3 : f32[6, 70]
    %5 = exp %4 : f32[6, 70]
    %6 = reduce_sum %5 {first_axis = 1, num_axes = 1} : f32[6]
    %7 = reshape %6 {shape = [6, 1]} : f32[6, 1]
    %8 = broadcast %7 {shape = [6, 70]} : f32[6, 70]
    %9 = div %5, %8 : f32[6, 70]
    return %9 "softmax"
  })");
  expect_right(g);
  auto e = Executable::compile(g, {});
  EXPECT_EQ(e->program().calls.size(), 1u) << print(e->program());
  EXPECT_EQ(e->plan().arena_bytes, 0);
}

TEST(Executable, ProductWithHoleAndColumnSum) {
  const Graph g = parse(R"(graph main(%0 "x": f32[130, 40], %1 "w": f32[40, 50], %2 "b": f32[50]) {
    %3 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[130, 50]
    %4 = broadcast %2 {shape = [130, 50]} : f32[130, 50]
    %5 = add %3, %4 : f32[130, 50]
    %6 = relu %5 : f32[130, 50]
    %7 = reduce_sum %6 {first_axis = 0, num_axes = 1} : f32[50]
    return %6 "y", %7 "columns"
  })");
  expect_right(g, 1e-4);
  auto e = Executable::compile(g, {});
  EXPECT_EQ(e->program().calls.size(), 3u) << print(e->program());  // gemm+add+relu, blocks, fold
}

TEST(Executable, WholeSumOfManyBlocks) {
  expect_right(parse(R"(graph main(%0 "x": f32[130, 100]) {
    %1 = square %0 : f32[130, 100]
    %2 = reduce_sum %1 {first_axis = 0, num_axes = 2} : f32[]
    %3 = sqrt %2 : f32[]
    return %3 "norm"
  })"),
               1e-4);
}

TEST(Executable, DonatedStateIsWrittenInPlace) {
  const Graph g = parse(R"(graph main(%0 "w": f32[40, 3], %1 "g": f32[40, 3], %2 "lr": f32[]) {
    %3 = broadcast %2 {shape = [40, 3]} : f32[40, 3]
    %4 = mul %1, %3 : f32[40, 3]
    %5 = sub %0, %4 : f32[40, 3]
    return %5 "w" donates 0
  })");
  expect_right(g);
  auto e = Executable::compile(g, {});
  EXPECT_EQ(e->program().calls.size(), 1u);
  EXPECT_EQ(e->plan().arena_bytes, 0);
}

// The old value is needed after the new one is known: swap two states.
TEST(Executable, StatesMaySwap) {
  expect_right(parse(R"(graph main(%0 "a": f32[40], %1 "b": f32[40]) {
    %2 = exp %0 : f32[40]
    %3 = exp %1 : f32[40]
    return %3 "a" donates 0, %2 "b" donates 1, %0 "old"
  })"));
}

TEST(Executable, AFailedCheckLeavesStateAlone) {
  const Graph g = parse(R"(graph main(%0 "w": f32[8], %1 "loss": f32[]) {
    %2 = check_finite %1 {what = "loss"} : f32[]
    %3 = exp %0 : f32[8]
    return %3 "w" donates 0, %2 "loss"
  })");
  auto e = Executable::compile(g, {});
  std::vector<float> w(8, 1.0f), loss = {NAN}, out(1);
  void* in[] = {w.data(), loss.data()};
  void* outputs[] = {nullptr, out.data()};
  EXPECT_THROW(e->run(in, outputs), RuntimeError);
  for (float x : w) EXPECT_EQ(x, 1.0f);
  loss[0] = 2;
  e->run(in, outputs);
  EXPECT_NE(w[0], 1.0f);
}

TEST(Executable, MiddleAxesAndViews) {
  expect_right(parse(R"(graph main(%0 "x": f32[3, 70, 8], %1 "y": f32[8, 3]) {
    %2 = reduce_sum %0 {first_axis = 1, num_axes = 1} : f32[3, 8]
    %3 = transpose %1 {permutation = [1, 0]} : f32[3, 8]
    %4 = mul %2, %3 : f32[3, 8]
    %5 = slice %0 {starts = [0, 2, 0], stops = [3, 64, 8], steps = [1, 3, 2]} : f32[3, 21, 4]
    %6 = reshape %5 {shape = [63, 4]} : f32[63, 4]
    %7 = exp %6 : f32[63, 4]
    %8 = swap_pairs %7 : f32[63, 4]
    return %4 "a", %7 "b", %8 "c"
  })"));
}

// What is made of inputs alone goes where it is first read, but not into a loop that reads it in another order, or that waits for a
// kernel that reads it.
TEST(Executable, MadeOfInputsAlone) {
  expect_right(parse(R"(graph main(%0 "x": f32[6, 4], %1 "y": f32[6, 4]) {
    %2 = erf %0 : f32[6, 4]
    %3 = swap_pairs %2 : f32[6, 4]
    %4 = reduce_sum %3 {first_axis = 1, num_axes = 1} : f32[6]
    %5 = exp %1 : f32[6, 4]
    %6 = swap_pairs %5 : f32[6, 4]
    %7 = add %5, %6 : f32[6, 4]
    %8 = mul %7, %3 : f32[6, 4]
    return %4 "sums", %8 "pairs"
  })"));
  expect_right(parse(R"(graph main(%0 "x": f32[8, 8], %1 "y": f32[8, 8]) {
    %2 = erf %0 : f32[8, 8]
    %3 = transpose %2 {permutation = [1, 0]} : f32[8, 8]
    %4 = add %2, %3 : f32[8, 8]
    %5 = reduce_sum %4 {first_axis = 1, num_axes = 1} : f32[8]
    return %5 "symmetric"
  })"));
  expect_right(parse(R"(graph main(%0 "x": f32[8, 16], %1 "y": f32[8, 16]) {
    %2 = erf %0 : f32[8, 16]
    %3 = slice %2 {starts = [3, 0], steps = [1, 1], stops = [4, 16]} : f32[1, 16]
    %4 = tanh %3 : f32[1, 16]
    %5 = broadcast %4 {shape = [8, 16]} : f32[8, 16]
    %6 = sigmoid %5 : f32[8, 16]
    %7 = add %2, %6 : f32[8, 16]
    %8 = reduce_max %7 {first_axis = 1, num_axes = 1} : f32[8]
    return %8 "y"
  })"));
  expect_right(parse(R"(graph main(%0 "x": f32[2, 2, 2], %1 "y": f32[2, 2, 2]) {
    %2 = erf %0 : f32[2, 2, 2]
    %3 = swap_pairs %2 : f32[2, 2, 2]
    %4 = reduce_sum %2 {first_axis = 2, num_axes = 1} : f32[2, 2]
    %5 = reshape %4 {shape = [2, 2, 1]} : f32[2, 2, 1]
    %6 = broadcast %5 {shape = [2, 2, 2]} : f32[2, 2, 2]
    %7 = sub %2, %6 : f32[2, 2, 2]
    %8 = mul %7, %3 : f32[2, 2, 2]
    return %8 "y"
  })"));
}

// A check on what a kernel read of an input that has been written over by then would be one on other numbers.
TEST(Executable, StateThatWasCopiedBeforeItsUpdate) {
  FlagScope verify("verify", "3");
  expect_right(parse(R"(graph main(%0 "x": f32[24, 16], %1 "i": i32[]) {
    %2 = add %0, %0 : f32[24, 16]
    %3 = slice %0 {starts = [0, 7], steps = [1, 1], stops = [22, 9]} : f32[22, 2]
    %4 = gather %3, %1 : f32[2]
    return %4 "y", %2 "x" donates 0
  })"));
}

// Axes of size 1 between larger ones: a column of one row, and a count that is always 0.
TEST(Executable, UnitAxes) {
  for (const char* op : {"reduce_sum", "reduce_max"}) {
    expect_right(parse(fmt::format(
        "graph main(%0 \"x\": f32[3, 1, 4]) {{\n %1 = {} %0 {{first_axis = 1, num_axes = 1}} : f32[3, 4]\n return %1 \"y\"\n}}",
        op)));
    expect_right(
        parse(fmt::format("graph main(%0 \"x\": f32[2, 3, 1, 70]) {{\n %1 = exp %0 : f32[2, 3, 1, 70]\n %2 = {} %1 {{first_axis "
                          "= 2, num_axes = 1}} : f32[2, 3, 70]\n return %2 \"y\", %1 \"e\"\n}}",
                          op)));
  }
  expect_right(parse(R"(graph main(%0 "x": f32[1, 5, 4]) {
    %1 = iota {axis = 0, dtype = i32, shape = [1, 5, 4]} : i32[1, 5, 4]
    %2 = iota {axis = 1, dtype = i32, shape = [1, 5, 4]} : i32[1, 5, 4]
    %3 = iota {axis = 1, dtype = i32, shape = [5, 1, 4]} : i32[5, 1, 4]
    return %1 "a", %2 "b", %3 "c", %0 "x"
  })"));
}

// A store hole sees the sum in f32 and rounds where the graph does: at the product itself (%4) or at a cast behind other ops (%8).
TEST(Executable, ProductsOfBf16) {
  for (const char* rows : {"3", "130"}) {
    std::string text = R"(graph main(%0 "x": bf16[ROWS, 40], %1 "w": bf16[50, 40], %2 "b": f32[50], %3 "c": bf16[ROWS, 50]) {
      %4 = matmul %0, %1 {out_dtype = bf16, transpose_a = false, transpose_b = true} : bf16[ROWS, 50]
      %5 = add %4, %3 : bf16[ROWS, 50]
      %6 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = true} : f32[ROWS, 50]
      %b = broadcast %2 {shape = [ROWS, 50]} : f32[ROWS, 50]
      %7 = add %6, %b : f32[ROWS, 50]
      %8 = cast %7 {dtype = bf16} : bf16[ROWS, 50]
      %9 = matmul %8, %4 {out_dtype = bf16, transpose_a = true, transpose_b = false} : bf16[50, 50]
      %f = cast %5 {dtype = f32} : f32[ROWS, 50]
      %10 = reduce_sum %f {first_axis = 1, num_axes = 1} : f32[ROWS]
      return %4 "rounded", %5 "sum", %6 "exact", %8 "cast", %9 "gradient", %10 "rows"
    })";
    for (size_t at; (at = text.find("ROWS")) != std::string::npos;) text.replace(at, 4, rows);
    expect_right(parse(text), 2e-2);
  }
}

/// Random graphs of the shapes that training makes: chains, broadcasts, row and column sums, products, state updates.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : rng_(seed), builder_(graph_) {}
  Graph make() {
    const int64_t rows = pick({1, 3, 16, 65, 130}), cols = pick({1, 2, 16, 33, 70});
    std::vector<Value> pool;
    for (int i = 0; i < 3; ++i) pool.push_back(graph_.add_input("x" + std::to_string(i), {DType::f32, Shape{rows, cols}}));
    const Value row = graph_.add_input("row", {DType::f32, Shape{rows, 1}});
    const Value col = graph_.add_input("col", {DType::f32, Shape{cols}});
    const Value w = graph_.add_input("w", {DType::f32, Shape{cols, cols}});
    const int steps = 6 + static_cast<int>(rng_() % 14);
    std::vector<Value> column_like = {col};
    for (int s = 0; s < steps; ++s) {
      const Value a = any(pool), b = any(pool);
      switch (rng_() % 10) {
        case 0: pool.push_back(builder_.add(a, b)); break;
        case 1: pool.push_back(builder_.mul(a, builder_.op("sigmoid", {b}))); break;
        case 2: pool.push_back(builder_.op("tanh", {a})); break;
        case 3: pool.push_back(builder_.sub(a, row)); break;
        case 4: pool.push_back(builder_.mul(a, any(column_like))); break;
        case 5: pool.push_back(builder_.sub(a, mean(a, {1}, true))); break;
        case 6: column_like.push_back(builder_.op("tanh", {mean(a, {0}, false)})); break;
        case 7:
          pool.push_back(builder_.op(
              "tanh", {builder_.op("matmul", {a, w},
                                   {{"transpose_a", false}, {"transpose_b", rng_() % 2 == 0}, {"out_dtype", DType::f32}})}));
          break;
        case 8: pool.push_back(builder_.op("relu", {builder_.sub(a, builder_.reduce_max(b, {1}, true))})); break;
        case 9: pool.push_back(builder_.add(a, builder_.op("sin", {mean(b, {0, 1}, false)}))); break;
      }
    }
    for (int i = 0; i < 3; ++i) graph_.add_output(any(pool), "y" + std::to_string(i));
    graph_.add_output(column_like.back(), "column");
    const Value gradient =
        builder_.op("matmul", {any(pool), any(pool)}, {{"transpose_a", true}, {"transpose_b", false}, {"out_dtype", DType::f32}});
    graph_.add_output(builder_.sub(w, builder_.op("tanh", {gradient})), "w", 5);
    graph_.add_output(builder_.sub(col, column_like.back()), "col", 4);
    return graph_;
  }

 private:
  int64_t pick(std::vector<int64_t> from) { return from[rng_() % from.size()]; }
  Value any(const std::vector<Value>& pool) { return pool[rng_() % pool.size()]; }
  /// Means keep values near 1, so that rounding is not amplified from sum to sum.
  Value mean(Value a, std::vector<int64_t> axes, bool keepdims) {
    double count = 1;
    for (int64_t axis : axes) count *= static_cast<double>(builder_.type_of(a).shape[static_cast<int>(axis)]);
    const Value sum = builder_.reduce_sum(a, std::move(axes), keepdims);
    return builder_.mul(sum, builder_.constant(DType::f32, 1 / count));
  }
  std::mt19937 rng_;
  Graph graph_;
  GraphBuilder builder_;
};

TEST(Executable, RandomGraphs) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = RandomGraph(seed).make();
    expect_right(g, 1e-3);  // products of products amplify rounding; bits between the variants are compared exactly
    if (HasFailure()) return;
  }
}

// Every kernel against the reference, with poisoned memory and guards, on the same random graphs.
TEST(Executable, RandomGraphsUnderVerify) {
  FlagScope verify("verify", "3"), poison("poison", "1");
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    expect_right(RandomGraph(seed).make(), 1e-3);
    if (HasFailure()) return;
  }
}

// No kernel runs to make an empty value, which others may read all the same: guards do not make it one that is read before it is written.
TEST(Executable, EmptyTemporariesUnderPoison) {
  FlagScope verify("verify", "3"), poison("poison", "1");
  expect_right(parse(R"(graph main(%0 "i": i32[2], %1 "x": f32[2, 0], %2 "m": bf16[8, 65], %3 "a": f32[4, 0, 8]) {
    %4 = cos %1 : f32[2, 0]
    %5 = scatter_add %0, %4 {rows = 3} : f32[3, 0]
    %6 = exp %5 : f32[3, 0]
    %7 = cast %3 {dtype = bf16} : bf16[4, 0, 8]
    %8 = matmul %7, %2 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[4, 0, 65]
    %9 = reduce_sum %8 {first_axis = 1, num_axes = 1} : f32[4, 65]
    return %6 "y", %9 "z"
  })"));
}

TEST(Executable, NanCheckNamesTheKernel) {
  FlagScope nan_check("nan_check", "1");
  const Graph g = parse(R"(graph main(%0 "x": f32[3]) {
    %1 = log %0 : f32[3] @head
    return %1 "y"
  })");
  auto e = Executable::compile(g, {});
  std::vector<float> x = {1, -1, 2}, y(3);
  void* in[] = {x.data()};
  void* out[] = {y.data()};
  try {
    e->run(in, out);
    FAIL() << "a NaN went by";
  } catch (const RuntimeError& error) {
    EXPECT_NE(std::string(error.what()).find("log @head"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ws
