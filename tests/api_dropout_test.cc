// Dropout: its edges, its share, new masks each step, evaluation, and the same masks in both modes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "api_util.h"

namespace ws::testing {
namespace {

Variable key_of(uint64_t bits) { return {"key", key_tensor(bits)}; }

TEST(Dropout, EdgesC29) {
  Variable x("x", floats({1, -2, 3}), true);
  Tensor none = dropout(x, 1, key_of(1));
  EXPECT_EQ(none.to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(grad(none.sum(), {x}).values[0].to_vector<float>(), (std::vector<float>{0, 0, 0}));
  Tensor all = dropout(x, 0, key_of(1));
  EXPECT_EQ(bytes(all), bytes(x.value()));
  EXPECT_EQ(grad(all.sum(), {x}).values[0].to_vector<float>(), (std::vector<float>{1, 1, 1}));
  for (double p : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_TRUE(mentions(error_of([&] { Sequential(Key(0), {layer<Dropout>(p)}); }), {"dropout '0'", "[0, 1]"}));
}

TEST(Dropout, ShareValuesAndGradient) {
  for (double p : {0.1, 0.5, 0.9}) {
    Variable x("x", Tensor::ones({100, 1000}), true);
    Tensor y = dropout(x, p, key_of(7));
    std::vector<float> values = y.to_vector<float>();
    auto scale = static_cast<float>(1 / (1 - p));
    double kept = 0;
    for (float v : values) {
      ASSERT_TRUE(v == 0 || v == scale);
      kept += v != 0;
    }
    EXPECT_NEAR(kept / 1e5, 1 - p, 5 * std::sqrt(p * (1 - p) / 1e5));
    EXPECT_EQ(grad(y.sum(), {x}).values[0].to_vector<float>(), values);
  }
}

TEST(Dropout, WordsAreHostPhilox) {
  Tensor bits = random_bits(key_tensor(0x123456789ABCDEF0), {3, 2}, 5);
  EXPECT_EQ(bits.dtype(), DType::u32);
  std::vector<uint32_t> words = bits.to_vector<uint32_t>();
  for (uint32_t i = 0; i < 6; ++i) EXPECT_EQ(words[i], philox(Key(0x123456789ABCDEF0), {i, 0, 5, 0})[0]);
  EXPECT_TRUE(mentions(error_of([] { random_bits(Tensor::zeros({2}), {3}); }), {"key", "u32 [2]"}));
}

TEST(Dropout, NewMaskEachDrawSameInBothModes) {
  auto draws = [](bool compile) {
    Sequential model(Key(3), {layer<Dropout>(0.5), layer<Dropout>(0.5)});
    auto step = [&](const Tensor& x) {
      Tensor a = model[0](x), b = model[1](x), c = model[0](x);  // one layer used twice
      return concatenate({a, b, c}, 0);
    };
    auto compiled = jit(step, model);
    std::vector<std::string> masks;
    for (int i = 0; i < 3; ++i) {
      Tensor all = compile ? compiled(Tensor::ones({64})) : step(Tensor::ones({64}));
      for (int64_t k = 0; k < 3; ++k) masks.push_back(bytes(all.slice(0, 64 * k, 64 * (k + 1))));
    }
    EXPECT_EQ(std::set<std::string>(masks.begin(), masks.end()).size(), 9U);
    std::string before = bytes(model);
    model.eval();
    EXPECT_EQ(bytes(model[0](Tensor::ones({64}))), bytes(Tensor::ones({64})));
    EXPECT_EQ(bytes(model), before);  // evaluation does not move the key
    masks.push_back(before);
    return masks;
  };
  EXPECT_EQ(draws(false), draws(true));
}

TEST(Dropout, TrainerInBothModesAndThreads) {
  Tensor X = random_floats({50, 6}, 11), y = random_floats({50, 3}, 12);
  auto run = [&](bool compile, int threads, const std::vector<int>& epochs) {
    Sequential model(Key(0),
                     {layer<Linear>(6, 16), layer<ReLU>(), layer<Dropout>(0.3), layer<Linear>(16, 3), layer<Dropout>(0.1)});
    Trainer trainer(model, MSE(), Adam({.lr = 0.01}), {.compile = compile, .num_threads = threads});
    std::string all;
    for (int e : epochs) {
      History h = trainer.fit(X, y, {.epochs = e, .batch_size = 16, .shuffle = false, .X_val = X, .y_val = y});
      for (double l : h.step_losses) all += std::to_string(l) + " ";
    }
    return all + bytes(model) + bytes(trainer.optimizer()) + bytes(trainer.predict(X));
  };
  std::string loop = run(false, 1, {4});
  for (int threads : {1, 2, 4}) EXPECT_TRUE(run(true, threads, {4}) == loop) << threads;
  EXPECT_TRUE(run(true, 2, {2, 2}) == loop);  // the key goes on between fits
  EXPECT_TRUE(run(false, 1, {1, 3}) == loop);
}

TEST(Dropout, FailedStepKeepsKeysAndStatistics) {
  std::vector<float> y = random_floats({32, 3}, 12).to_vector<float>();
  y[5] = std::numeric_limits<float>::quiet_NaN();
  for (bool compile : {false, true}) {
    Sequential model(Key(0), {layer<Linear>(6, 8), layer<BatchNorm>(8), layer<Dropout>(0.3), layer<Linear>(8, 3)});
    Trainer trainer(model, MSE(), Adam(), {.compile = compile});
    std::string before = bytes(model);
    EXPECT_NE(error_of([&] { trainer.train_step(random_floats({32, 6}, 1), floats(y, {32, 3})); }), "");
    EXPECT_TRUE(bytes(model) == before) << compile;
    EXPECT_EQ(error_of([&] { trainer.train_step(random_floats({32, 6}, 1), random_floats({32, 3}, 2)); }), "");
  }
}

TEST(Dropout, StateCarriesTheMasksC40) {  // saved at step 6 of 12, continued by a new model, optimizer and trainer
  struct Run {
    Sequential model{Key(0), {layer<Linear>(6, 8), layer<BatchNorm>(8), layer<Dropout>(0.1), layer<Linear>(8, 3)}};
    AdamW optimizer{model.parameters(), {.lr = 0.01}};
    Trainer trainer;
    explicit Run(bool compile) : trainer(model, MSE(), optimizer, {.compile = compile}) {}
    std::vector<Variable> state() const {
      std::vector<Variable> all;
      model.collect_state(all);
      optimizer.collect_state(all);
      return all;
    }
    void steps(uint64_t from, uint64_t to, std::string& losses) {
      for (uint64_t i = from; i < to; ++i)
        losses += bytes(trainer.train_step(random_floats({4, 6}, 2 * i), random_floats({4, 3}, 2 * i + 1)));
    }
  };
  for (bool compile : {false, true}) {
    std::string whole, parts;
    Run one(compile), first(compile), second(compile);
    one.steps(0, 12, whole);
    first.steps(0, 6, parts);
    auto from = first.state(), to = second.state();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name(), to[i].name());
      to[i].set(from[i].value());
    }
    second.steps(6, 12, parts);
    EXPECT_TRUE(whole == parts);
    EXPECT_TRUE(bytes(one.model) + bytes(one.optimizer) == bytes(second.model) + bytes(second.optimizer));
  }
}

TEST(Dropout, InEveryBlockOfTheModels) {
  models::GptConfig gpt{.vocab = 11, .width = 16, .heads = 2, .blocks = 2, .max_len = 6, .dropout = 0.3};
  models::TransformerEncoderConfig encoder{
      .inputs = 3, .width = 16, .outputs = 2, .blocks = 2, .heads = 2, .hidden = 8, .dropout = 0.3};
  EXPECT_EQ(models::GptConfig::from_json(gpt.to_json()), gpt);
  auto check = [](auto& model, const Tensor& x, size_t keys) {
    EXPECT_EQ(model.buffers().size(), keys);  // one key a dropout
    EXPECT_NE(bytes(model(x)), bytes(model(x)));
    model.eval();
    EXPECT_EQ(bytes(model(x)), bytes(model(x)));
  };
  auto g = models::gpt(gpt, Key(0));
  auto e = models::transformer_encoder(encoder, Key(0));
  check(g, random_ints({2, 6}, 11, 1), 5);
  check(e, random_floats({2, 5, 3}, 1), 5);
  EXPECT_NE(error_of([&] { models::gpt({.dropout = 1.5}, Key(0)); }), "");
}

// Keys move on after the last check, which clipping puts behind the whole backward pass: they are no part of the block that drew.
TEST(Dropout, BlocksInCheckpointRunTwiceUnderClippingToo) {
  models::GptConfig config{.vocab = 11, .width = 32, .heads = 4, .blocks = 2, .max_len = 16};
  config.dropout = 0.2;
  const Tensor x = random_ints({4, 16}, 11, 1), y = random_ints({4, 16}, 11, 2);
  const auto train = [&](bool clip, bool checkpoint, std::string& state) {
    config.checkpoint = checkpoint;
    auto model = models::gpt(config, Key(0));
    TrainerOptions options{.compile = true};
    if (clip) options.clip_norm = 0.5;
    Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 0.01}), options);
    for (int i = 0; i < 3; ++i) trainer.train_step(x, y);
    state = bytes(model);
    return trainer.compiled_step().memory_analysis();
  };
  for (bool clip : {false, true}) {
    std::string plain, again;
    const MemoryAnalysis kept = train(clip, false, plain), repeated = train(clip, true, again);
    EXPECT_GE(repeated.num_recomputed, 2 * config.blocks) << clip;
    EXPECT_LT(repeated.arena_bytes, kept.arena_bytes) << clip;
    EXPECT_TRUE(plain == again) << clip;
  }
}

// A function of jit() looks at the mode again at each call, as the loop does.
TEST(Dropout, CompiledFunctionsFollowTheMode) {
  struct Net : Module {
    Dropout drop{*this, "drop", 0.5};
    explicit Net(Key key) : Module(key) {}
    Tensor forward(const Tensor& x) const override { return drop(x); }
  };
  Net model{Key(0)};
  auto f = jit(
      {.announce_recompiles = false}, [&](const Tensor& x) { return model(x); }, model);
  const Tensor x = Tensor::ones({64});
  const auto zeros = [](const Tensor& y) {
    const std::vector<float> values = y.to_vector<float>();
    return std::count(values.begin(), values.end(), 0.0f);
  };
  for (int round = 0; round < 3; ++round) {
    model.train();
    EXPECT_GT(zeros(f(x)), 0) << round;
    model.eval();
    EXPECT_EQ(zeros(f(x)), 0) << round;
  }
  EXPECT_EQ(f.compile_count(), 2);
}

}  // namespace
}  // namespace ws::testing
