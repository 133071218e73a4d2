// The state of a compiled function: written in place, shared, swapped, frozen, left as it was by what fails.
#include <gtest/gtest.h>

#include <cmath>

#include "support/log.h"
#include "tensor/tensor_impl.h"
#include "tensor/variable.h"
#include "tensor_jit_util.h"

namespace ws {
namespace {

TEST(Jit, StateIsWrittenInPlace) {
  Mlp model(1);
  Momentum optimizer(model.parameters());
  auto step = jit(training_step(model, optimizer), model, optimizer);
  Tensor x = random_floats({4, 8}, 1), y = random_floats({4, 1}, 2);
  step(x, y);
  const void* memory = model.w1.value().data();
  V before = list(model.w1);
  uint64_t version = model.w1.slot()->version;
  step(x, y);
  EXPECT_EQ(model.w1.value().data(), memory);
  EXPECT_NE(list(model.w1), before);
  EXPECT_EQ(model.w1.slot()->version, version + 1);
}

TEST(Jit, TwoParametersFromOneBuffer) {  // case C32
  Tensor array = Tensor::from(std::span<const float>(V{1.0f}), {1});
  Variable a("a", array, true), b("b", array, true);
  Tensor old_a = a.value();
  auto step = jit(
      [&](const Tensor& x) {
        Gradients g = grad(((a.value() + b.value() * 2.0) * x).sum(), {a, b});
        NoGrad no_grad;
        a.set(a.value() - g.values[0] * 0.1);
        b.set(b.value() - g.values[1] * 0.1);
        return g.loss;
      },
      a, b);
  step(Tensor::ones({1}));
  EXPECT_FLOAT_EQ(a.value().to_vector<float>()[0], 0.9f);
  EXPECT_FLOAT_EQ(b.value().to_vector<float>()[0], 0.8f);
  EXPECT_EQ(list(array), V{1.0f});
  EXPECT_EQ(list(old_a), V{1.0f});
}

TEST(Jit, ViewsHeldOutsideKeepTheirValues) {
  Variable w("w", Tensor::ones({2, 3}));
  auto step = jit(
      [&](const Tensor& x) {
        w.set(w.value() + x);
        return w.value().sum();
      },
      w);
  Tensor view = w.value().t();
  step(Tensor::ones({2, 3}));
  EXPECT_EQ(list(view), V(6, 1.0f));
  EXPECT_EQ(list(w), V(6, 2.0f));
}

TEST(Jit, AnUnregisteredParameterIsAnErrorThatNamesIt) {
  Mlp model(1);
  Variable forgotten("scale.gain", Tensor(1.0), true);
  auto f = jit([&](const Tensor& x) { return model(x) * forgotten.value(); }, model);
  std::string message = message_of([&] { f(random_floats({2, 8}, 1)); });
  EXPECT_NE(message.find("scale.gain"), std::string::npos) << message;
  EXPECT_NE(message.find("registered"), std::string::npos);
  Variable written("counter", Tensor(0.0));
  auto g = jit([&](const Tensor& x) {
    written.set(x);
    return x;
  });
  EXPECT_NE(message_of([&] { g(Tensor(1.0)); }).find("counter"), std::string::npos);
  EXPECT_EQ(written.value().item(), 0);
}

TEST(Jit, AFiredCheckLeavesTheStateAndTheFunctionUsable) {
  Variable table("table", random_floats({3, 2}, 1), true);
  Variable calls("calls", Tensor(0.0));
  auto step = jit(
      [&](const Tensor& indices) {
        Gradients g = grad(square(gather(table, indices, "token")).sum(), {table});
        NoGrad no_grad;
        table.set(table.value() - g.values[0] * 0.1);
        calls.set(calls.value() + 1.0);
        return g.loss;
      },
      table, calls);
  auto indices = [](std::vector<int32_t> v) { return Tensor::from(std::span<const int32_t>(v), {2}); };
  step(indices({0, 1}));
  V before = list(table);
  std::string message = message_of([&] { step(indices({0, 7})); });
  EXPECT_NE(message.find("token"), std::string::npos) << message;
  EXPECT_NE(message.find("7"), std::string::npos);
  EXPECT_EQ(list(table), before);
  EXPECT_EQ(calls.value().item(), 1);
  step(indices({2, 1}));
  EXPECT_EQ(calls.value().item(), 2);
  EXPECT_NE(list(table), before);

  Variable w("w", Tensor(1.0), true);
  auto diverge = jit(
      [&](const Tensor& x) {
        Gradients g = grad(log(w.value() * x), {w});
        NoGrad no_grad;
        w.set(w.value() - g.values[0]);
        return g.loss;
      },
      w);
  EXPECT_THROW(diverge(Tensor(-1.0)), RuntimeError);
  EXPECT_EQ(w.value().item(), 1);
  diverge(Tensor(1.0));
  EXPECT_EQ(w.value().item(), 0);
}

TEST(Jit, ResultsThatAreInputsStateOrEachOther) {
  Variable w("w", Tensor::full({2}, 3.0)), v("v", Tensor::full({2}, 4.0));
  auto f = jit(
      [&](const Tensor& x) {
        Tensor y = x * 2.0, old = w.value();
        w.set(y);
        return std::vector<Tensor>{x, y, y, old, w.value(), v.value(), Tensor(7.0)};
      },
      w, v);
  Tensor x = Tensor::full({2}, 5.0);
  for (int call = 0; call < 3; ++call) {
    float before = w.value().to_vector<float>()[0];
    auto r = f(x);
    ASSERT_EQ(r.size(), 7u);
    EXPECT_EQ(list(r[0]), V(2, 5.0f));
    EXPECT_EQ(list(r[1]), V(2, 10.0f));
    EXPECT_EQ(list(r[2]), V(2, 10.0f));
    EXPECT_EQ(list(r[3]), V(2, before));
    EXPECT_EQ(list(r[4]), V(2, 10.0f));
    EXPECT_EQ(list(r[5]), V(2, 4.0f));
    EXPECT_EQ(r[6].item(), 7);
    EXPECT_EQ(list(w), V(2, 10.0f));
    x = x + 0.0;
  }
}

TEST(Jit, StateMayBeSwappedSharedOrSetFromInputs) {
  Variable a("a", Tensor::full({2}, 1.0)), b("b", Tensor::full({2}, 2.0)), c("c", Tensor::full({2}, 3.0));
  auto swap = jit(
      [&](const Tensor& x) {
        Tensor old = a.value();
        a.set(b.value());
        b.set(old);
        c.set(x);
        return x.sum();
      },
      a, b, c);
  Tensor x = Tensor::full({2}, 9.0);
  swap(x);
  EXPECT_EQ(list(a), V(2, 2.0f));
  EXPECT_EQ(list(b), V(2, 1.0f));
  EXPECT_EQ(list(c), V(2, 9.0f));
  swap(x);
  EXPECT_EQ(list(a), V(2, 1.0f));
  EXPECT_EQ(list(b), V(2, 2.0f));
  auto both = jit(
      [&](const Tensor& y) {
        Tensor next = a.value() + y;
        a.set(next);
        b.set(next);
        return y;
      },
      a, b);
  both(x);
  EXPECT_EQ(list(a), V(2, 10.0f));
  EXPECT_EQ(list(b), V(2, 10.0f));
  both(x);
  EXPECT_EQ(list(a), V(2, 19.0f));
  EXPECT_EQ(list(b), V(2, 19.0f));
}

// Each body runs three times in the loop and compiled, on state of its own.
void expect_same_updates(const Shape& shape, const std::function<Tensor(Variable&, Variable&, const Tensor&)>& body) {
  Variable a("a", random_floats(shape, 1)), b("b", random_floats(shape, 2)), c("a", random_floats(shape, 1)),
      d("b", random_floats(shape, 2));
  auto compiled = jit([&](const Tensor& x) { return body(c, d, x); }, c, d);
  Tensor x = random_floats(shape, 3);
  for (int i = 0; i < 3; ++i) {
    Tensor in_loop = body(a, b, x), in_jit = compiled(x);
    ASSERT_TRUE(same_bits(in_loop, in_jit)) << "result of call " << i;
    ASSERT_TRUE(same_bits(a, c)) << "a after call " << i << ": " << compiled.program_text();
    ASSERT_TRUE(same_bits(b, d)) << "b after call " << i << ": " << compiled.program_text();
  }
}
TEST(Jit, StateThatReadsItselfWhileItIsWritten) {
  Shape square_shape{5, 5};
  expect_same_updates(square_shape, [](Variable& a, Variable&, const Tensor& x) {
    a.set(a.value().t());
    return x + 1.0;
  });
  expect_same_updates(square_shape, [](Variable& a, Variable&, const Tensor& x) {
    a.set(a.value() * 0.5 + a.value().t());
    return x;
  });
  expect_same_updates(square_shape, [](Variable& a, Variable&, const Tensor& x) {
    a.set(matmul(a, a) * 0.1);
    return x.t();
  });
  expect_same_updates(square_shape, [](Variable& a, Variable&, const Tensor& x) {
    a.set(softmax(a.value() + x));
    return a.value().reshape({25});
  });
  expect_same_updates(square_shape, [](Variable& a, Variable&, const Tensor& x) {
    a.set(concatenate({a.value().slice(0, 2, 5), a.value().slice(0, 0, 2)}, 0));
    return x.sum();
  });
  expect_same_updates({7}, [](Variable& a, Variable& b, const Tensor& x) {
    Tensor old = a.value();
    a.set(a.value() + b.value());
    b.set(old * b.value() + x);
    return old.sum() + a.value().sum();
  });
  expect_same_updates({6, 4}, [](Variable& a, Variable& b, const Tensor& x) {
    Tensor total = a.value().sum({0}, true);
    a.set(a.value() - total);
    b.set(a.value() / (square(b.value()) + 1.0));
    return (b.value() + x).max({1});
  });
  expect_same_updates({6, 4}, [](Variable& a, Variable&, const Tensor& x) {
    a.set(a.value().slice(0, 0, 1).broadcast_to({6, 4}));
    return x.slice(1, 1, 3);
  });
  expect_same_updates({6, 4}, [](Variable& a, Variable& b, const Tensor& x) {
    a.set(b.value().reshape({4, 6}).t());
    b.set(a.value() * 2.0);
    return x;
  });
  expect_same_updates({4}, [](Variable& a, Variable& b, const Tensor& x) {
    a.set(Tensor::ones({4}));
    b.set(x);
    return Tensor(3.0).broadcast_to({2, 2});
  });
}

TEST(Jit, UnusedStateIsLeftOutAndUntouched) {
  Mlp model(1);
  Variable other("other", Tensor::ones({1000}));
  Tensor held = other.value();
  auto f = jit([&](const Tensor& x) { return model(x); }, model, other);
  f(random_floats({2, 8}, 1));
  EXPECT_EQ(f.as_text().find("other"), std::string::npos) << f.as_text();
  EXPECT_EQ(other.value().data(), held.data());
}

TEST(Jit, FreezingAParameterIsASignature) {
  Variable a("a", Tensor(1.0), true), b("b", Tensor(1.0), true);
  auto step = jit(
      {.announce_recompiles = false},
      [&](const Tensor& x) {
        Gradients g = grad(a.value() * b.value() * x, {a, b});
        NoGrad no_grad;
        for (size_t i = 0; i < g.parameters.size(); ++i) g.parameters[i].set(g.parameters[i].value() - g.values[i]);
        return g.loss;
      },
      a, b);
  Tensor half(0.5);
  step(half);
  EXPECT_EQ(a.value().item(), 0.5);
  b.set_trainable(false);
  step(half);
  EXPECT_EQ(a.value().item(), 0.25);
  EXPECT_EQ(b.value().item(), 0.5);
  b.set_trainable(true);
  step(half);
  EXPECT_NE(b.value().item(), 0.5);
  EXPECT_EQ(step.compile_count(), 2);
}

TEST(Jit, GradientsStopAtValuesSetInsideTheStep) {
  // Two updates in one step: the second gradient must not reach through the first update. Loop and jit agree.
  auto body = [](Variable w) {
    return [w](const Tensor& x) mutable {
      Tensor total;
      for (int i = 0; i < 2; ++i) {
        Gradients g = grad(square(w.value() * x).sum(), {w});
        w.set(w.value() - g.values[0] * 0.1);  // recorded, but set() cuts it off
        total = i == 0 ? g.loss : total + g.loss;
      }
      return total;
    };
  };
  Variable a("w", random_floats({3}, 1), true), b("w", random_floats({3}, 1), true);
  auto loop = body(a);
  auto step = jit(body(b), b);
  Tensor x = random_floats({3}, 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(loop(x), step(x)));
  EXPECT_TRUE(same_bits(a, b));
}

TEST(Jit, WithoutDonationOldValuesStay) {
  Variable w("w", Tensor::ones({3}));
  auto step = jit(
      {.donate = false},
      [&](const Tensor& x) {
        w.set(w.value() + x);
        return x.sum();
      },
      w);
  const void* memory = w.value().data();
  step(Tensor::ones({3}));
  EXPECT_NE(w.value().data(), memory);
  EXPECT_EQ(list(w), V(3, 2.0f));
  EXPECT_EQ(step.memory_analysis().donated_bytes, 0);
}

}  // namespace
}  // namespace ws
