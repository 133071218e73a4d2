// Small cases with known answers that public systems got wrong: masked attention rows, RoPE pairs, GELU, ties.
#include <gtest/gtest.h>

#include <cmath>

#include "autodiff_util.h"

namespace ws {
namespace {

using test::array;
using test::sum_all;
using test::tape_of;

void expect_near(const RefArray& got, const std::vector<double>& want, double tolerance = 1e-7) {
  ASSERT_EQ(got.data.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.data[i], want[i], tolerance) << i;
}

// Runs value and gradients of the summed result: outputs are the result, then one gradient an input.
std::vector<RefArray> run(const std::vector<RefArray>& inputs, const std::function<Value(Builder&, std::span<const Value>)>& f) {
  Graph g;
  GraphBuilder b(g);
  std::vector<Value> x;
  for (size_t i = 0; i < inputs.size(); ++i) x.push_back(g.add_input(fmt::format("x{}", i), inputs[i].type));
  const Value y = f(b, x);
  g.add_output(y, "y");
  const Value loss = sum_all(b, y);
  const auto grads = backward(b, tape_of(g), loss, x);
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i]) g.add_output(grads[i], fmt::format("grad{}", i));
  verify(g);
  return interpret(g, inputs);
}

Value attention(Builder& b, Value q, Value k, Value v) {
  const Value in[] = {q, k, v};
  return b.apply(*find_op("attention"), in, {{"causal", true}, {"scale", 1.0}})[0];
}

// Case C23 by the causal rule: with 3 queries and 2 keys query 0 sees none, query 1 one, query 2 both.
TEST(Cases, AttentionRowWithEveryKeyMasked) {
  const auto out = run({array({1, 3, 1, 1}, {0, 0, 0}), array({1, 2, 1, 1}, {0, 0}), array({1, 2, 1, 1}, {1, 3})},
                       [](Builder& b, std::span<const Value> x) { return attention(b, x[0], x[1], x[2]); });
  expect_near(out[0], {0, 1, 2});
  expect_near(out[1], {0, 0, 0});
  expect_near(out[2], {0, 0});
  expect_near(out[3], {1.5, 0.5});
}

TEST(Cases, MaskedRowsKeepZeroRowSums) {
  const RefArray q = array({1, 2, 1, 1}, {5, 7}), k = array({1, 1, 1, 1}, {2}), v = array({1, 1, 1, 1}, {3});
  const std::vector<RefArray> in = {q, k, v};
  std::vector<RefArray> out = {array({1, 2, 1, 1}, {0, 0}), array({1, 1, 2}, {0, 0}), array({1, 1, 2}, {0, 0})};
  find_op("attention")->reference(in, {{"causal", true}, {"scale", 0.5}}, out);
  expect_near(out[0], {0, 3});
  expect_near(out[1], {0, 7});  // 7 * 2 * 0.5
  expect_near(out[2], {0, 1});
}

// Case C23 as printed, with a mask that names keys: composed of matmul, select and a softmax whose empty row is 0.
TEST(Cases, ComposedAttentionWithAMask) {
  const auto product = [](Builder& b, Value x, Value y, bool transpose) {
    return b.op("matmul", {x, y}, {{"transpose_a", false}, {"transpose_b", transpose}, {"out_dtype", DType::f32}});
  };
  const auto out =
      run({array({2, 1}, {0, 0}), array({2, 1}, {0, 0}), array({2, 1}, {1, 3}), array({2, 2}, {1, 1, 0, 0}, DType::boolean)},
          [&](Builder& b, std::span<const Value> x) {
            const Value zero = b.constant(DType::f32, 0);
            const Value scores = b.select(x[3], product(b, x[0], x[1], true), b.constant(DType::f32, -1e30));
            const Value high = b.op("stop_gradient", {b.reduce_max(scores, {1}, true)});
            const Value weights = b.select(x[3], b.op("exp", {b.sub(scores, high)}), zero);
            const Value sums = b.reduce_sum(weights, {1}, true);
            const Value safe = b.select(b.binary("lt", zero, sums), sums, b.constant(DType::f32, 1));
            return product(b, b.div(weights, safe), x[2], false);
          });
  expect_near(out[0], {2, 0});
  expect_near(out[1], {0, 0});
  expect_near(out[2], {0, 0});
  expect_near(out[3], {0.5, 0.5});
}

// The attention op is softmax of scaled scores times values, with its gradients: against the composition.
TEST(Cases, AttentionEqualsItsComposition) {
  const auto random = [](const Shape& shape, double phase) {
    RefArray a = array(shape, {});
    for (int64_t i = 0; i < shape.num_elements(); ++i) a.data.push_back(std::sin(static_cast<double>(i) * 1.7 + phase));
    return a;
  };
  const std::vector<RefArray> inputs = {random({2, 3, 2, 4}, 0.1), random({2, 5, 2, 4}, 1.2), random({2, 5, 2, 4}, 2.3)};
  const auto scaled = [](Builder& b, Value y) { return b.mul(y, y); };
  const auto fused = run(inputs, [&](Builder& b, std::span<const Value> x) {
    const Value in[] = {x[0], x[1], x[2]};
    return scaled(b, b.apply(*find_op("attention"), in, {{"causal", true}, {"scale", 0.5}})[0]);
  });
  const auto composed = run(inputs, [&](Builder& b, std::span<const Value> x) {
    const Value q = b.transpose(x[0], {0, 2, 1, 3}), k = b.transpose(x[1], {0, 2, 1, 3}), v = b.transpose(x[2], {0, 2, 1, 3});
    const Value raw = b.op("matmul", {q, k}, {{"transpose_a", false}, {"transpose_b", true}, {"out_dtype", DType::f32}});
    const auto place = [&](int64_t axis) {
      return b.op("iota", {}, {{"dtype", DType::i32}, {"shape", std::vector<int64_t>{3, 5}}, {"axis", axis}});
    };
    const Value seen = b.binary("le", place(1), b.add(place(0), b.constant(DType::i32, 2)));
    const Value scores = b.select(seen, b.mul(raw, b.constant(DType::f32, 0.5)), b.constant(DType::f32, -HUGE_VAL));
    const Value weights = b.op("exp", {b.sub(scores, b.reduce_max(scores, {3}, true))});
    const Value p = b.div(weights, b.reduce_sum(weights, {3}, true));
    const Value y = b.op("matmul", {p, v}, {{"transpose_a", false}, {"transpose_b", false}, {"out_dtype", DType::f32}});
    return scaled(b, b.transpose(y, {0, 2, 1, 3}));
  });
  ASSERT_EQ(fused.size(), composed.size());
  for (size_t i = 0; i < fused.size(); ++i) expect_near(fused[i], composed[i].data, 1e-12);
}

// Case C25: rotation of pairs (2i, 2i+1) is x cos + swapped x sin with signs -, +; d = 4, position 1.
TEST(Cases, RopeBySwapPairs) {
  const auto out = run({array({4}, {1, 2, 3, 4}), array({4}, {1, 1, 0.01, 0.01}), array({4}, {-1, 1, -1, 1})},
                       [](Builder& b, std::span<const Value> x) {
                         const Value turned = b.mul(b.op("swap_pairs", {x[0]}), b.mul(x[2], b.op("sin", {x[1]})));
                         return b.add(b.mul(x[0], b.op("cos", {x[1]})), turned);
                       });
  expect_near(out[0], {-1.1426397, 1.9220756, 2.9598507, 4.0297995}, 5e-8);
  // Sum of a rotation's outputs: each pair gets (cos + sin, cos - sin).
  expect_near(out[1], {std::cos(1) + std::sin(1), std::cos(1) - std::sin(1), std::cos(0.01) + std::sin(0.01),
                       std::cos(0.01) - std::sin(0.01)});
}

// Case C26: GELU in both forms, gradients at 1, and both tails.
TEST(Cases, GeluExactAndTanh) {
  const RefArray x = array({6}, {-3, -2, 1, 3, -1e4, 1e4});
  const auto c = [](Builder& b, double v) { return b.constant(DType::f32, v); };
  const auto exact = run({x}, [&](Builder& b, std::span<const Value> in) {
    return b.mul(b.mul(in[0], c(b, 0.5)), b.add(b.op("erf", {b.mul(in[0], c(b, std::sqrt(0.5)))}), c(b, 1)));
  });
  expect_near(exact[0], {-0.0040497, -0.0455003, 0.8413447, 2.9959503, 0, 1e4}, 6e-8);
  EXPECT_NEAR(exact[1].data[2], 1.0833155, 6e-8);
  EXPECT_EQ(exact[1].data[4], 0);
  EXPECT_EQ(exact[1].data[5], 1);
  const auto by_tanh = run({x}, [&](Builder& b, std::span<const Value> in) {
    const Value cubic = b.add(in[0], b.mul(c(b, 0.044715), b.mul(in[0], b.mul(in[0], in[0]))));
    return b.mul(b.mul(in[0], c(b, 0.5)), b.add(b.op("tanh", {b.mul(cubic, c(b, std::sqrt(2 / M_PI)))}), c(b, 1)));
  });
  expect_near(by_tanh[0], {-0.0036374, -0.0454023, 0.8411920, 2.9963626, 0, 1e4}, 6e-8);
  EXPECT_NEAR(by_tanh[1].data[2], 1.0829641, 6e-8);
  EXPECT_EQ(by_tanh[1].data[4], 0);
  EXPECT_EQ(by_tanh[1].data[5], 1);
}

TEST(Cases, TiesShareTheGradient) {
  const auto maximum = run({array({3}, {1, 2, 5}), array({3}, {1, 3, 4})},
                           [](Builder& b, std::span<const Value> x) { return b.binary("maximum", x[0], x[1]); });
  expect_near(maximum[1], {0.5, 0, 1});
  expect_near(maximum[2], {0.5, 1, 0});
  const auto minimum = run({array({3}, {1, 2, 5}), array({3}, {1, 3, 4})},
                           [](Builder& b, std::span<const Value> x) { return b.binary("minimum", x[0], x[1]); });
  expect_near(minimum[1], {0.5, 1, 0});
  expect_near(minimum[2], {0.5, 0, 1});
  const auto row = run({array({2, 4}, {1, 7, 7, 0, 2, 2, 2, 2})},
                       [](Builder& b, std::span<const Value> x) { return b.reduce_max(x[0], {1}, false); });
  expect_near(row[0], {7, 2});
  expect_near(row[1], {0, 0.5, 0.5, 0, 0.25, 0.25, 0.25, 0.25});
  const auto kink = run({array({3}, {-1, 0, 1})}, [](Builder& b, std::span<const Value> x) { return b.op("relu", {x[0]}); });
  expect_near(kink[1], {0, 0, 1});
}

// Repeated indices add; rows never asked for have gradient exactly 0.
TEST(Cases, EmbeddingGradientAddsRepeatedRows) {
  const auto out =
      run({array({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), array({3}, {2, 0, 2}, DType::i32)}, [](Builder& b, std::span<const Value> x) {
        return b.op("gather", {x[0], x[1]});
      });
  expect_near(out[0], {5, 6, 1, 2, 5, 6});
  expect_near(out[1], {1, 1, 0, 0, 2, 2, 0, 0});
}

TEST(Cases, NanWinsInMaxima) {
  const double nan = std::nan("");
  const auto out = run({array({2, 3}, {1, nan, 2, 3, 4, 5})},
                       [](Builder& b, std::span<const Value> x) { return b.reduce_max(x[0], {1}, false); });
  EXPECT_TRUE(std::isnan(out[0].data[0]));
  EXPECT_EQ(out[0].data[1], 5);
}

TEST(Cases, ChecksStopTheRunAndNameTheValue) {
  const auto error = [](const RefArray& x, std::string_view op, const Attrs& attrs) {
    const std::vector<RefArray> in = {x};
    std::vector<RefArray> out = {x};
    try {
      find_op(op)->reference(in, attrs, out);
    } catch (const RuntimeError& e) {
      return std::string(e.what());
    }
    return std::string("passed");
  };
  const Attrs range{{"low", int64_t{0}}, {"high", int64_t{5}}, {"what", std::string("label")}},
      loss{{"what", std::string("loss")}};
  EXPECT_EQ(error(array({3}, {0, 4, 2}, DType::i32), "check_range", range), "passed");
  EXPECT_EQ(error(array({3}, {0, 5, 2}, DType::i32), "check_range", range), "label 5 is outside [0, 5)");
  EXPECT_EQ(error(array({3}, {0, -1, 2}, DType::i32), "check_range", range), "label -1 is outside [0, 5)");
  EXPECT_EQ(error(array({}, {1.5}), "check_finite", loss), "passed");
  EXPECT_EQ(error(array({}, {HUGE_VAL}), "check_finite", loss), "the loss is inf");
}

}  // namespace
}  // namespace ws
