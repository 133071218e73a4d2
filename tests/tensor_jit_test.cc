// jit: the compiled step against the loop, state and donation, signatures, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "support/flags.h"
#include "support/log.h"
#include "tensor/program_cache.h"
#include "tensor/storage.h"
#include "tensor/tensor_impl.h"
#include "tensor/variable.h"
#include "tensor_util.h"
#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

std::vector<float> list(const Tensor& t) { return t.to_vector<float>(); }
using V = std::vector<float>;

bool same_bits(const Tensor& a, const Tensor& b) {
  V x = list(a), y = list(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

struct Mlp : Stateful {
  Variable w1, b1, w2, b2;
  explicit Mlp(uint32_t seed, int64_t in = 8, int64_t hidden = 16, int64_t out = 1)
      : w1("w1", random_floats({in, hidden}, seed), true), b1("b1", Tensor::zeros({hidden}), true),
        w2("w2", random_floats({hidden, out}, seed + 1), true), b2("b2", Tensor::zeros({out}), true) {}
  Tensor operator()(const Tensor& x) const {
    PathScope scope("mlp");
    return matmul(relu(matmul(x, w1) + b1), w2) + b2;
  }
  std::vector<Variable> parameters() const { return {w1, b1, w2, b2}; }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : parameters()) into.push_back(v);
  }
};

// SGD with momentum, written by hand.
struct Momentum : Stateful {
  std::vector<Variable> velocity;
  Scalar rate{"rate", 0.05};
  explicit Momentum(const std::vector<Variable>& parameters) {
    for (const Variable& p : parameters) velocity.emplace_back("velocity/" + p.name(), Tensor::zeros(p.value().shape()));
  }
  void update(const Gradients& g) {
    NoGrad no_grad;
    for (size_t i = 0; i < g.parameters.size(); ++i) {
      Variable p = g.parameters[i];
      velocity[i].set(velocity[i].value() * 0.9 + g.values[i]);
      p.set(p.value() - Tensor(rate) * velocity[i].value());
    }
  }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : velocity) into.push_back(v);
    into.push_back(rate.variable());
  }
};

auto training_step(Mlp& model, Momentum& optimizer) {
  return [&](const Tensor& x, const Tensor& y) {
    Gradients g = grad(square(model(x) - y).mean(), model.parameters());
    optimizer.update(g);
    return g.loss;
  };
}

TEST(Jit, LoopAndCompiledHaveTheSameBits) {
  for (int64_t hidden : {16, 33}) {
    Mlp loop_model(7, 8, hidden), jit_model(7, 8, hidden);
    Momentum loop_optimizer(loop_model.parameters()), jit_optimizer(jit_model.parameters());
    auto loop = training_step(loop_model, loop_optimizer);
    auto step = jit(training_step(jit_model, jit_optimizer), jit_model, jit_optimizer);
    for (int i = 0; i < 50; ++i) {
      Tensor x = random_floats({5, 8}, static_cast<uint32_t>(i)), y = random_floats({5, 1}, static_cast<uint32_t>(100 + i));
      Tensor a = loop(x, y), b = step(x, y);
      ASSERT_TRUE(same_bits(a, b)) << "loss of step " << i;
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(same_bits(loop_model.parameters()[i], jit_model.parameters()[i])) << i;
      EXPECT_TRUE(same_bits(loop_optimizer.velocity[i], jit_optimizer.velocity[i])) << i;
    }
    EXPECT_EQ(step.compile_count(), 1);
  }
}

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

TEST(Jit, ACallAllocatesNothing) {
  Mlp model(1);
  Momentum optimizer(model.parameters());
  Compiled step(
      [f = training_step(model, optimizer)](std::span<const Tensor> in) { return std::vector<Tensor>{f(in[0], in[1])}; },
      [&] {
        std::vector<Variable> state;
        model.collect_state(state);
        optimizer.collect_state(state);
        return state;
      }(),
      {});
  Tensor batch[] = {random_floats({4, 8}, 1), random_floats({4, 1}, 2)};
  std::vector<Tensor> outputs;
  step.run(batch, outputs);
  const void* loss = outputs[0].data();
  AllocatorStats before = allocator_stats();
  for (int i = 0; i < 10; ++i) step.run(batch, outputs);
  EXPECT_EQ(outputs[0].data(), loss);
  EXPECT_EQ(allocator_stats().live_bytes, before.live_bytes);
  EXPECT_EQ(allocator_stats().system_requests, before.system_requests);
  Tensor kept = outputs[0];
  double value = kept.item();
  step.run(batch, outputs);
  EXPECT_EQ(kept.item(), value);  // somebody holds it, so the next loss went elsewhere
  EXPECT_NE(outputs[0].data(), kept.data());
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

TEST(Jit, CapturedTensorsAreInputsAndNumbersConstants) {
  Tensor captured = random_floats({4}, 3);
  Variable buffer("buffer", Tensor::ones({4}));  // not registered, not trainable: read anew at each call
  double number = 2;
  auto f = jit([&](const Tensor& x) { return x * captured + buffer.value() * number; });
  Tensor x = random_floats({4}, 4);
  EXPECT_TRUE(same_bits(f(x), x * captured + buffer.value() * 2.0));
  buffer.set(Tensor::full({4}, 5.0));
  number = 100;  // traced already
  EXPECT_TRUE(same_bits(f(x), x * captured + Tensor::full({4}, 5.0) * 2.0));
  EXPECT_EQ(f.compile_count(), 1);
}

TEST(Jit, ScalarsDoNotRecompile) {
  Scalar rate("rate", 1);
  auto f = jit([&](const Tensor& x) { return x * Tensor(rate); }, rate);
  Tensor x = Tensor::ones({3});
  for (double r : {1.0, 0.5, 0.25}) {
    rate.set(r);
    EXPECT_EQ(list(f(x)), V(3, static_cast<float>(r)));
  }
  EXPECT_EQ(f.compile_count(), 1);
}

TEST(Jit, ANewShapeCompilesOnceMoreAndSaysSo) {
  std::vector<std::string> notes;
  set_note_sink([&](std::string_view text) { notes.emplace_back(text); });
  auto f = jit({.name = "evaluate"}, [](const Tensor& x, const Tensor& y) { return (x + y).sum(); });
  Tensor y = Tensor::ones({3});
  f(Tensor::ones({4, 3}), y);
  EXPECT_TRUE(notes.empty());
  f(Tensor::ones({2, 3}), y);
  f(Tensor::ones({4, 3}), y);
  f(Tensor::ones({2, 3}), y);
  set_note_sink({});
  EXPECT_EQ(f.compile_count(), 2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("evaluate"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("input 0"), std::string::npos);
  EXPECT_NE(notes[0].find("f32[4, 3]"), std::string::npos);
  EXPECT_NE(notes[0].find("f32[2, 3]"), std::string::npos);
  EXPECT_EQ(notes[0].find("input 1"), std::string::npos);
}

TEST(Jit, TheSameStructureCompilesOnceInAProcess) {
  auto make_and_run = [](uint32_t seed) {
    Mlp model(seed, 6, 11);
    Momentum optimizer(model.parameters());
    auto step = jit(training_step(model, optimizer), model, optimizer);
    return step(random_floats({3, 6}, 1), random_floats({3, 1}, 2)).item();
  };
  double first = make_and_run(1);
  int64_t compiled = num_programs_compiled();
  EXPECT_EQ(make_and_run(1), first);
  EXPECT_NE(make_and_run(2), first);
  EXPECT_EQ(num_programs_compiled(), compiled);
}

TEST(Jit, ReadingWhileTracingNamesPathAndOp) {
  Mlp model(1);
  V before = list(model.w1);
  auto f = jit(
      [&](const Tensor& x) {
        PathScope scope("head");
        Tensor y = exp(model(x));
        if (y.sum().item() > 0) y = y * 2.0;
        return y;
      },
      model);
  std::string message = message_of([&] { f(random_floats({2, 8}, 1)); });
  EXPECT_NE(message.find("in head"), std::string::npos) << message;
  EXPECT_NE(message.find("item()"), std::string::npos);
  EXPECT_NE(message.find("reduce_sum"), std::string::npos);
  // The state is whole again, and so is the thread.
  EXPECT_EQ(list(model.w1), before);
  EXPECT_EQ(model(random_floats({2, 8}, 1)).shape(), (Shape{2, 1}));
  for (auto read : {0, 1}) {
    auto g = jit([&](const Tensor& x) {
      if (read == 0)
        (void)x.to_vector<float>();
      else
        (void)x.data();
      return x;
    });
    EXPECT_NE(message_of([&] { g(Tensor(1.0)); }).find("arg0"), std::string::npos);
  }
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

TEST(Jit, TracedTensorsCannotLeak) {
  Tensor leaked;
  auto f = jit([&](const Tensor& x) {
    leaked = x * 2.0;
    return x;
  });
  f(Tensor(1.0));
  EXPECT_NE(message_of([&] { leaked + 1.0; }).find("outside"), std::string::npos);
  EXPECT_NE(message_of([&] { leaked.item(); }).find("outside"), std::string::npos);
  EXPECT_NE(message_of([&] { Variable v("v", leaked); }).find("jit"), std::string::npos);
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

TEST(Jit, ACallersNoGradDoesNotEnterTheProgram) {
  Variable w("w", Tensor(2.0), true);
  auto step = jit([&](const Tensor& x) { return grad(w.value() * x, {w}).values[0]; }, w);
  NoGrad no_grad;
  EXPECT_EQ(step(Tensor(3.0)).item(), 3);
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

TEST(Jit, StridedArgumentsGiveTheLossesOfTheirCopies) {  // case C51
  auto f = jit([](const Tensor& x) { return tanh(x).sum({0}); });
  Tensor m = random_floats({4, 6}, 1);
  EXPECT_TRUE(same_bits(f(m.t()), f(m.t().contiguous())));
  EXPECT_TRUE(same_bits(f(m.slice(1, 0, 4)), f(m.slice(1, 0, 4).contiguous())));
  EXPECT_TRUE(same_bits(f(m.slice(0, 1, 2).broadcast_to({4, 6})), f(m.slice(0, 1, 2).broadcast_to({4, 6}).contiguous())));
}

TEST(Jit, NestedCallsBecomePartOfTheOuterTrace) {
  Variable w("w", Tensor::full({2}, 3.0), true);
  auto inner = jit([&](const Tensor& x) { return x * w.value(); }, w);
  auto outer = jit([&](const Tensor& x) { return inner(x) + 1.0; }, w);
  EXPECT_EQ(list(outer(Tensor::full({2}, 2.0))), V(2, 7.0f));
  EXPECT_EQ(inner.compile_count(), 0);
  auto careless = jit([&](const Tensor& x) { return inner(x); });
  EXPECT_NE(message_of([&] { careless(Tensor::ones({2})); }).find("'w'"), std::string::npos);
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

TEST(Jit, WatchedTensorsAndNoGradInsideATrace) {
  auto f = [](const Tensor& x) {
    Tensor w = watch(x);
    Tensor y = w * 3.0;
    Tensor scale;
    {
      NoGrad no_grad;
      scale = y.sum();
    }
    return grad_of((square(y) * scale).sum(), {w})[0];
  };
  auto compiled = jit(f);
  Tensor x = random_floats({5}, 1);
  EXPECT_TRUE(same_bits(f(x), compiled(x)));
  auto twice = jit([](const Tensor& t) {
    Tensor w = watch(t);
    Tensor shared = exp(w);
    grad_of(shared.sum(), {w});
    return grad_of(shared.mean(), {w})[0];
  });
  EXPECT_NE(message_of([&] { twice(x); }).find("another grad()"), std::string::npos);
}

TEST(Jit, CheckTraceNamesWhatChanged) {
  double number = 0.5;
  auto f = jit([&](const Tensor& x) { return x * number; });
  FlagScope flag("check_trace", "1");
  f(Tensor::ones({2}));
  f(Tensor::ones({2}));
  number = 0.75;
  std::string message = message_of([&] { f(Tensor::ones({2})); });
  EXPECT_NE(message.find("0.5"), std::string::npos) << message;
  EXPECT_NE(message.find("0.75"), std::string::npos);
  EXPECT_NE(message.find("Scalar"), std::string::npos);

  Tensor mask = Tensor::ones({2});
  auto g = jit([&](const Tensor& x) { return x * mask + Tensor::from(std::span<const float>(V{1, 2}), {2}); });
  g(Tensor::ones({2}));
  g(Tensor::ones({2}));
  mask = Tensor::zeros({2});
  EXPECT_NE(message_of([&] { g(Tensor::ones({2})); }).find("captured"), std::string::npos);
}

TEST(Jit, Reports) {
  Mlp model(1);
  Momentum optimizer(model.parameters());
  auto step = jit(training_step(model, optimizer), model, optimizer);
  EXPECT_NE(message_of([&] { step.cost_analysis(); }).find("nothing is compiled"), std::string::npos);
  Tensor batch[] = {random_floats({4, 8}, 1), random_floats({4, 1}, 2)};
  V before = list(model.w1);
  step.prepare(batch);
  EXPECT_EQ(list(model.w1), before);
  EXPECT_EQ(step.compile_count(), 1);
  CostAnalysis cost = step.cost_analysis();
  EXPECT_GT(cost.flops, 2.0 * 4 * 8 * 16 * 2);
  EXPECT_GT(cost.num_kernels, 0);
  MemoryAnalysis memory = step.memory_analysis();
  EXPECT_LE(memory.arena_bytes, memory.temporary_bytes);
  int64_t parameters = (8 * 16 + 16 + 16 + 1) * 4;
  EXPECT_EQ(memory.donated_bytes, 2 * parameters);
  EXPECT_EQ(memory.argument_bytes, 2 * parameters + (4 * 8 + 4) * 4 + 4);
  EXPECT_NE(step.dtype_report().text().find("matmul(f32, f32) -> f32: "), std::string::npos) << step.dtype_report().text();
  EXPECT_NE(step.as_text().find("matmul"), std::string::npos);
  EXPECT_FALSE(step.program_text().empty());
  auto profile = step.profile(batch, Roofs());
  EXPECT_EQ(static_cast<int>(profile.kernels.size()), cost.num_kernels);
  EXPECT_NE(list(model.w1), before);  // a profile is a step
  EXPECT_GT(step.compile_seconds(), 0);
  EXPECT_EQ(step.compile_count(), 1);
}

TEST(Jit, TwoModelsTrainInTwoThreads) {  // case C53 (d), also with one structure: both want one program
  auto train = [](uint32_t seed, int64_t hidden) {
    Mlp model(seed, 8, hidden);
    Momentum optimizer(model.parameters());
    auto step = jit(training_step(model, optimizer), model, optimizer);
    V losses;
    for (uint32_t i = 0; i < 200; ++i)
      losses.push_back(static_cast<float>(step(random_floats({5, 8}, i), random_floats({5, 1}, i + 1)).item()));
    return losses;
  };
  for (int64_t other : {19, 17}) {
    V alone_a = train(1, 17), alone_b = train(2, other), a, b;
    std::thread first([&] { a = train(1, 17); }), second([&] { b = train(2, other); });
    first.join();
    second.join();
    EXPECT_EQ(a, alone_a);
    EXPECT_EQ(b, alone_b);
  }
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
