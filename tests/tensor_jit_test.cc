// jit: the compiled step against the loop, arguments and captures, signatures, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "support/flags.h"
#include "support/log.h"
#include "tensor/program_cache.h"
#include "tensor/storage.h"
#include "tensor_jit_util.h"

namespace ws {
namespace {

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

TEST(Jit, ACallersNoGradDoesNotEnterTheProgram) {
  Variable w("w", Tensor(2.0), true);
  auto step = jit([&](const Tensor& x) { return grad(w.value() * x, {w}).values[0]; }, w);
  NoGrad no_grad;
  EXPECT_EQ(step(Tensor(3.0)).item(), 3);
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

}  // namespace
}  // namespace ws
