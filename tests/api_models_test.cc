// Ready models: names, options, JSON, loop against compiled, replaced parts.
#include <cmath>

#include "api/model_from_json.h"
#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Models, Names) {
  auto gpt = models::gpt({.vocab = 5, .width = 8, .heads = 2, .blocks = 1, .max_len = 8}, Key(0));
  std::vector<std::string> names;
  for (const auto& [name, variable] : gpt.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"token_embedding.weight", "blocks.0.norm1.weight", "blocks.0.attention.qkv.weight",
                                             "blocks.0.attention.out.weight", "blocks.0.norm2.weight",
                                             "blocks.0.feed_forward.gate.weight", "blocks.0.feed_forward.up.weight",
                                             "blocks.0.feed_forward.down.weight", "norm.weight"}));
  EXPECT_EQ(models::gpt({.vocab = 28, .width = 512, .heads = 8, .blocks = 1, .max_len = 8}, Key(0)).num_parameters(),
            28 * 512 + 4 * 512 * 512 + 3 * 512 * 1365 + 3 * 512);
  EXPECT_EQ(models::mlp({512, 512, 512, 512, 512}, Key(0)).num_parameters(), 4 * (512 * 512 + 512));
  auto encoder = models::transformer_encoder({}, Key(0));
  EXPECT_EQ(encoder.find("blocks.3.attention.qkv.weight").value().shape(), (Shape{256, 768}));
  EXPECT_EQ(encoder.find("input.weight").value().shape(), (Shape{64, 256}));
}

TEST(Models, Errors) {
  EXPECT_TRUE(mentions(error_of([] { models::gpt({.width = 10, .heads = 4}, Key(0)); }), {"10", "4 heads"}));
  EXPECT_TRUE(
      mentions(error_of([] { models::gpt({.width = 12, .heads = 4}, Key(0)); }), {"12", "4 heads", "RoPE", "multiple of 8"}));
  EXPECT_NE(error_of([] { models::mlp({3}, Key(0)); }), "");
  EXPECT_NE(error_of([] { models::mlp({3, -1}, Key(0)); }), "");
  auto gpt = models::gpt({.vocab = 5, .width = 8, .heads = 2, .blocks = 1, .max_len = 4}, Key(0));
  EXPECT_TRUE(mentions(error_of([&] { gpt(Tensor::zeros({1, 5}, DType::i32)); }), {"5", "max_len 4"}));
  EXPECT_TRUE(mentions(error_of([&] { gpt(Tensor::zeros({1, 4})); }), {"i32"}));
  EXPECT_TRUE(mentions(error_of([&] { gpt(Tensor::zeros({4}, DType::i32)); }), {"[4]"}));
}

std::vector<models::GptConfig> gpt_variants() {
  using models::PositionKind;
  models::GptConfig base{.vocab = 11, .width = 12, .heads = 3, .blocks = 2, .max_len = 16};
  std::vector<models::GptConfig> all(6, base);
  all[1].pos = PositionKind::learned;
  all[1].norm = NormKind::layer;
  all[1].swiglu = false;
  all[1].bias = true;
  all[2].pos = PositionKind::sinusoidal;
  all[2].pre_norm = false;
  all[3].tied_head = false;
  all[3].rope_pairs = RopePairs::half_split;
  all[4].swiglu = false;
  all[4].gelu_tanh = false;
  all[5].norm = NormKind::layer;
  all[5].pre_norm = false;
  return all;
}

TEST(Models, GptConfigRoundTrips) {
  for (const auto& config : gpt_variants())
    EXPECT_TRUE(models::GptConfig::from_json(config.to_json()) == config) << config.to_json();
  EXPECT_TRUE(mentions(error_of([] { models::GptConfig::from_json(R"({"width": 8})"); }), {"width", "num_hiddens"}));
  EXPECT_TRUE(mentions(error_of([] { models::GptConfig::from_json(R"({"pos": "alibi"})"); }), {"alibi", "rope"}));
  EXPECT_TRUE(mentions(error_of([] { models::GptConfig::from_json(R"({"num_heads": 0})"); }), {"num_heads"}));
}

TEST(Models, GptInBothModes) {
  Tensor X = random_ints({12, 8}, 11, 1), y = random_ints({12, 8}, 11, 2);
  for (const auto& config : gpt_variants()) {
    auto run = [&](bool compile, DType dtype) {
      auto model = models::gpt(config, Key(3));
      Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 0.01}),
                      {.compile = compile, .clip_norm = 1, .compute_dtype = dtype});
      History h = trainer.fit(X, y, {.epochs = 4, .batch_size = 4});
      EXPECT_NEAR(h.step_losses[0], std::log(11.0), 1.0);
      EXPECT_LT(h.train_loss.back(), h.train_loss.front());
      return bytes(model) + bytes(trainer.optimizer()) + bytes(trainer.predict(X));
    };
    for (DType dtype : {DType::f32, DType::bf16})
      EXPECT_TRUE(run(false, dtype) == run(true, dtype)) << config.to_json() << name_of(dtype);
  }
}

TEST(Models, EncoderInBothModes) {
  models::TransformerEncoderConfig config{
      .inputs = 5, .width = 12, .outputs = 3, .blocks = 2, .heads = 3, .hidden = 20, .max_len = 9};
  Tensor X = random_floats({10, 7, 5}, 1), y = random_floats({10, 3}, 2);
  for (DType dtype : {DType::f32, DType::bf16}) {
    auto run = [&](bool compile) {
      auto model = models::transformer_encoder(config, Key(3));
      Trainer trainer(model, MSE(), SGD({.lr = 0.02, .momentum = 0.9}),
                      {.compile = compile, .clip_norm = 1, .compute_dtype = dtype});
      History h = trainer.fit(X, y, {.epochs = 4, .batch_size = 4});
      EXPECT_LT(h.train_loss.back(), h.train_loss.front());
      return bytes(model) + bytes(trainer.optimizer()) + bytes(trainer.predict(X));
    };
    EXPECT_TRUE(run(false) == run(true));
  }
}

TEST(Models, CausalGptSeesNoFuture) {
  auto model = models::gpt(gpt_variants()[0], Key(3));
  Tensor a = random_ints({1, 8}, 11, 1);
  std::vector<int32_t> changed = a.to_vector<int32_t>();
  changed[5] = (changed[5] + 1) % 11;
  Tensor before = model(a).detach().slice(1, 0, 5), after = model(ints(changed, {1, 8})).detach().slice(1, 0, 5);
  EXPECT_TRUE(bytes(before) == bytes(after));
  EXPECT_FALSE(bytes(model(a)) == bytes(model(ints(changed, {1, 8}))));
}

TEST(Models, APartCanBeReplaced) {
  struct MeanMixer : Module {  // every position becomes the mean of the sequence, scaled
    Parameter gain{*this, "gain", {1}, init::ones()};
    using Module::Module;
    Tensor forward(const Tensor& x) const override { return (x.mean({1}, true) * gain).broadcast_to(x.shape()); }
  };
  auto model =
      models::gpt({.vocab = 11, .width = 12, .heads = 3, .blocks = 1, .max_len = 16}, Key(3), {.attention = layer<MeanMixer>()});
  EXPECT_EQ(model.find("blocks.0.attention.gain").value().size(), 1);
  Trainer trainer(model, SoftmaxCrossEntropy(), SGD({.lr = 0.1}), {.compile = true});
  trainer.fit(random_ints({4, 8}, 11, 1), random_ints({4, 8}, 11, 2), {.batch_size = 4});
  EXPECT_NE(model.find("blocks.0.attention.gain").value().item(), 1);
}

Json json(const char* text) { return parse_json(text, "test"); }

TEST(ModelFromJson, SequentialWords) {
  auto model = model_from_json(json(R"({"type": "sequential", "layers": [
    {"type": "dense", "n_in": 4, "n_out": 6}, {"type": "add_positions", "kind": "sinusoidal", "max_len": 8},
    {"type": "transformer_block", "d_model": 6, "n_heads": 2, "d_ff": 10, "causal": true, "activation": "relu", "param_order": []},
    {"type": "residual", "inner": {"type": "sequential", "layers": [{"type": "tanh"}, {"type": "dense", "n_in": 6, "n_out": 6}]}},
    {"type": "batch_norm", "n": 6}, {"type": "sigmoid"}, {"type": "mean_over_time"}, {"type": "dense", "n_in": 6, "n_out": 2}]})"));
  EXPECT_EQ((*model)(random_floats({3, 5, 4}, 1)).shape(), (Shape{3, 2}));
  EXPECT_EQ(model->find("3.inner.1.weight").value().shape(), (Shape{6, 6}));
  auto message = [](const char* text) { return error_of([&] { model_from_json(json(text)); }); };
  EXPECT_TRUE(mentions(message(R"({"type": "sequential", "layers": [{"type": "lstm"}]})"), {"layers[0]", "lstm", "dense"}));
  EXPECT_TRUE(mentions(message(R"({"type": "resnet"})"), {"resnet", "gpt"}));
  EXPECT_TRUE(mentions(message(R"({"type": "sequential", "layers": [{"type": "dense", "n_in": 4}]})"), {"n_out"}));
  EXPECT_TRUE(mentions(message(R"({"type": "mlp", "sizes": [4, "x"]})"), {"sizes"}));
  EXPECT_EQ(model_from_json(json(R"({"type": "mlp", "sizes": [4, 5, 2]})"))->num_parameters(), 25 + 12);
  auto gpt = model_from_json(json(R"({"type": "gpt", "num_hiddens": 16, "num_heads": 2, "num_blks": 1})"));
  EXPECT_EQ(gpt->find("blocks.0.attention.qkv.weight").value().shape(), (Shape{16, 48}));
}

}  // namespace
}  // namespace ws::testing
