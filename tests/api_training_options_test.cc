// Trainer's options: parameter groups, clipping by value, the norm in the history, steps that are not finite.
#include <cmath>
#include <functional>
#include <limits>

#include "api_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

struct Data {
  Tensor X = random_floats({50, 6}, 11), y = random_floats({50, 3}, 12);
};

struct Net : Module {  // a matrix, a vector and a matrix whose gradients are all 0
  Parameter w{*this, "w", {1, 1}, init::ones()}, b{*this, "b", {1}, init::ones()}, v{*this, "v", {1, 1}, init::ones()};
  Net() : Module(Key(0)) {}
  Tensor forward(const Tensor& x) const override { return (matmul(x, w) + b) * v; }
};
Tensor nothing(const Tensor& p, const Tensor&) { return (p * 0.0).sum(); }
Tensor total(const Tensor& p, const Tensor&) { return p.sum(); }

TEST(TrainerOptions, GroupsScaleRatesAndLeaveOutDecay) {
  for (bool compile : {false, true}) {
    Net model;
    AdamW optimizer(model.parameters(), {.lr = 0.1, .weight_decay = 0.5});
    Trainer trainer(model, nothing, optimizer,
                    {.compile = compile,
                     .groups = {{.contains = std::not_fn(is_matrix), .decay = false},
                                {.contains = [](const Variable& p) { return p.name() == "v"; }, .lr_scale = 0.5}}});
    trainer.train_step(Tensor::ones({1, 1}), Tensor::ones({1, 1}));
    expect_near(model.w, {0.95});
    expect_near(model.b, {1});
    expect_near(model.v, {0.975});
  }
  for (Decay decay : {Decay::l2, Decay::decoupled}) {
    Net model;
    Trainer trainer(model, nothing, SGD({.lr = 1}),
                    {.weight_decay = 0.5,
                     .decay = decay,
                     .groups = {{.contains = [](const Variable& p) { return p.name() == "v"; }, .decay = false}}});
    trainer.train_step(Tensor::ones({1, 1}), Tensor::ones({1, 1}));
    expect_near(model.w, {0.5});
    expect_near(model.b, {1});
    expect_near(model.v, {1});
  }
  Net model;
  Trainer trainer(model, total, SGD({.lr = 0.1}), {.groups = {{.contains = is_matrix, .lr_scale = 0}}});
  trainer.train_step(Tensor::ones({1, 1}), Tensor::ones({1, 1}));
  EXPECT_EQ(model.w.value().item(), 1);
  expect_near(model.b, {0.9});
  EXPECT_NE(error_of([&] { SGD().set_groups({{.contains = {}}}); }), "");
  EXPECT_TRUE(mentions(error_of([&] { SGD().set_groups({{.contains = is_matrix, .lr_scale = -1}}); }), {"lr_scale", "-1"}));
}

TEST(TrainerOptions, ClipByValue) {
  Variable w("w", floats({0, 0, 0, 0}), true);
  auto clipped = [&](const std::vector<float>& g, double limit) {
    return clip_by_value(grad((w.value() * floats(g)).sum(), {w}), limit).values[0].to_vector<float>();
  };
  EXPECT_EQ(clipped({-3, 0.5, -0.0F, 7}, 2), (std::vector<float>{-2, 0.5, -0.0F, 2}));
  EXPECT_TRUE(mentions(error_of([&] { clipped({1, 1, 1, 1}, 0); }), {"above 0"}));
  Net model;
  EXPECT_TRUE(mentions(error_of([&] { Trainer(model, nothing, SGD(), {.clip_value = -1}); }), {"clip_value", "-1"}));
  for (bool compile : {false, true}) {
    Net net;
    Trainer trainer(net, total, SGD({.lr = 1}), {.compile = compile, .clip_value = 0.25});
    trainer.train_step(Tensor::ones({1, 1}), Tensor::ones({1, 1}));
    for (const Variable& p : net.parameters()) EXPECT_EQ(p.value().item(), 0.75) << p.name();
  }
}

TEST(TrainerOptions, NormInTheHistory) {
  for (bool compile : {false, true}) {
    Net model;
    Trainer trainer(model, total, SGD({.lr = 0}), {.compile = compile, .clip_norm = 1, .record_grad_norm = true});
    std::vector<double> heard;
    History h = trainer.fit(Tensor::ones({3, 1}), Tensor::ones({3, 1}),
                            {.batch_size = 2, .on_step = [&](const StepInfo& s) { heard.push_back(s.grad_norm.item()); }});
    // Batches of 2 and 1: gradients n, n and 2n.
    ASSERT_EQ(h.grad_norms.size(), 2U);
    EXPECT_NEAR(h.grad_norms[0], 2 * std::sqrt(6.0), 1e-12);
    EXPECT_NEAR(h.grad_norms[1], std::sqrt(6.0), 1e-12);
    EXPECT_EQ(heard, h.grad_norms);
  }
}

TEST(TrainerOptions, SkipGoesOnWithoutTheStep) {
  Data d;
  std::vector<float> y = d.y.to_vector<float>();
  y[3 * 20] = std::numeric_limits<float>::quiet_NaN();  // the second batch of 16
  auto run = [&](bool compile) {
    Sequential model(Key(0), {layer<Linear>(6, 8), layer<BatchNorm>(8), layer<Dropout>(0.2), layer<Linear>(8, 3)});
    Trainer trainer(model, MSE(), Adam({.lr = 0.01}),
                    {.compile = compile, .on_nonfinite = OnNonFinite::skip, .record_grad_norm = true});
    std::string before;
    History h =
        trainer.fit(d.X, floats(y, {50, 3}), {.epochs = 2, .batch_size = 16, .shuffle = false, .on_step = [&](const StepInfo& s) {
                                                std::string now = bytes(model) + bytes(trainer.optimizer());
                                                EXPECT_EQ(s.skipped, s.batch == 1);
                                                EXPECT_EQ(now == before, s.skipped);
                                                before = now;
                                              }});
    EXPECT_EQ(h.skipped_steps, 2);
    EXPECT_EQ(trainer.steps_done(), 6);
    EXPECT_TRUE(std::isnan(h.step_losses[1]));
    EXPECT_TRUE(std::isnan(h.grad_norms[1]));
    EXPECT_NEAR(h.train_loss[0], (16 * h.step_losses[0] + 16 * h.step_losses[2] + 2 * h.step_losses[3]) / 34, 1e-12);
    return before + std::to_string(h.train_loss[1]);
  };
  EXPECT_TRUE(run(false) == run(true));
}

// The reference, which runs each check before its kernel, stops the step with the same kind of error.
TEST(TrainerOptions, SkipUnderTheReference) {
  FlagScope verify("verify", "3");
  for (bool compile : {false, true}) {
    auto model = models::mlp({3, 2}, Key(0));
    Trainer trainer(model, MSE(), SGD(), {.compile = compile, .on_nonfinite = OnNonFinite::skip});
    const std::string before = bytes(model);
    const Tensor x = Tensor::ones({2, 3}), y = Tensor::zeros({2, 2});
    EXPECT_TRUE(std::isnan(trainer.train_step(x * HUGE_VAL, y).item()));
    EXPECT_EQ(bytes(model), before);
    EXPECT_TRUE(std::isfinite(trainer.train_step(x, y).item()));
    EXPECT_FALSE(bytes(model) == before);
  }
}

TEST(TrainerOptions, SkipSeesAnInfiniteNormAndNoLabels) {
  for (bool compile : {false, true}) {
    Net model;  // the loss is 0, its gradient infinite: sqrt at 0
    Trainer trainer(model, [](const Tensor& p, const Tensor& y) { return sqrt(p * y).sum(); }, SGD(),
                    {.compile = compile, .on_nonfinite = OnNonFinite::skip});
    std::string before = bytes(model);
    EXPECT_TRUE(std::isnan(trainer.train_step(Tensor::ones({1, 1}), Tensor::zeros({1, 1})).item()));
    EXPECT_EQ(bytes(model), before);
    auto mlp = models::mlp({6, 3}, Key(0));
    Trainer labels(mlp, SoftmaxCrossEntropy(), SGD(), {.compile = compile, .on_nonfinite = OnNonFinite::skip});
    EXPECT_TRUE(mentions(error_of([&] { labels.train_step(Tensor::ones({1, 6}), ints({3})); }), {"label", "3"}));
  }
}

}  // namespace
}  // namespace ws::testing
