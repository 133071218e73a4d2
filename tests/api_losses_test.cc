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

// Gradient of loss(x, target) in x.
std::vector<float> gradient_of(const std::vector<float>& x, const std::vector<float>& target, const Loss& loss) {
  Variable v("x", floats(x), true);
  return grad(loss(v, floats(target)), {v}).values[0].to_vector<float>();
}
void expect_values(const std::vector<float>& got, const std::vector<double>& right) { expect_near(floats(got), right); }

TEST(Losses, MaeAndHuber) {
  expect_near(mae(floats({1, 2, 3, 4}), floats({1, 0, 6, 4})), {1.25});
  expect_values(gradient_of({1, 2, 3, 4}, {1, 0, 6, 4}, MAE()), {0, 0.25, -0.25, 0});
  // |d| = 0, 0.5, 1, 3, -4 at delta 1: 0, 0.125, 0.5, 2.5, 3.5.
  expect_near(huber(floats({0, 0.5, 1, 3, -4}), Tensor::zeros({5})), {6.625 / 5});
  expect_values(gradient_of({0, 0.5, 2, 3, -4}, {0, 0, 0, 0, 0}, Huber()), {0, 0.1, 0.2, 0.2, -0.2});
  expect_near(huber(floats({1, 6}), Tensor::zeros({2}), 2), {(0.5 + 10) / 2});
  EXPECT_TRUE(mentions(error_of([] { mae(Tensor::zeros({4, 1}), Tensor::zeros({4})); }), {"mae", "[4, 1]", "[4]"}));
  EXPECT_TRUE(mentions(error_of([] { huber(Tensor::zeros({4}), Tensor::zeros({4}), 0); }), {"delta"}));
}

TEST(Losses, BceWithLogits) {
  auto right = [](double x, double y) { return -y * -std::log1p(std::exp(-x)) + (1 - y) * std::log1p(std::exp(x)); };
  for (float x : {-3.0F, -0.1F, 0.0F, 2.0F})
    for (float y : {0.0F, 0.3F, 1.0F}) {
      expect_near(bce_with_logits(floats({x}), floats({y})), {right(x, y)}, 2e-6);
      expect_values(gradient_of({x}, {y}, BCEWithLogits()),
                    {1 / (1 + std::exp(-static_cast<double>(x))) - static_cast<double>(y)});
    }
  expect_near(bce_with_logits(floats({-200, 200, 1e30F, -1e30F}), floats({0, 1, 1, 0})), {0});
  expect_near(bce_with_logits(floats({-200, 200}), floats({1, 0})), {200});
}

TEST(Losses, ClassWeights) {
  std::vector<float> logits = {0, std::log(3.0F), 1, 1, 2, 2};
  CrossEntropyOptions options{.class_weights = {2, 0.5}};
  // -log p: ln 4 (label 0), ln 2 (label 1), ln 2 (label 1).
  auto [loss, g] = with_gradient(logits, {3, 2}, ints({0, 1, 1}), options);
  expect_near(loss, {(2 * std::log(4.0) + std::log(2.0)) / 3});
  expect_near(g, {-2 * 0.75 / 3, 2 * 0.75 / 3, 0.25 / 3, -0.25 / 3, 0.25 / 3, -0.25 / 3});
  options.ignore_index = 1;
  expect_near(cross_entropy(floats(logits, {3, 2}), ints({0, 1, 1}), options), {std::log(4.0)});
  auto [none, zero] = with_gradient(logits, {3, 2}, ints({1, 1, 1}), options);
  expect_near(none, {0});
  expect_near(zero, {0, 0, 0, 0, 0, 0});
  expect_near(with_gradient(logits, {3, 2}, ints({0, 0, 0}), {.class_weights = {0, 1}}).first, {0});
  EXPECT_TRUE(mentions(error_of([] {
                         cross_entropy(Tensor::zeros({1, 2}), ints({0}), {.class_weights = {1}});
                       }),
                       {"1 class weights", "2 classes"}));
  EXPECT_NE(error_of([] { cross_entropy(Tensor::zeros({1, 2}), ints({0}), {.class_weights = {1, -1}}); }), "");
}

TEST(Losses, CompiledIsTheLoopAndUserFunctions) {
  const std::vector<std::pair<const char*, Loss>> losses = {
      {"mse", MSE()},
      {"mae", MAE()},
      {"huber", Huber{0.5}},
      {"bce", [](const Tensor& x, const Tensor& y) { return bce_with_logits(x, sigmoid(y)); }},
      {"user", [](const Tensor& x, const Tensor& y) { return log(exp(x - y) + exp(y - x)).mean(); }},  // log cosh
      {"cross entropy", [](const Tensor& x, const Tensor& y) {
         return cross_entropy(x, lt(y.slice(1, 0, 1).squeeze(1), 0.0).cast(DType::i32),
                              {.smoothing = 0.1, .class_weights = {1, 2, 3}});
       }}};
  for (const auto& [name, loss] : losses) {
    auto run = [&, &loss = loss](bool compile) {
      auto model = models::mlp({6, 8, 3}, Key(0));
      Trainer trainer(model, loss, Adam(), {.compile = compile});
      History h = trainer.fit(random_floats({30, 6}, 1), random_floats({30, 3}, 2), {.epochs = 2, .batch_size = 10});
      return bytes(model) + std::to_string(h.train_loss[1]);
    };
    EXPECT_TRUE(run(false) == run(true)) << name;
  }
}

}  // namespace
}  // namespace ws::testing
