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
  EXPECT_EQ(ConstantLR{0.3}({.epoch = 7}), 0.3);
}

}  // namespace
}  // namespace ws::testing
