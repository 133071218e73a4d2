// Training on several ranks: what one process gets, the same bits on every rank, as loop and compiled.
#include <cmath>

#include "ranks_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

/// y = w * x.
class Slope : public Module {
 public:
  Slope() : Module(Key(0)) { w = Parameter(*this, "w", Shape{1}, init::zeros()); }
  Tensor forward(const Tensor& x) const override { return x * w; }
  Parameter w;
};

// Case C54: one rank; two of 2 + 1 samples; four, of which one is idle.
TEST(DataParallel, UnevenSharesC54) {
  for (bool compile : {false, true}) {
    Slope model;
    Trainer trainer(model, MSE(), SGD({.lr = 0.1}), {.compile = compile, .mesh = mesh()});
    const double loss = trainer.train_step(Tensor::ones({3, 1}), floats({6, 0, 0}, {3, 1})).item();
    EXPECT_NEAR(loss, 12, 12e-6);
    EXPECT_NEAR(model.w.value().item(), 0.4, 4e-7);
    distributed::check_replicas(model.parameters());
  }
}

struct Result {
  std::vector<double> losses;
  std::string state;
};

template <class MakeModel>
Result train(const MakeModel& make, const Loss& loss, const Tensor& X, const Tensor& y, TrainerOptions options, int epochs,
             int64_t batch) {
  auto model = make();
  AdamW optimizer(model->parameters(), {.lr = 1e-2});
  options.clip_norm = 1.0;
  options.weight_decay = 1e-3;
  Trainer trainer(*model, loss, optimizer, options);
  History history = trainer.fit(X, y, {.epochs = epochs, .batch_size = batch, .key = Key(3)});
  if (options.mesh.data > 1) {
    std::vector<Variable> state;
    model->collect_state(state);
    optimizer.collect_state(state);
    distributed::check_replicas(state);
  }
  return {history.step_losses, bytes(*model) + bytes(optimizer)};
}

/// Two modes on the mesh against one process, which every rank runs by itself.
template <class MakeModel>
void compare(const MakeModel& make, const Loss& loss, const Tensor& X, const Tensor& y, int epochs, int64_t batch) {
  FlagScope check("verify", "1");  // replicas after every step
  Result alone = train(make, loss, X, y, {.compile = true}, epochs, batch);
  Result loop = train(make, loss, X, y, {.mesh = mesh()}, epochs, batch);
  Result compiled = train(make, loss, X, y, {.compile = true, .mesh = mesh()}, epochs, batch);
  EXPECT_EQ(loop.losses, compiled.losses);
  EXPECT_EQ(loop.state, compiled.state);
  ASSERT_EQ(alone.losses.size(), compiled.losses.size());
  EXPECT_GE(alone.losses.size(), 20u);
  for (size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(compiled.losses[i], alone.losses[i], (i == 0 ? 1e-6 : 1e-5) * std::abs(alone.losses[i])) << "step " << i;
}

// Statistics and masks across ranks; 13 samples in batches of 5, so the last batch is 3.
TEST(DataParallel, BatchNormAndDropout) {
  auto make = [] {
    return std::make_unique<Sequential>(
        Key(1), std::vector<LayerFactory>{layer<Linear>(6, 16), layer<BatchNorm>(16), layer<Tanh>(), layer<Dropout>(0.3),
                                          layer<Linear>(16, 2)});
  };
  compare(make, MSE(), random_floats({13, 6}, 1), random_floats({13, 2}, 2), 7, 5);
}

// Each rank updates its own copies: compared with the parameters before every call.
TEST(DataParallel, CopiesOfParametersInBf16) {
  FlagScope check("verify", "1");
  auto make = [] {
    return std::make_unique<Sequential>(
        Key(1), std::vector<LayerFactory>{layer<Linear>(6, 40), layer<Tanh>(), layer<Linear>(40, 40), layer<Linear>(40, 2)});
  };
  Tensor X = random_floats({13, 6}, 1), y = random_floats({13, 2}, 2);
  Result loop = train(make, MSE(), X, y, {.compute_dtype = DType::bf16, .mesh = mesh()}, 4, 5);
  Result compiled = train(make, MSE(), X, y, {.compile = true, .compute_dtype = DType::bf16, .mesh = mesh()}, 4, 5);
  EXPECT_EQ(loop.losses, compiled.losses);
  EXPECT_EQ(loop.state, compiled.state);
}

TEST(DataParallel, GptWithIgnoredTargets) {
  auto make = [] {
    models::GptConfig config;
    config.width = 32, config.heads = 4, config.blocks = 2, config.max_len = 12;
    return std::make_unique<models::Gpt>(config, Key(2));
  };
  Tensor tokens = random_ints({10, 12}, 28, 4), targets = random_ints({10, 12}, 28, 5);
  compare(make, SoftmaxCrossEntropy({.ignore_index = 3, .smoothing = 0.1}), tokens, targets, 7, 4);
}

TEST(DataParallel, EncoderAndConvolution) {
  models::TransformerEncoderConfig config;
  config.inputs = 5, config.width = 16, config.heads = 2, config.blocks = 1, config.hidden = 32, config.outputs = 3;
  auto encoder = [&] { return std::make_unique<models::TransformerEncoder>(config, Key(2)); };
  compare(encoder, MSE(), random_floats({8, 6, 5}, 6), random_floats({8, 3}, 7), 10, 4);
  auto convolution = [] {
    return std::make_unique<Sequential>(
        Key(5), std::vector<LayerFactory>{layer<Conv2D>(1, 4, 3), layer<ReLU>(), layer<MaxPool>(2), layer<Flatten>(),
                                          layer<Linear>(36, 2)});
  };
  compare(convolution, MSE(), random_floats({6, 8, 8, 1}, 8), random_floats({6, 2}, 9), 10, 3);
}

// The loss is that of one process as far as bf16 goes; loop and compiled, and the replicas, agree in every bit.
TEST(DataParallel, Bf16) {
  models::GptConfig config;
  config.width = 32, config.heads = 4, config.blocks = 2, config.max_len = 12;
  auto make = [&] { return std::make_unique<models::Gpt>(config, Key(2)); };
  Tensor tokens = random_ints({10, 12}, 28, 4), targets = random_ints({10, 12}, 28, 5);
  FlagScope check("verify", "1");
  TrainerOptions options = {.compile = true, .compute_dtype = DType::bf16};
  const Result alone = train(make, SoftmaxCrossEntropy(), tokens, targets, options, 3, 4);
  options.mesh = mesh();
  options.mesh.overlap = Overlap::on;
  const Result compiled = train(make, SoftmaxCrossEntropy(), tokens, targets, options, 3, 4);
  options.compile = false;
  const Result loop = train(make, SoftmaxCrossEntropy(), tokens, targets, options, 3, 4);
  EXPECT_EQ(loop.losses, compiled.losses);
  EXPECT_EQ(loop.state, compiled.state);
  for (size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(compiled.losses[i], alone.losses[i], 4e-3 * std::abs(alone.losses[i]))
        << "step " << i;  // half of bf16's last bit
}

/// Attention with a padding mask, which knows its sample, and dropped weights.
class MaskedAttention : public Module {
 public:
  MaskedAttention() : Module(Key(7)), in{*this, "in", 8, 24}, out{*this, "out", 8, 2}, key{*this, "key", key_tensor(11)} {}
  Tensor forward(const Tensor& x) const override {  // [B, 5, 8]
    const Tensor h = in(x);
    const auto part = [&](int64_t i) { return h.slice(2, 8 * i, 8 * i + 8).reshape({x.dim(0), 5, 2, 4}); };
    const Tensor seen = lt(x.slice(2, 0, 1).reshape({x.dim(0), 1, 1, 5}), 0.8);
    AttentionOptions options{.mask = seen, .dropout = training() ? 0.3 : 0.0, .key = key};
    return out(attention(part(0), part(1), part(2), options).reshape({x.dim(0), 5, 8})).mean({1});
  }
  Linear in, out;
  Buffer key;
};

TEST(DataParallel, MaskedAttentionIsSplitByBatch) {
  auto make = [] { return std::make_unique<MaskedAttention>(); };
  const Tensor X = random_floats({10, 5, 8}, 1), y = random_floats({10, 2}, 2);
  compare(make, MSE(), X, y, 10, 4);
  MaskedAttention model;
  Trainer trainer(model, MSE(), SGD({.lr = 0.1}), {.compile = true, .mesh = mesh()});
  trainer.train_step(X, y);
  EXPECT_EQ(trainer.compiled_step().as_text().find("all_gather"), std::string::npos) << trainer.compiled_step().as_text();
}

// Running statistics are those of the whole batch: mean 2.5, unbiased variance 5/3, weighed 0.1.
TEST(DataParallel, BatchNormBuffersAreGlobal) {
  Sequential model(Key(1), std::vector<LayerFactory>{layer<BatchNorm>(1)});
  Trainer trainer(model, MSE(), SGD({.lr = 0.1}), {.compile = true, .mesh = mesh()});
  trainer.train_step(floats({1, 2, 3, 4}, {4, 1}), floats({0, 0, 0, 0}, {4, 1}));
  const std::vector<Variable> buffers = model.buffers();
  ASSERT_EQ(buffers.size(), 2u);
  expect_near(buffers[0].value(), {0.25});
  expect_near(buffers[1].value(), {0.9 + 0.1 * 5 / 3});
  distributed::check_replicas(buffers);
}

TEST(DataParallel, AccumulationEvaluationAndPrediction) {
  Tensor X = random_floats({14, 3}, 1), y = random_floats({14, 2}, 2);
  std::vector<double> losses[2];
  std::string predictions[2];
  for (bool compile : {false, true}) {
    models::Mlp model({3, 8, 2}, Key(0));
    Trainer trainer(model, MSE(), Adam({.lr = 0.01}), {.compile = compile, .mesh = mesh()});
    History h = trainer.fit(X, y, {.epochs = 3, .batch_size = 4, .X_val = X, .y_val = y, .accumulate = 2});
    losses[compile] = h.step_losses;
    losses[compile].insert(losses[compile].end(), h.val_loss.begin(), h.val_loss.end());
    Tensor all = trainer.predict(X, 5);
    EXPECT_TRUE(all.shape() == Shape({14, 2}));
    predictions[compile] = bytes(all);
    Tensor alone = model(X);
    expect_near(all, std::vector<double>(alone.to_vector<double>()), 1e-5, 1e-6);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(predictions[0], predictions[1]);
}

// The loss is common, so a step that is not finite is skipped by every rank.
TEST(DataParallel, NonFiniteLossOfOneRankIsSkippedByAll) {
  models::Mlp model({2, 4, 1}, Key(0));
  Trainer trainer(model, MSE(), SGD({.lr = 0.1}), {.compile = true, .on_nonfinite = OnNonFinite::skip, .mesh = mesh()});
  Tensor X = random_floats({4, 2}, 1), good = random_floats({4, 1}, 2);
  Tensor bad = floats({1, 2, 3, INFINITY}, {4, 1});  // on the last rank alone
  const std::string before = bytes(model);
  EXPECT_TRUE(std::isnan(trainer.train_step(X, bad).item()));
  EXPECT_EQ(bytes(model), before);
  trainer.train_step(X, good);
  EXPECT_NE(bytes(model), before);
  distributed::check_replicas(model.parameters());
}

TEST(DataParallel, DriftIsFound) {
  if (distributed::size() == 1) GTEST_SKIP() << "one rank";
  Variable v("v", Tensor(1.0 + (distributed::rank() == distributed::size() - 1)), false), w("w", Tensor(2.0), false);
  EXPECT_TRUE(mentions(error_of([&] { distributed::check_replicas(std::vector{w, v}); }), {"'v'", "other bits"}));
}

TEST(DataParallel, MeshMustFitTheJob) {
  Slope model;
  auto step = [&](const Tensor& x) { return model(x).sum(); };
  EXPECT_TRUE(mentions(error_of([&] { jit({.mesh = {.data = 7}}, step, model); }), {"7 data ranks", "mpirun -n 7"}));
}

}  // namespace
}  // namespace ws::testing
