#include <cmath>
#include <limits>

#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Losses, Mse) {
  expect_near(mse(floats({1, 2, 3, 4}, {2, 2}), floats({1, 0, 3, 0}, {2, 2})), {5});
  EXPECT_TRUE(mentions(error_of([] { mse(Tensor::zeros({4, 1}), Tensor::zeros({4})); }), {"[4, 1]", "[4]"}));
  EXPECT_NE(error_of([] { mse(Tensor::zeros({0, 2}), Tensor::zeros({0, 2})); }), "");
}

TEST(Losses, CrossEntropyValue) {
  Tensor logits = floats({0, std::log(3.0F), 1, 1}, {2, 2});
  expect_near(cross_entropy(logits, ints({0, 1})), {(std::log(4.0) + std::log(2.0)) / 2});
  // Differences of logits: a common offset of 1e6 loses nothing but the logits' own digits, and large ones do not overflow.
  expect_near(cross_entropy(floats({1e6F, 1e6F + 1}, {1, 2}), ints({1})), {std::log1p(std::exp(-1.0))});
  expect_near(cross_entropy(floats({-1000, 1000}, {1, 2}), ints({0})), {2000});
  // Any leading shape.
  expect_near(cross_entropy(Tensor::zeros({2, 3, 5}), Tensor::zeros({2, 3}, DType::i32)), {std::log(5.0)});
}

// Loss and gradient of the logits.
std::pair<Tensor, Tensor> with_gradient(const std::vector<float>& logits, const Shape& shape, const Tensor& labels,
                                        const CrossEntropyOptions& options) {
  Variable v("logits", floats(logits, shape), true);
  Gradients g = grad(cross_entropy(v, labels, options), {v});
  return {g.loss, g.values[0]};
}

TEST(Losses, SmoothingAndIgnoredC13) {
  std::vector<float> logits = {0, std::log(3.0F), 5, -5};
  CrossEntropyOptions options{.ignore_index = -1, .smoothing = 0.2};
  auto [loss, gradient] = with_gradient(logits, {2, 2}, ints({0, -1}), options);
  expect_near(loss, {1.2764331});
  expect_near(gradient, {-0.65, 0.65, 0, 0});
  auto [none, zero] = with_gradient(logits, {2, 2}, ints({-1, -1}), options);
  EXPECT_EQ(none.item(), 0);
  for (float g : zero.to_vector<float>()) EXPECT_EQ(g, 0);
}

TEST(Losses, GradientIsSoftmaxMinusTarget) {
  auto [loss, gradient] = with_gradient({0, std::log(3.0F)}, {1, 2}, ints({0}), {});
  expect_near(gradient, {-0.75, 0.75});
}

TEST(Losses, LabelOutOfRangeIsNamed) {
  auto message = error_of([] { (void)cross_entropy(Tensor::zeros({2, 3}), ints({0, 3})).item(); });
  EXPECT_TRUE(mentions(message, {"label", "3"}));
  EXPECT_TRUE(mentions(error_of([] { (void)cross_entropy(Tensor::zeros({2, 3}), ints({-1, 0})).item(); }), {"label", "-1"}));
  EXPECT_TRUE(mentions(error_of([] { cross_entropy(Tensor::zeros({2, 3}), ints({0, 0, 0})); }), {"[2, 3]", "[3]"}));
  EXPECT_TRUE(mentions(error_of([] { cross_entropy(Tensor::zeros({2, 3}), Tensor::zeros({2})); }), {"i32"}));
}

}  // namespace
}  // namespace ws::testing
