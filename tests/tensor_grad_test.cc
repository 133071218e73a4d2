// Gradients of the loop: finite differences, the tape's life, NoGrad, frozen and unused parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tensor/storage.h"
#include "tensor/tensor_impl.h"
#include "tensor_util.h"
#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

// Central differences in fp32: loose, but a wrong rule is off by much more.
void expect_gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& start) {
  Variable w("w", start, true);
  Gradients g = grad(f(w), {w});
  ASSERT_TRUE(g.values[0].defined());
  std::vector<float> got = g.values[0].to_vector<float>(), values = start.to_vector<float>();
  ASSERT_EQ(got.size(), values.size());
  NoGrad no_grad;
  const double h = 1e-2;
  for (size_t i = 0; i < values.size(); ++i) {
    auto at = [&](double delta) {
      std::vector<float> moved = values;
      moved[i] += static_cast<float>(delta);
      return f(Tensor::from(std::span<const float>(moved), start.shape())).item();
    };
    double expected = (at(h) - at(-h)) / (2 * h);
    EXPECT_NEAR(got[i], expected, 2e-3 * std::max(1.0, std::fabs(expected))) << i;
  }
}

TEST(Grad, AgainstFiniteDifferences) {
  Tensor x = random_floats({4, 3}, 1), b = random_floats({3, 5}, 2);
  expect_gradient([&](const Tensor& w) { return square(matmul(x, w)).mean(); }, b);
  expect_gradient([&](const Tensor& w) { return (tanh(matmul(w.t(), x.t())) * 0.5).sum(); }, b);
  expect_gradient([&](const Tensor& w) { return (softmax(w) * x).sum(); }, random_floats({4, 3}, 3));
  expect_gradient([&](const Tensor& w) { return (log_softmax(w) * x).mean(); }, random_floats({4, 3}, 4));
  expect_gradient([&](const Tensor& w) { return (gelu(w) + gelu_tanh(w) + silu(w)).sum(); }, random_floats({7}, 5));
  expect_gradient([&](const Tensor& w) { return (x * w + w).sum({0}).max(); }, random_floats({3}, 6));
  expect_gradient([&](const Tensor& w) { return (w.slice(1, 0, 2) * w.slice(1, 1, 3)).sum(); }, random_floats({4, 3}, 7));
  expect_gradient(
      [&](const Tensor& w) {
        return (concatenate({w, w * w}, 0).reshape({-1, 2}).t() * 3.0).mean();
      },
      random_floats({2, 3}, 8));
  std::vector<int32_t> rows{2, 0, 2, 1};
  Tensor indices = Tensor::from(std::span<const int32_t>(rows), {4});
  expect_gradient([&](const Tensor& w) { return square(gather(w, indices)).sum(); }, random_floats({3, 2}, 9));
  expect_gradient([&](const Tensor& w) { return where(lt(x, x * 0.0), x * w, w / 2.0).sum(); }, random_floats({4, 3}, 10));
  expect_gradient(
      [&](const Tensor& w) {
        return w.transpose({2, 0, 1}).contiguous().mean({1}).sum();
      },
      random_floats({2, 3, 4}, 11));
}

TEST(Grad, AttentionAgainstFiniteDifferences) {
  Tensor k = random_floats({1, 3, 2, 4}, 1), v = random_floats({1, 3, 2, 4}, 2), weight = random_floats({1, 3, 2, 4}, 3);
  for (bool causal : {false, true})
    expect_gradient([&](const Tensor& q) { return (attention(q, k + q * 0.1, v, causal) * weight).sum(); },
                    random_floats({1, 3, 2, 4}, 4));
}

TEST(Grad, UsedTwiceAddsUp) {  // case C33
  Variable w("w", Tensor(1.0), true);
  Gradients g = grad(w.value() * 2.0 + w.value() * 3.0, {w});
  EXPECT_EQ(g.values[0].item(), 5);
  EXPECT_EQ(g.loss.item(), 5);
}

TEST(Grad, LeavesOutFrozenAndUnused) {
  Variable a("a", Tensor(1.0), true), unused("unused", Tensor(1.0), true), frozen("frozen", Tensor(2.0), true);
  frozen.set_trainable(false);
  Gradients g = grad(a.value() * frozen.value(), {a, unused, frozen});
  ASSERT_EQ(g.parameters.size(), 2u);
  EXPECT_EQ(g.values[0].item(), 2);
  EXPECT_FALSE(g.values[1].defined());
}

TEST(Grad, TapeIsUsedUp) {
  Variable w("w", random_floats({3}, 1), true);
  Tensor loss = square(w).sum();
  grad(loss, {w});
  EXPECT_NE(message_of([&] { grad(loss, {w}); }).find("another grad()"), std::string::npos);
  Tensor shared = exp(w);
  Tensor first = shared.sum(), second = shared.mean();
  grad(first, {w});
  EXPECT_NE(message_of([&] { grad(second, {w}); }).find("another grad()"), std::string::npos);
}

TEST(Grad, NothingIsRecordedUnderNoGradOrWithoutParameters) {
  Variable w("w", random_floats({3}, 1), true);
  EXPECT_TRUE(square(w).impl()->requires_grad);
  EXPECT_FALSE(square(w.value().detach()).impl()->requires_grad);
  EXPECT_FALSE(lt(w, w).impl()->requires_grad);
  EXPECT_FALSE(square(random_floats({3}, 2)).impl()->requires_grad);
  NoGrad no_grad;
  Tensor y = square(w);
  EXPECT_FALSE(y.impl()->requires_grad);
  EXPECT_EQ(y.impl()->node, nullptr);
}

TEST(Grad, MemoryIsFreedWithTheLastHandle) {
  Variable w("w", random_floats({1000}, 1), true);
  auto live = [] { return allocator_stats().live_bytes; };
  int64_t before = live();
  {
    Tensor y = w;
    for (int i = 0; i < 50; ++i) y = tanh(y * 1.1);
    EXPECT_GT(live(), before + 50 * 4000);
    y = y.sum();
    Gradients g = grad(y, {w});
    g = {};
    EXPECT_LT(live(), before + 2 * 4096);  // the loss alone is left
  }
  { Tensor never_used = exp(square(w)); }
  EXPECT_EQ(live(), before);
}

TEST(Grad, GradientsOfTheWalkAreFreedAsItGoes) {
  Variable w("w", random_floats({100000}, 1), true);
  Tensor y = w;
  for (int i = 0; i < 30; ++i) y = tanh(y * 1.1);
  y = y.sum();
  int64_t before = allocator_stats().live_bytes;
  reset_allocator_peak();
  Gradients g = grad(y, {w});
  // The saved activations, which are freed on the way, and a few gradients of 400 KB in flight.
  EXPECT_LT(allocator_stats().peak_live_bytes, before + 8 * 450000);
}

TEST(Grad, LongHistoriesDoNotRecurse) {
  Variable w("w", Tensor(1.0), true);
  Tensor y = w;
  for (int i = 0; i < 100000; ++i) y = y + 0.0;
  y = Tensor();  // a recursive release would overflow the stack
  Tensor z = w;
  for (int i = 0; i < 100000; ++i) z = z * 1.0;
  EXPECT_EQ(grad(z, {w}).values[0].item(), 1);
}

TEST(Grad, NonFiniteLossStopsBeforeUpdates) {
  Variable w("w", Tensor(0.0), true);
  std::string message = message_of([&] { grad(log(w), {w}); });
  EXPECT_NE(message.find("loss"), std::string::npos) << message;
  EXPECT_THROW(grad(log(w), {w}), RuntimeError);
}

TEST(Grad, RejectsLossesThatAreNotANumber) {
  Variable w("w", random_floats({3}, 1), true);
  EXPECT_NE(message_of([&] { grad(square(w), {w}); }).find("f32[3]"), std::string::npos);
  EXPECT_NE(message_of([&] { grad(Tensor(), {w}); }).find("undefined"), std::string::npos);
  EXPECT_NE(message_of([&] { grad(w.value().sum().cast(DType::i32), {w}); }).find("i32[]"), std::string::npos);
}

TEST(Grad, ALossOfConstantsIsAnError) {
  Variable w("w", random_floats({3}, 1), true);
  Gradients first = grad(square(w).sum(), {w});
  EXPECT_NE(message_of([&] { grad(square(first.values[0]).sum(), {w}); }).find("none of the parameters"), std::string::npos);
  Tensor x = watch(random_floats({3}, 1));
  EXPECT_NE(message_of([&] { grad_of(square(x.detach()).sum(), {x}); }).find("none of the inputs"), std::string::npos);
}

TEST(Grad, OfWatchedTensorsAndIntermediates) {
  Tensor x = watch(random_floats({3}, 1));
  Tensor y = x * 2.0;
  Tensor loss = square(y).sum();
  auto g = grad_of(loss, {x, y});
  std::vector<float> values = x.to_vector<float>();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(g[0].to_vector<float>()[i], 8 * values[i]);
    EXPECT_FLOAT_EQ(g[1].to_vector<float>()[i], 4 * values[i]);
  }
  Tensor plain = random_floats({3}, 2);
  EXPECT_NE(message_of([&] { grad_of(square(plain).sum(), {plain}); }).find("watch"), std::string::npos);
}

TEST(Variable, SetKeepsTypeAndCutsHistory) {
  Variable w("fc.weight", random_floats({2, 2}, 1), true);
  std::string message = message_of([&] { w.set(random_floats({3}, 1)); });
  EXPECT_NE(message.find("fc.weight"), std::string::npos);
  EXPECT_NE(message.find("f32[2, 2]"), std::string::npos);
  EXPECT_NE(message.find("f32[3]"), std::string::npos);
  w.set(w.value() * 2.0);
  EXPECT_EQ(w.value().impl()->node, nullptr);
  EXPECT_TRUE(grad(w.value().sum(), {w}).values[0].defined());
  Scalar rate("rate", 0.5);
  rate.set(0.25);
  EXPECT_EQ(rate.get(), 0.25);
  Tensor kept = rate;
  rate.set(0.75);
  EXPECT_EQ(kept.item(), 0.25);
  EXPECT_EQ(rate.get(), 0.75);
}

}  // namespace
}  // namespace ws
