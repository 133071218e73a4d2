// Muon: orthogonalization by numbers, who is a matrix, AdamW for the rest, both modes.
#include <cmath>

#include "api_util.h"

namespace ws::testing {
namespace {

/// How the first step moves a zero weight of this gradient at rate 1, negated.
std::vector<float> first_move(const std::vector<float>& g, const Shape& shape, MuonOptions options = {}) {
  Variable w("w", Tensor::zeros(shape), true);
  options.lr = 1;
  Muon optimizer(std::vector<Variable>{w}, options);
  optimizer.update(grad((w.value() * floats(g, shape)).sum(), {w}));
  return (-w.value()).to_vector<float>();
}

TEST(Muon, C09) {
  const double s3 = 0.7228762, s4 = 1.1192039;
  for (double momentum : {0.0, 0.5, 0.95})
    expect_near(floats(first_move({3, 0, 0, 4}, {2, 2}, {.momentum = momentum})), {s3, 0, 0, s4}, 3e-6);
  for (float v : first_move({0, 0, 0, 0}, {2, 2})) EXPECT_EQ(v, 0);
  // [inputs, outputs]: two inputs and one output have factor 1, one input and two outputs sqrt(2).
  expect_near(floats(first_move({3, 4}, {2, 1})), {0.4178618, 0.5571491}, 3e-6);
  expect_near(floats(first_move({3, 4}, {1, 2})), {0.5909459, 0.7879279}, 3e-6);
  expect_near(floats(first_move({3e-10F, 0, 0, 4e-10F}, {2, 2}, {.momentum = 0})), {1.107794, 0, 0, 1.201179}, 3e-6);
  expect_near(orthogonalize(floats({3e30F, 0, 0, 4e30F}, {2, 2})), {s3, 0, 0, s4}, 3e-6);  // the norm does not overflow
  EXPECT_TRUE(mentions(error_of([] { orthogonalize(floats({1, 2})); }), {"[2]", "matrix"}));
}

TEST(Muon, TurnsWithItsInputAndTransposes) {
  auto rotation = [](double angle) {
    auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    return floats({c, -s, s, c}, {2, 2});
  };
  auto turned = [&](const std::vector<float>& diagonal) {
    return matmul(matmul(rotation(0.7), floats({diagonal[0], 0, 0, diagonal[1]}, {2, 2})), rotation(-1.9));
  };
  std::vector<float> right = turned({0.7228762F, 1.1192039F}).to_vector<float>();
  expect_near(orthogonalize(turned({3, 4})), {right.begin(), right.end()}, 1e-5, 1e-6);
  Tensor wide = random_floats({5, 8}, 3);
  EXPECT_EQ(bytes(orthogonalize(wide.t())), bytes(orthogonalize(wide).t()));
}

TEST(Muon, TheRestIsAdamW) {
  auto model = models::gpt({.vocab = 12, .width = 8, .heads = 2, .blocks = 1, .max_len = 8, .tied_head = false}, Key(0));
  Muon muon(model.parameters(), {.lr = 0.02, .rest = {.lr = 0.004, .weight_decay = 0.1}});
  std::vector<Variable> state;
  muon.collect_state(state);
  int matrices = 0;
  for (const Variable& v : state) {
    bool body = v.name().starts_with("muon.momentum.");
    matrices += body;
    EXPECT_FALSE(body && (v.name().find("embedding") != std::string::npos || v.name().find("head") != std::string::npos))
        << v.name();
  }
  EXPECT_EQ(matrices, 5);  // qkv, out, gate, up, down

  // Vectors move as under AdamW of the same options.
  Variable a("a", floats({1, -2}), true), b("b", floats({1, -2}), true);
  Muon one(std::vector<Variable>{a}, {.lr = 0.02, .rest = {.lr = 0.004, .weight_decay = 0.1}});
  AdamW two(std::vector<Variable>{b}, {.lr = 0.004, .weight_decay = 0.1});
  for (int i = 0; i < 5; ++i) {
    one.update(grad((a.value() * floats({1.0F, static_cast<float>(i)})).sum(), {a}));
    two.update(grad((b.value() * floats({1.0F, static_cast<float>(i)})).sum(), {b}));
  }
  expect_near(a, {b.value().to_vector<float>()[0], b.value().to_vector<float>()[1]});
  EXPECT_NE(error_of([] { Muon({.lr = 0}); }), "");
  EXPECT_NE(error_of([] { Muon({.momentum = 1}); }), "");
}

TEST(Muon, DecayAndMomentum) {
  Variable w("w", floats({2, 0, 0, 2}, {2, 2}), true);
  Muon optimizer(std::vector<Variable>{w}, {.lr = 0.1, .weight_decay = 0.5});
  optimizer.update(grad((w.value() * 0.0).sum(), {w}));
  expect_near(w, {2 * 0.95, 0, 0, 2 * 0.95});
}

TEST(Muon, CompiledIsTheLoop) {
  Tensor tokens = random_ints({4, 8}, 12, 1), labels = random_ints({4, 8}, 12, 2);
  auto run = [&](bool compile, int threads) {
    auto model = models::gpt({.vocab = 12, .width = 8, .heads = 2, .blocks = 1, .max_len = 8}, Key(0));
    Trainer trainer(model, SoftmaxCrossEntropy(), Muon(),
                    {.compile = compile, .clip_norm = 1, .schedule = LinearWarmup{0.001, 0.02, 2}, .num_threads = threads});
    History h = trainer.fit(tokens, labels, {.epochs = 6, .batch_size = 4});
    EXPECT_LT(h.train_loss[5], h.train_loss[0]);
    return bytes(model) + bytes(trainer.optimizer());
  };
  std::string loop = run(false, 1);
  for (int threads : {1, 2, 4}) EXPECT_TRUE(run(true, threads) == loop) << threads;
}

}  // namespace
}  // namespace ws::testing
