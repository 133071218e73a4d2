// matmul_precision: what high and bf16 multiply, their gradients, the same bits in both modes at any thread count, scopes and programs.
#include <cmath>

#include "api_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

Tensor high_part(const Tensor& x) { return x.cast(DType::bf16).cast(DType::f32); }
Tensor low_part(const Tensor& x) { return high_part(x - high_part(x)); }

/// The product of parts laid out side by side, of which `high` is the short form. Fp32 products of bf16 values have its bits where AMX
/// does not multiply.
Tensor by_parts(const Tensor& a, const Tensor& b) {
  const Tensor deep_a = concatenate({high_part(a), high_part(a), low_part(a)}, 1);
  const Tensor deep_b = concatenate({high_part(b), low_part(b), high_part(b)}, 0);
  return matmul(deep_a, deep_b);
}

struct Net : Module {
  Linear hidden{*this, "hidden", 24, 40}, out{*this, "out", 40, 3};
  explicit Net(Key key) : Module(key) {}
  Tensor forward(const Tensor& x) const override { return out(tanh(hidden(x))); }
};

TEST(MatmulPrecision, HighIsThreeProductsOfParts) {
  const Tensor a = random_floats({5, 70}, 1), b = random_floats({70, 9}, 2);
  const Tensor parts = by_parts(a, b), rounded = matmul(high_part(a), high_part(b)), plain = matmul(a, b);
  {
    MatmulPrecisionScope scope(MatmulPrecision::high);
    EXPECT_TRUE(bytes(matmul(a, b)) == bytes(parts));
    EXPECT_TRUE(bytes(matmul(a, b.transpose({1, 0}).contiguous(), false, true)) == bytes(parts));
    EXPECT_FALSE(bytes(matmul(a, b)) == bytes(plain));
    const Tensor narrow = a.cast(DType::bf16);  // bf16 operands are multiplied as they are
    EXPECT_TRUE(bytes(matmul(narrow, b.cast(DType::bf16))) == bytes(rounded));
  }
  MatmulPrecisionScope scope(MatmulPrecision::bf16);
  EXPECT_TRUE(bytes(matmul(a, b)) == bytes(rounded));
}

TEST(MatmulPrecision, GradientsAreMultipliedAlike) {
  const Tensor x = random_floats({6, 33}, 1), g = random_floats({6, 8}, 2);
  Sequential model(Key(0), {layer<Linear>(33, 8)});
  std::vector<Variable> state;
  model.collect_state(state);
  const Variable weight = state[0].value().rank() == 2 ? state[0] : state[1];
  MatmulPrecisionScope scope(MatmulPrecision::high);
  const Tensor loss = (matmul(x, weight) * g).sum();
  const Tensor grad_weight = grad(loss, {weight}).values[0];
  MatmulPrecisionScope plain(MatmulPrecision::highest);
  EXPECT_TRUE(bytes(grad_weight) == bytes(by_parts(x.transpose({1, 0}).contiguous(), g)));
}

TEST(MatmulPrecision, LoopAndCompiledAgreeInEveryBit) {
  const Tensor x = random_floats({37, 24}, 1), y = random_floats({37, 3}, 2);
  std::vector<std::string> ends;
  for (MatmulPrecision precision : {MatmulPrecision::highest, MatmulPrecision::high, MatmulPrecision::bf16}) {
    std::string first;
    for (auto [compile, threads] : std::vector<std::pair<bool, int>>{{false, 1}, {true, 1}, {true, 2}, {true, 4}}) {
      FlagScope flag("threads", std::to_string(threads));
      Net model(Key(3));
      Adam adam({.lr = 0.01});
      Trainer trainer(model, MSE(), adam,
                      {.compile = compile, .clip_norm = 1, .num_threads = threads, .matmul_precision = precision});
      trainer.fit(x, y, {.epochs = 4, .batch_size = 16});
      const std::string end = bytes(model) + bytes(adam) + bytes(trainer.predict(x));
      if (first.empty()) first = end;
      EXPECT_TRUE(end == first) << name_of(precision) << (compile ? " compiled, " : " loop, ") << threads << " threads";
    }
    ends.push_back(first);
  }
  EXPECT_FALSE(ends[0] == ends[1]);
  EXPECT_FALSE(ends[0] == ends[2]);
  EXPECT_FALSE(ends[1] == ends[2]);
}

TEST(MatmulPrecision, EachHasAProgramAndTheReferenceKnowsThem) {
  FlagScope verify("verify", "3");
  Net model(Key(3));
  const Tensor x = random_floats({4, 24}, 1);
  auto forward = jit(
      {.name = "net"}, [&](const Tensor& in) { return model(in); }, model);
  auto fixed = jit(
      {.name = "net", .matmul_precision = MatmulPrecision::high}, [&](const Tensor& in) { return model(in); }, model);
  const std::string highest = bytes(forward(x)), high = bytes(fixed(x));
  EXPECT_FALSE(high == highest);
  {
    MatmulPrecisionScope scope(MatmulPrecision::high);
    EXPECT_TRUE(bytes(forward(x)) == high);
    EXPECT_TRUE(bytes(model(x)) == high);
  }
  EXPECT_EQ(forward.compile_count(), 2);
  EXPECT_TRUE(bytes(forward(x)) == highest);
  EXPECT_EQ(forward.compile_count(), 2);
  EXPECT_TRUE(fixed.as_text().find("precision = \"high\"") != std::string::npos);
}

TEST(MatmulPrecision, ScopesNestAndNamesAreChecked) {
  EXPECT_EQ(matmul_precision(), MatmulPrecision::highest);
  {
    MatmulPrecisionScope outer(MatmulPrecision::bf16);
    MatmulPrecisionScope inner(matmul_precision_from_name("high"));
    EXPECT_EQ(matmul_precision(), MatmulPrecision::high);
  }
  EXPECT_EQ(matmul_precision(), MatmulPrecision::highest);
  EXPECT_TRUE(mentions(error_of([] { matmul_precision_from_name("tf32"); }), {"tf32", "highest, high and bf16"}));
}

// Optimizers multiply in fp32: Muon's rounds would lose their meaning.
TEST(MatmulPrecision, OptimizersAreLeftAlone) {
  std::string first;
  for (MatmulPrecision precision : {MatmulPrecision::highest, MatmulPrecision::bf16}) {
    Net model(Key(3));
    Muon muon(MuonOptions{});
    muon.attach(model.parameters());
    MatmulPrecisionScope scope(precision);
    Gradients gradients;
    for (const Variable& p : model.parameters()) {
      gradients.parameters.push_back(p);
      gradients.values.push_back(random_floats(p.value().shape(), gradients.values.size()));
    }
    muon.update(gradients);
    if (first.empty()) first = bytes(model);
    EXPECT_TRUE(bytes(model) == first);
  }
}

}  // namespace
}  // namespace ws::testing
