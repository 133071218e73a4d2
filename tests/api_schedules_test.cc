#include <cmath>

#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Schedules, WarmupCosineC42) {
  WarmupCosine a{.peak = 1, .warmup = 2, .total = 6};
  std::vector<double> right = {0, 0.5, 1, 0.8535534, 0.5, 0.1464466, 0, 0, 0};
  for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(a({.step = static_cast<int64_t>(i)}), right[i], 1e-7);
  EXPECT_NEAR((WarmupCosine{.peak = 1, .warmup = 50, .total = 250})({.step = 150}), 0.5, 1e-12);
  EXPECT_EQ((WarmupCosine{.peak = 1, .warmup = 0, .total = 6})({.step = 0}), 1);
  WarmupCosine whole{.peak = 1, .warmup = 4, .total = 4};
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(whole({.step = i}), static_cast<double>(i) / 4);
  EXPECT_TRUE(std::isfinite(whole({.step = 4})));
  EXPECT_NE(error_of([] { (WarmupCosine{.peak = 1, .warmup = 0, .total = 0})({}); }), "");
}

TEST(Schedules, ByFractionalEpoch) {
  StepLR step{.lr = 0.1, .step = 2, .gamma = 0.5};
  EXPECT_EQ(step({.epoch = 1.99}), 0.1);
  EXPECT_EQ(step({.epoch = 2}), 0.05);
  EXPECT_EQ(step({.epoch = 5.5}), 0.025);
  LinearWarmup warmup{.lr_start = 0.1, .lr_end = 0.3, .warmup = 2};
  EXPECT_NEAR(warmup({.epoch = 0.5}), 0.15, 1e-12);
  EXPECT_EQ(warmup({.epoch = 2}), 0.3);
  EXPECT_EQ(warmup({.epoch = 9}), 0.3);
  CosineWarmRestarts restarts{.lr_max = 1, .lr_min = 0.2, .t0 = 2, .t_mult = 2};
  EXPECT_NEAR(restarts({.epoch = 0}), 1, 1e-12);
  EXPECT_NEAR(restarts({.epoch = 1}), 0.6, 1e-12);
  EXPECT_NEAR(restarts({.epoch = 2}), 1, 1e-12);    // a restart
  EXPECT_NEAR(restarts({.epoch = 4}), 0.6, 1e-12);  // half of the second, twice as long
  EXPECT_NEAR(restarts({.epoch = 6}), 1, 1e-12);
  Noam noam{.width = 4, .warmup = 4, .scale = 2};
  EXPECT_EQ(noam({.epoch = 0}), 0);
  EXPECT_NEAR(noam({.epoch = 2}), 0.25, 1e-12);
  EXPECT_NEAR(noam({.epoch = 4}), 0.5, 1e-12);
  EXPECT_NEAR(noam({.epoch = 16}), 0.25, 1e-12);
  EXPECT_EQ(ConstantLR{0.3}({.epoch = 7}), 0.3);
}

TEST(Schedules, ByStep) {
  ExponentialLR smooth{.lr = 1, .rate = 0.25, .steps = 2}, stairs{.lr = 1, .rate = 0.25, .steps = 2, .staircase = true};
  EXPECT_EQ(smooth({.step = 1}), 0.5);
  EXPECT_EQ(stairs({.step = 1}), 1);
  EXPECT_EQ(stairs({.step = 5}), 0.0625);
  PolynomialLR square{.start = 1, .end = 0.2, .total = 4, .power = 2};
  std::vector<double> right = {1, 0.65, 0.4, 0.25, 0.2, 0.2};
  for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(square({.step = static_cast<int64_t>(i)}), right[i], 1e-12);
  OneCycle cycle{.peak = 1, .total = 10, .rise = 0.4, .div = 4, .final_div = 5};
  EXPECT_NEAR(cycle({.step = 0}), 0.25, 1e-12);
  EXPECT_NEAR(cycle({.step = 2}), 0.625, 1e-12);
  EXPECT_NEAR(cycle({.step = 4}), 1, 1e-12);
  EXPECT_NEAR(cycle({.step = 7}), 0.525, 1e-12);
  EXPECT_NEAR(cycle({.step = 10}), 0.05, 1e-12);
  EXPECT_NEAR(cycle({.step = 99}), 0.05, 1e-12);
  EXPECT_NEAR((OneCycle{.peak = 1, .total = 4, .rise = 0})({.step = 0}), 1, 1e-12);
  EXPECT_NE(error_of([] { (ExponentialLR{.lr = 1, .rate = 0.5, .steps = 0})({}); }), "");
  EXPECT_NE(error_of([] { (PolynomialLR{.start = 1, .end = 0, .total = 0})({}); }), "");
  EXPECT_NE(error_of([] { (OneCycle{.peak = 1, .total = 0})({}); }), "");
}

TEST(Schedules, ReduceOnPlateau) {
  ReduceOnPlateau plateau{.lr = 1, .factor = 0.5, .patience = 2, .min_delta = 0.1, .min_lr = 0.2};
  auto after = [&](const std::vector<double>& losses) { return plateau({.epoch_losses = losses}); };
  EXPECT_EQ(after({}), 1);
  EXPECT_EQ(after({3, 2.95}), 1);
  EXPECT_EQ(after({3, 2.95, 2.95}), 0.5);
  EXPECT_EQ(after({3, 2.95, 2.5, 2.45}), 1);
  EXPECT_EQ(after({3, std::nan(""), std::nan("")}), 0.5);
  EXPECT_EQ(after({3, 3, 3, 3}), 0.5);
  EXPECT_EQ(after({3, 3, 3, 3, 3, 3, 3, 3, 3}), 0.2);
  EXPECT_NE(error_of([] { (ReduceOnPlateau{.lr = 1, .patience = 0})({}); }), "");

  // In fit: a loss that never improves.
  for (bool validate : {false, true}) {
    auto model = models::mlp({2, 1}, Key(0));
    Trainer trainer(model, MSE(), SGD(), {.compile = true, .schedule = ReduceOnPlateau{.lr = 0, .patience = 1}});
    FitOptions options{.epochs = 3};
    if (validate) options.X_val = Tensor::ones({2, 2}), options.y_val = Tensor::ones({2, 1});
    EXPECT_EQ(trainer.fit(Tensor::ones({4, 2}), Tensor::ones({4, 1}), options).lr, (std::vector<double>{0, 0, 0}));
    std::vector<size_t> seen;
    Trainer other(model, MSE(), SGD(),
                  {.schedule = [&](const Position& at) { return seen.push_back(at.epoch_losses.size()), 0.1; }});
    other.fit(Tensor::ones({4, 2}), Tensor::ones({4, 1}), options);
    EXPECT_EQ(seen, (std::vector<size_t>{0, 1, 2}));
  }
}

}  // namespace
}  // namespace ws::testing
