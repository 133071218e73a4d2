// Trainer: the hand-written loop is fit, compiled is the loop, and every argument error.
#include <cmath>
#include <limits>
#include <memory>

#include "api_util.h"

namespace ws::testing {
namespace {

struct Data {
  Tensor X = random_floats({50, 6}, 11), y = random_floats({50, 3}, 12);
};
models::Mlp small_mlp() { return models::mlp({6, 8, 3}, Key(0)); }

/// Everything a run leaves behind, as bytes.
std::string footprint(const Module& model, const Optimizer& optimizer, const History& history) {
  std::string all = bytes(model) + bytes(optimizer);
  for (const auto* list : {&history.train_loss, &history.val_loss, &history.lr, &history.step_losses})
    all.append(reinterpret_cast<const char*>(list->data()), list->size() * sizeof(double));
  return all;
}

TEST(Trainer, HandWrittenLoopIsFit) {
  Data d;
  for (bool compile : {false, true}) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), Adam({.lr = 0.01}), {.compile = compile, .clip_norm = 0.5});
    History history = trainer.fit(d.X, d.y, {.epochs = 2, .batch_size = 16, .shuffle = false});

    auto by_hand = small_mlp();
    Adam optimizer(by_hand.parameters(), {.lr = 0.01});
    std::vector<double> losses;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (int64_t start = 0; start < 50; start += 16) {
        int64_t stop = std::min<int64_t>(start + 16, 50);
        Tensor loss = mse(by_hand(d.X.slice(0, start, stop)), d.y.slice(0, start, stop));
        optimizer.update(clip_by_global_norm(grad(loss, by_hand.parameters()), 0.5));
        losses.push_back(loss.item());
      }
    EXPECT_EQ(history.step_losses, losses);
    EXPECT_EQ(bytes(model), bytes(by_hand));
    EXPECT_EQ(bytes(trainer.optimizer()), bytes(optimizer));
  }
}

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;
const std::vector<std::pair<const char*, MakeOptimizer>>& all_optimizers() {
  static const std::vector<std::pair<const char*, MakeOptimizer>> list = {
      {"sgd", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.05}); }},
      {"momentum", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9}); }},
      {"nesterov",
       [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9, .nesterov = true, .lr_in_velocity = true}); }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{.lr = 0.01}); }},
      {"adamw", [] { return std::make_unique<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1}); }},
      {"rmsprop", [] { return std::make_unique<RMSProp>(RMSPropOptions{.lr = 0.01}); }},
      {"adagrad", [] { return std::make_unique<AdaGrad>(AdaGradOptions{.lr = 0.05}); }}};
  return list;
}

TEST(Trainer, CompiledIsTheLoopBitForBit) {
  Data d;
  for (const auto& [name, make] : all_optimizers())
    for (bool clip : {false, true})
      for (int decay = 0; decay < 3; ++decay) {
        auto run = [&, &make = make](bool compile) {
          auto model = small_mlp();
          auto optimizer = make();
          TrainerOptions options{
              .compile = compile, .weight_decay = decay == 0 ? 0 : 0.01, .decay = decay == 1 ? Decay::l2 : Decay::decoupled};
          if (clip) options.clip_norm = 0.3;
          options.schedule = StepLR{.lr = optimizer->lr(), .step = 0.5, .gamma = 0.7};
          Trainer trainer(model, MSE(), *optimizer, options);
          History history = trainer.fit(d.X, d.y, {.epochs = 2, .batch_size = 16, .X_val = d.X, .y_val = d.y});
          EXPECT_LT(history.train_loss[1], history.train_loss[0]) << name;
          return footprint(model, *optimizer, history) + bytes(trainer.predict(d.X));
        };
        EXPECT_TRUE(run(false) == run(true)) << name << (clip ? ", clipped" : "") << ", decay " << decay;
      }
}

TEST(Trainer, CompilesOncePerShape) {
  Data d;
  auto model = small_mlp();
  Trainer trainer(model, MSE(), SGD(), {.compile = true, .schedule = LinearWarmup{0.001, 0.01, 2}});
  EXPECT_NE(error_of([&] { trainer.compiled_step(); }), "");
  trainer.fit(d.X, d.y, {.epochs = 3, .batch_size = 16});
  EXPECT_EQ(trainer.compiled_step().compile_count(), 2);  // whole batches and the short last one; a schedule costs none
  trainer.fit(d.X, d.y, {.epochs = 1, .batch_size = 16, .drop_last = true});
  EXPECT_EQ(trainer.compiled_step().compile_count(), 2);
  EXPECT_EQ(trainer.steps_done(), 3 * 4 + 3);
}

TEST(Trainer, DecoupledDecayFollowsEta) {
  // No gradient but decay: w = 1 in a [1,1] matrix whose loss is 0*w. eta halves with the learning rate.
  for (bool compile : {false, true}) {
    struct One : Module {
      Parameter w{*this, "w", {1, 1}, init::ones()};
      Parameter v{*this, "v", {1}, init::ones()};  // one dim: no decay
      One() : Module(Key(0)) {}
      Tensor forward(const Tensor& x) const override { return matmul(x, w) + v; }
    } model;
    Trainer trainer(model, [](const Tensor& p, const Tensor&) { return (p * 0.0).sum(); }, SGD({.lr = 0.4}),
                    {.compile = compile,
                     .weight_decay = 0.1,
                     .decay = Decay::decoupled,
                     .schedule = StepLR{.lr = 0.4, .step = 1, .gamma = 0.5}});
    trainer.fit(Tensor::ones({1, 1}), Tensor::ones({1, 1}), {.epochs = 3});
    expect_near(model.w, {0.9 * 0.95 * 0.975});  // lr * decay would give 0.96 * ...
    expect_near(model.v, {1});
  }
}

TEST(Trainer, L2EqualsDecoupledForPlainSgd) {  // Loshchilov and Hutter, Proposition 1: decay / lr
  Data d;
  auto run = [&](Decay kind, double decay) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), SGD({.lr = 0.05}), {.weight_decay = decay, .decay = kind});
    trainer.fit(d.X, d.y, {.epochs = 3, .batch_size = 10, .shuffle = false});
    return model.find("layers.0.weight").value().to_vector<float>();
  };
  auto l2 = run(Decay::l2, 0.01 / 0.05), decoupled = run(Decay::decoupled, 0.01);
  for (size_t i = 0; i < l2.size(); ++i) EXPECT_NEAR(l2[i], decoupled[i], 1e-6);
}

TEST(Trainer, EpochLossIsWeightedBySamples) {
  Data d;
  auto model = small_mlp();
  Trainer trainer(model, MSE(), SGD({.lr = 0}), {});
  double whole = trainer.evaluate(d.X, d.y, 50);
  History h = trainer.fit(d.X, d.y, {.epochs = 1, .batch_size = 16});
  EXPECT_NEAR(h.train_loss[0], whole, 1e-6);
  EXPECT_NEAR(trainer.evaluate(d.X, d.y, 7), whole, 1e-6);
  EXPECT_EQ(h.step_losses.size(), 4U);
}

TEST(Trainer, TwoFitsAreOne) {
  Data d;
  auto run = [&](std::vector<int> fits) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), Adam(), {.compile = true});
    for (int epochs : fits) trainer.fit(d.X, d.y, {.epochs = epochs, .batch_size = 16, .shuffle = false});
    return bytes(model) + bytes(trainer.optimizer());
  };
  EXPECT_TRUE(run({2, 2}) == run({4}));
  EXPECT_FALSE(run({2, 1}) == run({4}));
}

TEST(Trainer, ShuffleIsByKeyAndEpoch) {
  Data d;
  auto run = [&](Key key, bool shuffle) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), SGD(), {});
    return trainer.fit(d.X, d.y, {.epochs = 2, .batch_size = 16, .key = key, .shuffle = shuffle}).step_losses;
  };
  EXPECT_EQ(run(Key(1), true), run(Key(1), true));
  EXPECT_NE(run(Key(1), true), run(Key(2), true));
  EXPECT_NE(run(Key(1), true), run(Key(1), false));
  auto still = [&] {  // nothing learnt: the epochs differ by their order only
    auto model = small_mlp();
    Trainer trainer(model, MSE(), SGD({.lr = 0}), {});
    return trainer.fit(d.X, d.y, {.epochs = 2, .batch_size = 25, .key = Key(1)}).step_losses;
  }();
  EXPECT_NE(still[0], still[2]);
}

TEST(Trainer, EarlyStoppingRestoresTheBest) {
  Data d;
  Tensor X_val = random_floats({20, 6}, 21), y_val = random_floats({20, 3}, 22);
  for (bool compile : {false, true}) {
    auto model = models::mlp({6, 64, 3}, Key(0));
    Trainer trainer(model, MSE(), Adam({.lr = 0.03}), {.compile = compile});
    History h = trainer.fit(d.X, d.y, {.epochs = 200, .batch_size = 16, .X_val = X_val, .y_val = y_val, .patience = 3});
    ASSERT_TRUE(h.best_epoch.has_value());
    EXPECT_EQ(h.stopped_epoch, *h.best_epoch + 3);
    EXPECT_EQ(h.val_loss.size(), static_cast<size_t>(h.stopped_epoch) + 1);
    EXPECT_EQ(trainer.evaluate(X_val, y_val, 16), h.val_loss[static_cast<size_t>(*h.best_epoch)]);
    for (double v : h.val_loss) EXPECT_GE(v, h.val_loss[static_cast<size_t>(*h.best_epoch)]);
  }
}

TEST(Trainer, NonFiniteLossNamesTheStepAndChangesNothing) {
  Data d;
  std::vector<float> y = d.y.to_vector<float>();
  y[3 * 40] = std::numeric_limits<float>::quiet_NaN();  // sample 40: in the third batch of 16
  for (bool compile : {false, true}) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), Adam(), {.compile = compile});
    std::string after_two;
    auto message = error_of([&] {
      trainer.fit(d.X, floats(y, {50, 3}), {.batch_size = 16, .shuffle = false, .on_step = [&](const StepInfo& info) {
                                              if (info.step == 2) after_two = bytes(model) + bytes(trainer.optimizer());
                                            }});
    });
    EXPECT_TRUE(mentions(message, {"step 3", "loss"})) << message;
    EXPECT_TRUE(after_two == bytes(model) + bytes(trainer.optimizer()));
  }
}

TEST(Trainer, LabelOutOfRangeStopsBeforeTheUpdate) {
  for (bool compile : {false, true}) {
    auto model = small_mlp();
    Trainer trainer(model, SoftmaxCrossEntropy(), SGD(), {.compile = compile});
    std::string before = bytes(model);
    auto message = error_of([&] { trainer.fit(random_floats({4, 6}, 1), ints({0, 1, 2, 3}), {.batch_size = 4}); });
    EXPECT_TRUE(mentions(message, {"label", "3"})) << message;
    EXPECT_TRUE(before == bytes(model));
  }
}

TEST(Trainer, WritesBetweenStepsAreSeen) {
  Data d;
  auto run = [&](bool compile) {
    auto model = small_mlp();
    Trainer trainer(model, MSE(), Adam(), {.compile = compile});
    std::string all;
    for (int i = 0; i < 4; ++i) {
      (void)trainer.train_step(d.X, d.y);
      Variable w = model.find("layers.1.weight");
      std::vector<float> values = w.value().to_vector<float>();
      values[0] = static_cast<float>(i);
      w.set(floats(values, w.value().shape()));
      all += bytes(w) + bytes(trainer.predict(d.X));
    }
    return all + bytes(model);
  };
  EXPECT_TRUE(run(false) == run(true));
}

TEST(Trainer, ParametersFromOneArrayC32) {
  for (bool compile : {false, true}) {
    struct Two : Module {
      Parameter a{*this, "a", {1}, init::zeros()}, b{*this, "b", {1}, init::zeros()};
      Two() : Module(Key(0)) {}
      Tensor forward(const Tensor& x) const override { return x * a + x * b * 2.0; }
    } model;
    Tensor shared = floats({1.0F});
    model.a.set(shared);
    model.b.set(shared);
    Tensor copy = model.a;
    Trainer trainer(model, [](const Tensor& p, const Tensor&) { return p.sum(); }, SGD({.lr = 0.1}), {.compile = compile});
    (void)trainer.train_step(Tensor::ones({1}), Tensor::ones({1}));
    expect_near(model.a, {0.9});
    expect_near(model.b, {0.8});
    EXPECT_EQ(shared.item(), 1);
    EXPECT_EQ(copy.item(), 1);
  }
}

TEST(Trainer, BatchNormInBothModes) {
  Data d;
  auto run = [&](bool compile) {
    Sequential model(Key(0), {layer<Linear>(6, 8), layer<BatchNorm>(8), layer<ReLU>(), layer<Linear>(8, 3)});
    Trainer trainer(model, MSE(), SGD(), {.compile = compile});
    History h = trainer.fit(d.X, d.y, {.epochs = 2, .batch_size = 16, .X_val = d.X, .y_val = d.y});
    return footprint(model, trainer.optimizer(), h);
  };
  EXPECT_TRUE(run(false) == run(true));
}

TEST(Trainer, LastBatchOfOneC21) {
  for (bool compile : {false, true}) {
    Sequential model(Key(0), {layer<BatchNorm>(2), layer<Linear>(2, 1)});
    Trainer trainer(model, MSE(), SGD(), {.compile = compile});
    auto message = error_of([&] { trainer.fit(random_floats({5, 2}, 1), random_floats({5, 1}, 2), {.batch_size = 2}); });
    EXPECT_TRUE(mentions(message, {"batch norm", "drop_last"})) << message;
    EXPECT_EQ(trainer.steps_done(), 0) << "found out only at the batch itself";
    EXPECT_TRUE(std::isfinite(trainer.evaluate(random_floats({5, 2}, 1), random_floats({5, 1}, 2))));
  }
}

TEST(Trainer, ViewsGiveTheLossesOfTheirCopiesC51) {
  Tensor wide = random_floats({6, 100}, 31), y = random_floats({50, 3}, 32);
  Tensor view = wide.t().slice(0, 0, 100, 2);  // [50, 6], every second column of `wide`
  std::vector<float> from = wide.to_vector<float>(), copied;
  for (size_t i = 0; i < 50; ++i)
    for (size_t j = 0; j < 6; ++j) copied.push_back(from[j * 100 + 2 * i]);
  for (bool compile : {false, true})
    for (bool shuffle : {false, true}) {
      auto run = [&](const Tensor& X) {
        auto model = small_mlp();
        Trainer trainer(model, MSE(), SGD(), {.compile = compile});
        History h = trainer.fit(X, y, {.epochs = 2, .batch_size = 16, .shuffle = shuffle});
        (void)trainer.train_step(X.slice(0, 0, 20), y.slice(0, 0, 20));
        return footprint(model, trainer.optimizer(), h);
      };
      EXPECT_TRUE(run(view) == run(floats(copied, {50, 6})));
    }
}

TEST(Trainer, ArgumentErrors) {
  Data d;
  auto model = small_mlp();
  EXPECT_TRUE(mentions(error_of([&] { Trainer(model, MSE(), SGD(), {.clip_norm = 0}); }), {"clip_norm"}));
  EXPECT_TRUE(mentions(error_of([&] { Trainer(model, MSE(), SGD(), {.weight_decay = -0.1}); }), {"weight_decay"}));
  Trainer t(model, MSE(), SGD());
  auto fit = [&](const FitOptions& options) { return error_of([&] { t.fit(d.X, d.y, options); }); };
  EXPECT_TRUE(mentions(fit({.epochs = 0}), {"epochs", "0"}));
  EXPECT_TRUE(mentions(fit({.batch_size = 0}), {"batch_size", "0"}));
  EXPECT_TRUE(mentions(fit({.patience = 2}), {"patience", "X_val"}));
  EXPECT_TRUE(mentions(fit({.X_val = d.X, .y_val = d.y, .patience = 0}), {"patience", "0"}));
  EXPECT_TRUE(mentions(fit({.X_val = d.X}), {"y_val"}));
  EXPECT_TRUE(mentions(fit({.batch_size = 64, .drop_last = true}), {"drop_last", "50"}));
  EXPECT_TRUE(mentions(error_of([&] { t.fit(d.X, Tensor::zeros({49, 3})); }), {"[50, 6]", "[49, 3]"}));
  EXPECT_TRUE(mentions(error_of([&] { t.fit(Tensor::zeros({0, 6}), Tensor::zeros({0, 3})); }), {"no samples"}));
  EXPECT_NE(error_of([&] { t.predict(d.X, 0); }), "");
  EXPECT_TRUE(mentions(error_of([&] { t.fit(d.X, Tensor::zeros({50})); }), {"mse", "[32, 3]", "[32]"}));
  Trainer unscalar(
      model, [](const Tensor& p, const Tensor&) { return p; }, SGD());
  EXPECT_TRUE(mentions(error_of([&] { unscalar.fit(d.X, d.y); }), {"scalar"}));
}

}  // namespace
}  // namespace ws::testing
