// compute_dtype = bf16: what is rounded and what stays f32, the same bits in both modes, one program a dtype, training as in fp32.
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "api_util.h"

namespace ws::testing {
namespace {

Tensor rounded(const Tensor& x) { return x.cast(DType::bf16).cast(DType::f32); }

TEST(Precision, ProductsRoundTheirOperandsAndGiveF32) {
  Tensor a = random_floats({5, 7}, 1), b = random_floats({7, 3}, 2);
  Tensor right = matmul(rounded(a), rounded(b));
  ComputeDType precision(DType::bf16);
  Tensor got = matmul(a, b);
  EXPECT_EQ(got.dtype(), DType::f32);
  EXPECT_TRUE(bytes(got) == bytes(right));
  EXPECT_TRUE(bytes(matmul(a.cast(DType::bf16), b)) == bytes(right));
}

TEST(Precision, ScopesNestAndRefuseOtherDtypes) {
  EXPECT_EQ(compute_dtype(), DType::f32);
  {
    ComputeDType outer(DType::bf16);
    {
      ComputeDType inner(DType::f32);
      EXPECT_EQ(compute_dtype(), DType::f32);
    }
    EXPECT_EQ(compute_dtype(), DType::bf16);
  }
  EXPECT_EQ(compute_dtype(), DType::f32);
  EXPECT_TRUE(mentions(error_of([] { ComputeDType wrong(DType::i32); }), {"i32", "f32 or bf16"}));
}

TEST(Precision, LayersHandOnBf16AndRoundOnce) {
  Sequential model(Key(0), {layer<Linear>(8, 8)});
  const Module& linear = model[0];
  Tensor x = random_floats({4, 8}, 1);
  ComputeDType precision(DType::bf16);
  Tensor y = linear(x), wide = linear.unrounded(x);
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(wide.dtype(), DType::f32);
  EXPECT_TRUE(bytes(y) == bytes(wide.cast(DType::bf16)));
  // Functions of several ops round once.
  EXPECT_TRUE(bytes(gelu(y)) == bytes(gelu(y.cast(DType::f32)).cast(DType::bf16)));
  EXPECT_EQ((y * 2.0).dtype(), DType::bf16);
  EXPECT_EQ((y * Tensor(2.0)).dtype(), DType::bf16);       // a scalar changes no dtype
  EXPECT_EQ((y * Tensor::ones({8})).dtype(), DType::f32);  // a tensor does
  EXPECT_EQ(where(lt(y, 0.0), y, 0.0).dtype(), DType::bf16);
  EXPECT_EQ(mse(y, Tensor::ones({4, 8})).dtype(), DType::f32);
}

TEST(Precision, OutsideOfARegionDtypesDoNotMix) {
  Tensor x = Tensor::ones({2, 2}), low = x.cast(DType::bf16);
  EXPECT_TRUE(mentions(error_of([&] { x* low; }), {"f32[2, 2]", "bf16[2, 2]", "cast"}));
  EXPECT_TRUE(mentions(error_of([&] { matmul(x, low); }), {"f32[2, 2]", "bf16[2, 2]", "cast"}));
}

// Mixed dtypes of attention's inputs are an error inside a region too: an fp32 rotation would hide there.
TEST(Precision, AttentionOfMixedDtypesIsAnError) {
  Tensor q = Tensor::ones({1, 4, 2, 4}), k = q, v = q.cast(DType::bf16);
  for (DType dtype : {DType::f32, DType::bf16}) {
    ComputeDType precision(dtype);
    EXPECT_TRUE(mentions(error_of([&] { attention(q, k, v, true); }), {"q is f32[1, 4, 2, 4]", "k is f32", "v is bf16", "cast"}));
  }
  ComputeDType precision(DType::bf16);
  EXPECT_EQ(attention(q, k, q, true).dtype(), DType::bf16);
}

struct Net : Module {
  Linear hidden{*this, "hidden", 6, 16}, out{*this, "out", 16, 2};
  explicit Net(Key key) : Module(key) {}
  Tensor forward(const Tensor& x) const override { return out(tanh(hidden(x))); }
};

// A loop of one's own under a scope, the same compiled, and fit: the same bits.
TEST(Precision, HandWrittenLoopJitAndFit) {
  Tensor X = random_floats({8, 6}, 1), y = random_floats({8, 2}, 2);
  auto by_hand = [&](bool compile) {
    Net model(Key(0));
    AdamW optimizer(model.parameters(), {.lr = 0.01});
    auto step = [&](const Tensor& a, const Tensor& b) {
      Tensor loss = mse(model(a), b);
      optimizer.update(grad(loss, model.parameters()));
      return loss;
    };
    auto compiled = jit({.announce_recompiles = false}, step, model, optimizer);
    ComputeDType precision(DType::bf16);
    std::string losses;
    for (int i = 0; i < 4; ++i) losses += bytes(compile ? compiled(X, y) : step(X, y));
    return losses + bytes(model) + bytes(optimizer);
  };
  std::string loop = by_hand(false);
  EXPECT_TRUE(by_hand(true) == loop);
  Net model(Key(0));
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  Trainer trainer(model, MSE(), optimizer, {.compile = true, .compute_dtype = DType::bf16});
  std::string losses;
  for (int i = 0; i < 4; ++i) losses += bytes(trainer.train_step(X, y));
  EXPECT_TRUE(losses + bytes(model) + bytes(optimizer) == loop);
}

TEST(Precision, ACompiledFunctionHasAProgramForEachDtype) {
  Net model(Key(0));
  auto forward = jit(
      {.announce_recompiles = false}, [&](const Tensor& x) { return model(x); }, model);
  Tensor x = random_floats({3, 6}, 1);
  Tensor wide = forward(x);
  EXPECT_EQ(wide.dtype(), DType::f32);
  for (int i = 0; i < 2; ++i) {
    ComputeDType precision(DType::bf16);
    EXPECT_EQ(forward(x).dtype(), DType::bf16);
  }
  EXPECT_TRUE(bytes(forward(x)) == bytes(wide));
  EXPECT_EQ(forward.compile_count(), 2);
  auto fixed = jit(
      {.compute_dtype = DType::bf16}, [&](const Tensor& x) { return model(x); }, model);
  EXPECT_EQ(fixed(x).dtype(), DType::bf16);
}

// Muon's products are the optimizer's, so they stay in f32.
TEST(Precision, OptimizersComputeInF32) {
  Tensor X = random_floats({8, 6}, 1), y = random_floats({8, 2}, 2);
  Net model(Key(0));
  Muon optimizer(model.parameters(), {.lr = 0.01});
  Trainer trainer(model, MSE(), optimizer, {.compile = true, .compute_dtype = DType::bf16});
  trainer.train_step(X, y);
  EXPECT_NE(trainer.compiled_step().as_text().find("matmul"), std::string::npos);
  std::vector<Variable> state;
  optimizer.collect_state(state);
  for (const Variable& v : state) EXPECT_NE(v.value().dtype(), DType::bf16) << v.name();
}

// After training in bf16 every parameter, buffer and moment is f32 (keys and counters aside), and gradients are too.
TEST(Precision, MastersStayF32) {
  auto model = models::gpt({.vocab = 11, .width = 16, .heads = 2, .blocks = 2, .max_len = 8}, Key(3));
  Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 0.01}), {.compile = true, .compute_dtype = DType::bf16});
  trainer.fit(random_ints({8, 8}, 11, 1), random_ints({8, 8}, 11, 2), {.epochs = 2, .batch_size = 4});
  std::vector<Variable> state;
  model.collect_state(state);
  for (const Variable& v : state) EXPECT_EQ(v.value().dtype(), DType::f32) << v.name();
  state.clear();
  trainer.optimizer().collect_state(state);
  for (const Variable& v : state) EXPECT_NE(v.value().dtype(), DType::bf16) << v.name();
  ComputeDType precision(DType::bf16);
  Gradients g = grad(cross_entropy(model(random_ints({4, 8}, 11, 1)), random_ints({4, 8}, 11, 2)), model.parameters());
  for (size_t i = 0; i < g.values.size(); ++i) EXPECT_EQ(g.values[i].dtype(), DType::f32) << g.parameters[i].name();
}

double mean_of_last(const std::vector<double>& losses, size_t count) {
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) / static_cast<double>(count);
}

// The short form of bench/bf16_quality.sh: bf16 ends within the spread of fp32 seeds.
TEST(Precision, TrainsAsWellAsFp32) {
  Tensor X = random_floats({256, 6}, 1);
  Tensor y = tanh(matmul(X, random_floats({6, 2}, 2)));
  auto last_loss = [&](DType dtype, uint64_t seed) {
    auto model = models::mlp({6, 32, 32, 2}, Key(seed), Activation::tanh);
    Trainer trainer(model, MSE(), Adam({.lr = 0.003}), {.compile = true, .compute_dtype = dtype});
    History h = trainer.fit(X, y, {.epochs = 25, .batch_size = 32, .key = Key(seed)});
    return mean_of_last(h.train_loss, 5);
  };
  double low = INFINITY, high = 0;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    double loss = last_loss(DType::f32, seed);
    low = std::min(low, loss), high = std::max(high, loss);
  }
  double loss = last_loss(DType::bf16, 0);
  EXPECT_LE(loss, high * 1.05) << "five fp32 seeds end between " << low << " and " << high;
  EXPECT_LT(loss, 0.02);
}

// Case C45: masters, sums, softmax, norms and moments are f32, so that what is smaller than bf16's spacing still counts.
struct Gain : Module {
  Parameter w;
  Gain(int64_t size, double value) : Module(Key(0)), w(*this, "w", {size, 1}, init::constant(value)) {}
  Tensor forward(const Tensor& x) const override { return matmul(x, w); }
};
Tensor total(const Tensor& p, const Tensor&) { return p.sum(); }
Tensor nothing(const Tensor& p, const Tensor&) { return (p * 0.0).sum(); }

TEST(Precision, MastersAndSumsAreF32) {
  for (bool compile : {false, true}) {
    TrainerOptions options{.compile = compile, .compute_dtype = DType::bf16};
    const Tensor y = Tensor::zeros({1});
    Gain one(1, 1);
    Trainer small_steps(one, total, SGD({.lr = 1e-3}), options);
    for (int i = 0; i < 100; ++i) small_steps.train_step(Tensor::ones({1, 1}), y);
    EXPECT_NEAR(one.w.value().to_vector<float>()[0], 0.9, 2e-6);  // (a)
    EXPECT_EQ(small_steps.predict(Tensor::ones({1, 1})).item(), 0.8984375);

    Gain many(1024, 0);
    options.clip_norm = 1, options.record_grad_norm = true;
    Trainer clipped(many, total, SGD({.lr = 1}), options);
    const History h = clipped.fit(Tensor::ones({1, 1024}), y, {.epochs = 1, .batch_size = 1});
    EXPECT_EQ(h.grad_norms[0], 32);  // (d)
    for (float w : many.w.value().to_vector<float>()) EXPECT_EQ(w, -0.03125f);

    Gain still(5, 0.3);
    const std::string before = bytes(still);
    options.clip_norm = {}, options.record_grad_norm = false;
    Trainer moments(still, nothing, Adam({.lr = 0.1}), options);
    for (int i = 0; i < 3; ++i) moments.train_step(Tensor::ones({1, 5}), y);
    EXPECT_EQ(bytes(still), before);  // (e)
  }
  ComputeDType precision(DType::bf16);
  const Tensor ones = Tensor::ones({1024}, DType::bf16);
  auto compiled = jit({.name = "sums"}, [](const Tensor& x) { return std::vector<Tensor>{x.sum(), x.mean(), softmax(x)}; });
  for (const auto& found : {compiled(ones), std::vector<Tensor>{ones.sum(), ones.mean(), softmax(ones)}}) {
    EXPECT_EQ(found[0].item(), 1024);  // (b)
    EXPECT_EQ(found[1].item(), 1);
    for (float x : found[2].to_vector<float>()) EXPECT_EQ(x, 0.0009765625f);  // (c)
  }
}

// Contract 3.7: fused or one by one, what a chain of casts makes of a denormal is the same.
TEST(Precision, DenormalsThroughCastsAreTheSameInBothModes) {
  std::vector<float> values;
  for (uint32_t bits : {0x00000001u, 0x80000001u, 0x00008000u, 0x00018000u, 0x80010000u, 0x007F0000u, 0x007FFFFFu, 0x807FFFFFu,
                        0x00800000u, 0x80800000u, 0x00808000u, 0x0u, 0x80000000u, 0x3F818000u})
    for (int repeat = 0; repeat < 3; ++repeat) values.push_back(std::bit_cast<float>(bits));
  const Tensor wide = floats(values);
  std::string narrow_bytes;  // denormals and all, as a file may hold them
  for (float v : values) {
    const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    narrow_bytes.append(reinterpret_cast<const char*>(&half), 2);
  }
  const Tensor narrow = Tensor::from_bytes(narrow_bytes.data(), DType::bf16, wide.shape());
  auto f32 = [](const Tensor& x) { return x.cast(DType::f32); };
  auto bf16 = [](const Tensor& x) { return x.cast(DType::bf16); };
  using Chain = std::function<Tensor(const Tensor&)>;
  const Chain chains[] = {
      [&](const Tensor& x) { return f32(bf16(x)); },
      [&](const Tensor& x) { return bf16(f32(x)); },
      [&](const Tensor& x) { return f32(bf16(f32(bf16(x)))); },
      [&](const Tensor& x) { return bf16(-f32(x)); },
      [&](const Tensor& x) { return bf16(where(lt(f32(x), 1.0), f32(x), 2.0)); },
      [&](const Tensor& x) { return f32(bf16(f32(x) + 0.0)); },
      [&](const Tensor& x) { return f32(bf16(f32(x) * 1.0)); },
      [&](const Tensor& x) { return bf16(abs(f32(x))); },
      [&](const Tensor& x) { return bf16(relu(f32(bf16(x)))); },
      [&](const Tensor& x) {
        return f32(concatenate({bf16(x), bf16(-f32(x))}, 0));
      },
      [&](const Tensor& x) {
        return bf16(concatenate({f32(x), -f32(x)}, 0));
      },
      [&](const Tensor& x) { return bf16(f32(bf16(f32(x)))); },
      [&](const Tensor& x) { return bf16(f32(where(lt(f32(x), 1.0), bf16(x), bf16(-f32(x))))); },
      [&](const Tensor& x) {
        return bf16(f32(bf16(x).reshape({-1, 2})));
      },
  };
  for (size_t i = 0; i < std::size(chains); ++i)
    for (const Tensor& x : {wide, narrow}) {
      auto compiled = jit({.name = "chain"}, chains[i]);
      EXPECT_TRUE(bytes(compiled(x)) == bytes(chains[i](x))) << "chain " << i << " of " << name_of(x.dtype());
    }
}

}  // namespace
}  // namespace ws::testing
