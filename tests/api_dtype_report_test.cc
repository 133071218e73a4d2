// dtype_report: what ops compute in, no leak in any built-in model, planted leaks found and named.
#include "api_util.h"
#include "support/json.h"

namespace ws::testing {
namespace {

DTypeReport report_of(Module& model, const Loss& loss, const Tensor& X, const Tensor& y, DType dtype = DType::bf16) {
  Trainer trainer(model, loss, SGD({.lr = 0.1}), {.compile = true, .compute_dtype = dtype});
  trainer.train_step(X, y);
  return trainer.compiled_step().dtype_report();
}

TEST(DTypes, BuiltInModelsHaveNoLeak) {
  Tensor rows = random_floats({4, 8}, 1), target = random_floats({4, 3}, 2), sequence = random_floats({4, 6, 5}, 3);
  auto mlp = models::mlp({8, 8, 3}, Key(0), Activation::gelu);
  DTypeReport report = report_of(mlp, MSE(), rows, target);
  EXPECT_TRUE(report.leaks.empty()) << report.text();
  EXPECT_NE(report.text().find("matmul(bf16, bf16) -> f32: 5, computed in bf16\n"), std::string::npos) << report.text();
  EXPECT_NE(report.text().find("no fp32 leak"), std::string::npos);
  auto encoder = models::transformer_encoder(
      {.inputs = 5, .width = 12, .outputs = 3, .blocks = 2, .heads = 3, .hidden = 20, .max_len = 9}, Key(3));
  report = report_of(encoder, MSE(), sequence, target);
  EXPECT_TRUE(report.leaks.empty()) << report.text();
  for (auto pos : {models::PositionKind::rope, models::PositionKind::learned, models::PositionKind::sinusoidal})
    for (bool other : {false, true}) {
      models::GptConfig config{.vocab = 11, .width = 12, .heads = 3, .blocks = 2, .max_len = 16, .pos = pos};
      if (other) config.swiglu = config.pre_norm = config.tied_head = false, config.rope_pairs = RopePairs::half_split;
      auto gpt = models::gpt(config, Key(3));
      report = report_of(gpt, SoftmaxCrossEntropy(), random_ints({2, 8}, 11, 1), random_ints({2, 8}, 11, 2));
      EXPECT_TRUE(report.leaks.empty()) << config.to_json() << report.text();
    }
  Sequential convolutional(Key(0), {layer<Conv2D>(4, 6, 3), layer<BatchNorm>(6), layer<ReLU>(), layer<MaxPool>(2),
                                    layer<Flatten>(), layer<Softplus>(), layer<Dropout>(0.3), layer<Linear>(24, 3)});
  report = report_of(convolutional, MSE(), random_floats({4, 6, 6, 4}, 1), target);
  EXPECT_TRUE(report.leaks.empty()) << report.text();
}

/// Attention whose rotation multiplies by a table of f32.
struct LeakyAttention : Module {
  enum class Kind : uint8_t { promoted, widened };
  Kind kind;
  Linear qkv{*this, "qkv", 8, 24}, out{*this, "out", 8, 8};
  Tensor cosines = Tensor::full({6, 1, 4}, 0.5);
  LeakyAttention(Module& parent, const std::string& name, Kind k) : Module(parent, name), kind(k) {}
  Tensor rotated(const Tensor& x) const {
    PathScope scope("my_rope");
    return kind == Kind::promoted ? x * cosines : x.cast(DType::f32) * cosines;
  }
  Tensor forward(const Tensor& x) const override {
    Tensor packed = qkv(x).reshape({2, 6, 3, 2, 4});
    auto part = [&](int64_t i) { return packed.slice(2, i, i + 1).reshape({2, 6, 2, 4}); };
    Tensor q = rotated(part(0)), k = rotated(part(1)), v = part(2).cast(DType::f32);
    return out(attention(q, k, v, true).reshape({2, 6, 8}));
  }
};

TEST(DTypes, APlantedRotationInF32IsFoundAndNamed) {
  for (auto kind : {LeakyAttention::Kind::promoted, LeakyAttention::Kind::widened}) {
    auto gpt = models::gpt({.vocab = 11, .width = 8, .heads = 2, .blocks = 1, .max_len = 6}, Key(3),
                           {.attention = layer<LeakyAttention>(kind)});
    DTypeReport report = report_of(gpt, SoftmaxCrossEntropy(), random_ints({2, 6}, 11, 1), random_ints({2, 6}, 11, 2));
    ASSERT_EQ(report.leaks.size(), 1) << report.text();
    const DTypeReport::Leak& leak = report.leaks[0];
    EXPECT_EQ(leak.op, "mul");
    EXPECT_EQ(leak.path, "blocks.0.attention.my_rope");
    EXPECT_EQ(leak.count, 2);
    if (kind == LeakyAttention::Kind::promoted) {
      EXPECT_TRUE(leak.cause.starts_with("captured")) << leak.message;
    }
    if (kind == LeakyAttention::Kind::widened) {
      EXPECT_EQ(leak.cause + " " + leak.cause_path, "cast blocks.0.attention.my_rope");
    }
    EXPECT_TRUE(mentions(report.text(), {"fp32 leak: mul in blocks.0.attention.my_rope", "(2 times)"}));
    Json json = parse_json(report.json(), "report");
    EXPECT_EQ(json["leaks"][0]["path"], "blocks.0.attention.my_rope");
    EXPECT_EQ(json["leaks"][0]["count"], 2);
    EXPECT_TRUE(json["ops"][0].contains("compute"));
  }
}

// Casts by hand, without a policy: a product that computes in f32 behind a widened value.
TEST(DTypes, AProductInF32BehindBf16) {
  Tensor w1 = random_floats({4, 4}, 1).cast(DType::bf16), w2 = random_floats({4, 4}, 2), w3 = random_floats({4, 4}, 3);
  auto step = jit([&](const Tensor& x) {
    Tensor h = matmul(x.cast(DType::bf16), w1);  // f32
    Tensor wide = tanh(h.cast(DType::bf16)).cast(DType::f32);
    return matmul(matmul(wide, w2).cast(DType::bf16), w3.cast(DType::bf16));
  });
  step(random_floats({3, 4}, 4));
  DTypeReport report = step.dtype_report();
  ASSERT_EQ(report.leaks.size(), 1) << report.text();
  EXPECT_EQ(report.leaks[0].op + " " + report.leaks[0].cause, "matmul cast");
}

// Under the policy a product gives f32. A bias may follow it; what keeps f32 for its gradient is a leak.
TEST(DTypes, ResultsOfProductsLeftInF32) {
  struct Net : Module {
    bool bends;
    Parameter w1{*this, "w1", {8, 8}, init::fan_in_normal()}, b{*this, "b", {8}, init::zeros()},
        w2{*this, "w2", {8, 3}, init::fan_in_normal()};
    explicit Net(bool t) : Module(Key(0)), bends(t) {}
    Tensor forward(const Tensor& x) const override {
      Tensor h = matmul(x, w1) + b;
      return matmul(bends ? tanh(h) : h, w2);
    }
  };
  Net straight(false), bent(true);
  Tensor X = random_floats({4, 8}, 1), y = random_floats({4, 3}, 2);
  EXPECT_TRUE(report_of(straight, MSE(), X, y).leaks.empty());
  DTypeReport report = report_of(bent, MSE(), X, y);
  ASSERT_EQ(report.leaks.size(), 1) << report.text();
  EXPECT_EQ(report.leaks[0].op + " " + report.leaks[0].cause, "tanh matmul");
  EXPECT_TRUE(report_of(bent, MSE(), X, y, DType::f32).leaks.empty());
}

}  // namespace
}  // namespace ws::testing
