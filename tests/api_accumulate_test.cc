// Gradient accumulation: mean by samples, one clip, one reading of the schedule, a short last window, both modes.
#include <cmath>
#include <limits>

#include "api_util.h"

namespace ws::testing {
namespace {

/// One weight w = 0 whose gradient for a batch is the mean of X.
struct Weight : Module {
  Parameter w{*this, "w", {1}, init::zeros()};
  Weight() : Module(Key(0)) {}
  Tensor forward(const Tensor& x) const override { return x * w; }
};
Tensor mean_of(const Tensor& p, const Tensor&) { return p.mean(); }

float trained(bool compile, const std::vector<float>& x, const TrainerOptions& base, FitOptions fit) {
  Weight model;
  TrainerOptions options = base;
  options.compile = compile;
  Trainer trainer(model, mean_of, SGD({.lr = 1}), options);
  Tensor X = floats(x, {static_cast<int64_t>(x.size()), 1});
  fit.shuffle = false;
  trainer.fit(X, X, fit);
  return model.w.value().to_vector<float>()[0];
}

TEST(Accumulate, C18) {
  for (bool compile : {false, true}) {
    EXPECT_EQ(trained(compile, {4, -2}, {.clip_norm = 1}, {.batch_size = 1, .accumulate = 2}), -1);
    // Batches of 3 and 1 samples: gradient sums 6 and 4.
    EXPECT_EQ(trained(compile, {1, 2, 3, 4}, {}, {.batch_size = 3, .accumulate = 2}), -2.5);
    int reads = 0;
    Schedule schedule = [&](const Position&) { return ++reads, 1.0; };
    EXPECT_EQ(trained(compile, {1, 1, 1, 1, 1}, {.schedule = schedule}, {.batch_size = 1, .accumulate = 2}), -3);
    EXPECT_EQ(reads, 3);
  }
  EXPECT_TRUE(mentions(error_of([] { trained(false, {1}, {}, {.accumulate = 0}); }), {"accumulate", "0"}));
}

// C18 b: a batch of one label that counts and one of three are averaged by labels, not by batches.
TEST(Accumulate, LabelsThatAreIgnoredHaveNoShare) {
  Tensor X = random_floats({8, 5}, 1);
  Tensor y = ints({2, -1, -1, -1, 0, 1, 2, -1});
  auto run = [&](bool compile, int64_t batch, int64_t accumulate, const Tensor& labels, std::vector<double> class_weights) {
    auto model = models::mlp({5, 3}, Key(0));
    Trainer trainer(model, SoftmaxCrossEntropy({.ignore_index = -1, .class_weights = std::move(class_weights)}), SGD({.lr = 1}),
                    {.compile = compile});
    History h = trainer.fit(X, labels, {.batch_size = batch, .shuffle = false, .accumulate = accumulate});
    std::vector<double> all(h.step_losses);
    for (const Variable& p : model.parameters())
      for (float v : p.value().to_vector<float>()) all.push_back(v);
    return all;
  };
  for (bool compile : {false, true})
    for (const std::vector<double>& weights : {std::vector<double>{}, std::vector<double>{1, 2, 0.5}}) {
      std::vector<double> whole = run(compile, 8, 1, y, weights), halves = run(compile, 4, 2, y, weights);
      ASSERT_EQ(whole.size(), halves.size());
      for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], halves[i], 1e-6);
    }
  // Nothing counts: loss 0, no gradient, finite weights.
  std::vector<double> nothing = run(true, 4, 2, ints({-1, -1, -1, -1, -1, -1, -1, -1}), {});
  EXPECT_EQ(nothing[0], 0);
  for (double v : nothing) EXPECT_TRUE(std::isfinite(v));
}

TEST(Accumulate, TwoHalvesAreOneBatch) {
  Tensor X = random_floats({32, 6}, 1), y = random_floats({32, 3}, 2);
  auto run = [&](int64_t batch, int64_t accumulate) {
    auto model = models::mlp({6, 8, 3}, Key(0));
    Trainer trainer(model, MSE(), SGD({.lr = 0.1}), {.compile = true});
    History h = trainer.fit(X, y, {.epochs = 2, .batch_size = batch, .shuffle = false, .accumulate = accumulate});
    EXPECT_EQ(trainer.steps_done(), 4);
    std::vector<double> all(h.step_losses);
    for (const Variable& p : model.parameters())
      for (float v : p.value().to_vector<float>()) all.push_back(v);
    return all;
  };
  std::vector<double> whole = run(16, 1), halves = run(8, 2);
  ASSERT_EQ(whole.size(), halves.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], halves[i], 2e-6);
}

TEST(Accumulate, CompiledIsTheLoop) {
  Tensor X = random_floats({50, 6}, 1), y = random_floats({50, 3}, 2);
  auto run = [&](bool compile, int threads) {
    Sequential model(Key(0), {layer<Linear>(6, 8), layer<BatchNorm>(8), layer<ReLU>(), layer<Dropout>(0.2), layer<Linear>(8, 3)});
    Trainer trainer(
        model, MSE(), AdamW({.lr = 0.01}),
        {.compile = compile, .clip_norm = 0.5, .weight_decay = 0.01, .num_threads = threads, .record_grad_norm = true});
    std::string all;
    History h = trainer.fit(X, y, {.epochs = 3, .batch_size = 8, .accumulate = 3, .on_step = [&](const StepInfo& s) {
                                     all += std::to_string(s.batch) + ":" + std::to_string(s.num_samples) + " ";
                                   }});
    EXPECT_EQ(h.step_losses.size(), 9U);  // 7 batches: 3 + 3 + 1
    EXPECT_TRUE(all.starts_with("0:24 3:24 6:2 ")) << all;
    EXPECT_NEAR(h.train_loss[0], (24 * h.step_losses[0] + 24 * h.step_losses[1] + 2 * h.step_losses[2]) / 50, 1e-12);
    all += bytes(model) + bytes(trainer.optimizer());
    for (double n : h.grad_norms) all.append(reinterpret_cast<const char*>(&n), sizeof n);
    return all;
  };
  std::string loop = run(false, 1);
  for (int threads : {1, 2, 4}) EXPECT_TRUE(run(true, threads) == loop) << threads;
}

TEST(Accumulate, AFailedWindowLeavesNothingBehind) {
  for (bool compile : {false, true}) {
    auto run = [&](float bad) {
      Weight model;
      Trainer trainer(model, mean_of, SGD({.lr = 1}), {.compile = compile, .on_nonfinite = OnNonFinite::skip});
      Tensor X = floats({5, bad, 1, 3}, {4, 1});
      History h = trainer.fit(X, X, {.batch_size = 1, .shuffle = false, .accumulate = 2});
      EXPECT_EQ(h.skipped_steps, std::isnan(bad));
      return model.w.value().item();
    };
    EXPECT_EQ(run(1), -5);
    EXPECT_EQ(run(std::numeric_limits<float>::quiet_NaN()), -2);
  }
}

}  // namespace
}  // namespace ws::testing
