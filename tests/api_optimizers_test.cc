// Update rules against numbers, clipping, ties, frozen and unused parameters.
#include <cmath>
#include <functional>
#include <limits>

#include "api_util.h"
#include "support/log.h"

namespace ws::testing {
namespace {

/// w <- rule(w, gradient) for each given gradient; the loss is sum(w * gradient).
template <class Opt>
std::vector<std::vector<float>> run(Opt optimizer, Variable w, const std::vector<std::vector<float>>& gradients) {
  optimizer.attach({w});
  std::vector<std::vector<float>> path;
  for (const auto& g : gradients) {
    optimizer.update(grad((w.value() * floats(g)).sum(), {w}));
    path.push_back(w.value().to_vector<float>());
  }
  return path;
}
Variable weight(const std::vector<float>& values) { return {"w", floats(values), true}; }

TEST(Optimizers, RmsPropC06) {
  auto path = run(RMSProp({.lr = 1, .rho = 0.9, .eps = 0.1, .eps_inside_root = false}), weight({0}), {{0.1F}, {0.1F}});
  EXPECT_NEAR(path[0][0], -0.7597469, 1e-6);
  EXPECT_NEAR(path[1][0], -1.4561792, 2e-6);
  path = run(RMSProp({.lr = 1, .rho = 0.9, .eps = 0.1}), weight({0}), {{0.1F}, {0.1F}});
  EXPECT_NEAR(path[0][0], -0.3146584, 1e-6);
  EXPECT_NEAR(path[1][0], -0.6279241, 1e-6);
}

TEST(Optimizers, AdaGradC07) {
  auto path = run(AdaGrad({.lr = 1, .eps = 1e-10}), weight({0, 0}), {{0, 2}, {3, 2}});
  EXPECT_EQ(path[0], (std::vector<float>{0, -1}));
  EXPECT_EQ(path[1][0], -1);
  EXPECT_NEAR(path[1][1], -1.7071068, 2e-6);
  path = run(AdaGrad({.lr = 1, .eps = 1e-10, .initial_accumulator = 0.1}), weight({0, 0}), {{0, 2}});
  EXPECT_NEAR(path[0][1], -0.9877296, 1e-6);
}

TEST(Optimizers, AdamC40) {
  auto path = run(Adam({.lr = 0.1}), weight({0}), {{1}, {1}, {-1}});
  EXPECT_NEAR(path[2][0], -0.2261993, 1e-6);
}

// The rules in double, over changing gradients and learning rates.
struct Rule {
  const char* name;
  std::function<std::unique_ptr<Optimizer>()> make;
  std::function<double(double w, double g, double lr, int t, double& a, double& b)> step;
};

TEST(Optimizers, MatchTheirFormulas) {
  const std::vector<Rule> rules = {
      {"sgd", [] { return std::make_unique<SGD>(SGDOptions{}); },
       [](double w, double g, double lr, int, double&, double&) { return w - lr * g; }},
      {"momentum", [] { return std::make_unique<SGD>(SGDOptions{.momentum = 0.9}); },
       [](double w, double g, double lr, int, double& a, double&) { return a = 0.9 * a + g, w - lr * a; }},
      {"nesterov", [] { return std::make_unique<SGD>(SGDOptions{.momentum = 0.9, .nesterov = true}); },
       [](double w, double g, double lr, int, double& a, double&) { return a = 0.9 * a + g, w - lr * (g + 0.9 * a); }},
      {"lr in velocity", [] { return std::make_unique<SGD>(SGDOptions{.momentum = 0.9, .lr_in_velocity = true}); },
       [](double w, double g, double lr, int, double& a, double&) { return a = 0.9 * a + lr * g, w - a; }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{}); },
       [](double w, double g, double lr, int t, double& a, double& b) {
         a = 0.9 * a + 0.1 * g;
         b = 0.999 * b + 0.001 * g * g;
         return w - lr * (a / (1 - std::pow(0.9, t))) / (std::sqrt(b / (1 - std::pow(0.999, t))) + 1e-8);
       }},
      {"adamw", [] { return std::make_unique<AdamW>(AdamWOptions{.weight_decay = 0.1}); },
       [](double w, double g, double lr, int t, double& a, double& b) {
         a = 0.9 * a + 0.1 * g;
         b = 0.999 * b + 0.001 * g * g;
         return w * (1 - lr * 0.1) - lr * (a / (1 - std::pow(0.9, t))) / (std::sqrt(b / (1 - std::pow(0.999, t))) + 1e-8);
       }},
  };
  for (const Rule& rule : rules) {
    Variable w = weight({0.7F});
    auto optimizer = rule.make();
    optimizer->attach({w});
    double right = 0.7F, a = 0, b = 0;
    for (int t = 1; t <= 20; ++t) {
      auto g = static_cast<float>(std::sin(t * 1.7) + 0.3);
      double lr = 0.05 / t;
      optimizer->set_lr(lr);
      optimizer->update(grad((w.value() * floats({g})).sum(), {w}));
      right = rule.step(right, g, lr, t, a, b);
    }
    EXPECT_NEAR(w.value().to_vector<float>()[0], right, 2e-6) << rule.name;
    EXPECT_EQ(optimizer->lr(), 0.05 / 20);
  }
}

TEST(Optimizers, UnusedAndFrozenC08) {
  Weights m;
  Variable a = m.add("a", {1}), b = m.add("b", {1}), c = m.add("c", {1});
  c.set_trainable(false);
  AdamW optimizer(m.parameters(), {.lr = 0.1, .weight_decay = 0.1});
  std::vector<std::string> notes;
  set_note_sink([&](std::string_view text) { notes.emplace_back(text); });
  for (int t = 0; t < 10; ++t) {
    Tensor loss = a.value().sum() + c.value().sum() * 0.0;
    optimizer.update(grad(loss, m.parameters()));
    if (t == 0) {
      EXPECT_NEAR(a.value().to_vector<float>()[0], 0.890000001, 1e-7);
    }
  }
  set_note_sink({});
  EXPECT_EQ(b.value().to_vector<float>()[0], 1.0F);
  EXPECT_EQ(c.value().to_vector<float>()[0], 1.0F);
  ASSERT_EQ(notes.size(), 1U);  // once, and not for the frozen one
  EXPECT_TRUE(mentions(notes[0], {"'b'", "no gradient"}));
}

TEST(Optimizers, TiedC33) {
  auto tied = [](double decay, bool clip, double gradient_scale, auto make) {
    Weights m;
    Variable w = m.add("w", {1});
    m.tie("again", w);
    auto optimizer = make(m.parameters(), decay);
    Gradients g = grad((w.value() * 2.0 + w.value() * 3.0).sum() * gradient_scale, m.parameters());
    EXPECT_EQ(g.parameters.size(), 1U);
    if (clip) g = clip_by_global_norm(g, 1);
    optimizer.update(g);
    return w.value().to_vector<float>()[0];
  };
  auto sgd = [](const std::vector<Variable>& p, double) { return SGD(p, {.lr = 0.1}); };
  auto adamw = [](const std::vector<Variable>& p, double decay) { return AdamW(p, {.lr = 0.1, .weight_decay = decay}); };
  EXPECT_NEAR(tied(0, false, 1, sgd), 0.5, 1e-7);
  EXPECT_NEAR(tied(0, true, 1, sgd), 0.9, 1e-7);
  EXPECT_NEAR(tied(0.1, false, 0, adamw), 0.99, 1e-7);
}

// Gradients of a loss whose gradient is `values`, clipped.
std::vector<float> clipped(const std::vector<float>& values, double limit, double* norm = nullptr) {
  Variable w = weight(std::vector<float>(values.size()));
  Tensor measured;
  Gradients g = clip_by_global_norm(grad((w.value() * floats(values)).sum(), {w}), limit, &measured);
  if (norm) *norm = measured.item();
  return g.values[0].to_vector<float>();
}

TEST(Clipping, C11) {
  EXPECT_EQ(clipped({0, 0}, 1), (std::vector<float>{0, 0}));
  EXPECT_EQ(clipped({3, 4}, 5), (std::vector<float>{3, 4}));
  double norm = 0;
  std::vector<float> c = clipped({3, 4}, 1, &norm);
  EXPECT_EQ(norm, 5);
  EXPECT_NEAR(c[0], 0.6, 6e-8);
  EXPECT_NEAR(c[1], 0.8, 6e-8);
  EXPECT_EQ(clipped({0.3F, 0.4F}, 1), (std::vector<float>{0.3F, 0.4F}));
  EXPECT_TRUE(mentions(error_of([] { clipped({3, 4}, -1); }), {"-1", "above 0"}));
  EXPECT_NE(error_of([] { clipped({3, 4}, 0); }), "");
  EXPECT_NE(error_of([] { clipped({3, 4}, std::nan("")); }), "");
}

TEST(Clipping, NormCannotOverflowAndMustBeFinite) {
  double norm = 0;
  std::vector<float> c = clipped({3e30F, 4e30F}, 1, &norm);
  EXPECT_NEAR(norm / 5e30, 1, 1e-6);
  EXPECT_NEAR(c[0], 0.6, 1e-6);
  EXPECT_TRUE(mentions(error_of([] {
                         Variable w = weight({0});
                         Gradients g = grad((w.value() * 1.0).sum(), {w});
                         g.values[0] = floats({std::numeric_limits<float>::infinity()});
                         (void)clip_by_global_norm(g, 1).values[0].to_vector<float>();
                       }),
                       {"gradient norm"}));
}

TEST(Clipping, NormOverSeveralGradients) {
  Weights m;
  Variable a = m.add("a", {1, 1}), b = m.add("b", {1});
  Gradients g = grad((a.value() * floats({2, 4})).sum() + (b.value() * 4.0).sum(), m.parameters());
  EXPECT_EQ(global_norm(g).item(), 6);
  Gradients half = clip_by_global_norm(g, 3);
  expect_near(half.values[0], {1, 2});
  expect_near(half.values[1], {2});
}

TEST(Optimizers, Errors) {
  EXPECT_NE(error_of([] { SGD({.lr = -1}); }), "");
  EXPECT_NE(error_of([] { SGD({.momentum = 1}); }), "");
  EXPECT_NE(error_of([] { SGD({.nesterov = true}); }), "");
  EXPECT_NE(error_of([] { Adam({.beta1 = 1}); }), "");
  EXPECT_TRUE(mentions(error_of([] { SGD().update({}); }), {"model.parameters()"}));
  SGD optimizer(std::vector<Variable>{weight({1})});
  EXPECT_NE(error_of([&] { optimizer.attach({}); }), "");
  Variable other("other", floats({1}), true);
  EXPECT_TRUE(mentions(error_of([&] { optimizer.update(grad(other.value().sum(), {other})); }), {"other"}));
}

TEST(Optimizers, ResetForgets) {
  Variable w = weight({1});
  Adam optimizer(std::vector<Variable>{w}, {.lr = 0.1});
  std::string fresh = bytes(optimizer);
  optimizer.update(grad(w.value().sum(), {w}));
  EXPECT_NE(bytes(optimizer), fresh);
  optimizer.reset();
  EXPECT_EQ(bytes(optimizer), fresh);
}

// C47: moments that decay under zero gradients become 0, never denormal, which would slow every step.
TEST(Optimizers, NoDenormalMomentsC47) {
  for (bool compile : {false, true}) {
    Weights model;
    Variable w = model.add("w", std::vector<float>(64, 0));
    Adam optimizer(model.parameters(), {.lr = 0.1});
    Scalar scale("scale", 1);
    auto step = [&](const Tensor&) {
      Tensor loss = (w.value() * Tensor(scale)).sum();
      optimizer.update(grad(loss, model.parameters()));
      return loss;
    };
    auto compiled = jit(step, model, optimizer, scale);
    for (int i = 0; i < 1200; ++i) {
      scale.set(i == 0 ? 1 : 0);
      compile ? compiled(Tensor(0.0)) : step(Tensor(0.0));
    }
    std::vector<Variable> state;
    optimizer.collect_state(state);
    for (const Variable& v : state)
      if (v.value().dtype() == DType::f32) {
        for (float x : v.value().to_vector<float>()) EXPECT_NE(std::fpclassify(x), FP_SUBNORMAL) << v.name();
      }
    volatile float smallest = 1e-38F;  // the caller's own arithmetic keeps its denormals
    EXPECT_NE(smallest / 100, 0);
    for (float x : w.value().to_vector<float>()) EXPECT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace ws::testing
