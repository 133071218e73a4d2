// checkpoint() and memory budgets: the same bits with less memory, in the loop and compiled.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/flags.h"
#include "tensor/storage.h"
#include "tensor_util.h"
#include "wholestep/jit.h"
#include "wholestep/recompute.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

using V = std::vector<float>;

/// Blocks with a wide middle, a random mask and a running mean that the forward pass sets.
struct Net : Stateful {
  static constexpr int kBlocks = 4;
  std::vector<Variable> in, out;
  Variable key{"key", key_tensor(7)}, running{"running", Tensor::zeros({64})};
  bool use_checkpoint = false;

  explicit Net(bool checkpointed) : use_checkpoint(checkpointed) {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      in.emplace_back("in" + std::to_string(i), random_floats({16, 64}, 2 * i) * 0.3, true);
      out.emplace_back("out" + std::to_string(i), random_floats({64, 16}, 2 * i + 1) * 0.3, true);
    }
  }
  Tensor block(size_t i, const Tensor& x) {
    Tensor h = tanh(matmul(x, in[i]));
    Tensor mean = h.mean({0});
    running.set((running * 0.9 + mean.detach() * 0.1).detach());
    Tensor kept = lt(draw_bits(key, h.shape()), Tensor::full({}, 3e9, DType::u32));
    h = where(kept, exp(h - mean), Tensor::full({}, 0));
    return x + matmul(h * sigmoid(h), out[i]);
  }
  Tensor operator()(Tensor x) {
    for (size_t i = 0; i < kBlocks; ++i) {
      auto call = [&](const Tensor& t) { return block(i, t); };
      x = use_checkpoint ? checkpoint(call, x) : call(x);
    }
    return x;
  }
  std::vector<Variable> parameters() const {
    std::vector<Variable> all = in;
    all.insert(all.end(), out.begin(), out.end());
    return all;
  }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : parameters()) into.push_back(v);
    into.push_back(key);
    into.push_back(running);
  }
  std::string bytes() const {
    std::vector<Variable> state;
    collect_state(state);
    std::string all;
    for (const Variable& v : state) {
      Tensor dense = v.value().detach().contiguous();
      all.append(static_cast<const char*>(dense.data()), static_cast<size_t>(dense.size()) * size_of(dense.dtype()));
    }
    return all;
  }
};

auto training_step(Net& net) {
  return [&net](const Tensor& x, const Tensor& y) {
    Tensor loss = square(net(x) - y).mean();
    Gradients g = grad(loss, net.parameters());
    NoGrad no_grad;
    for (size_t i = 0; i < g.parameters.size(); ++i) g.parameters[i].set(g.parameters[i] - g.values[i] * 0.05);
    return loss;
  };
}

struct Result {
  V losses;
  std::string state;
  bool operator==(const Result&) const = default;
};

template <class Step>
Result train(Net& net, Step&& step) {
  Result r;
  for (uint32_t i = 0; i < 4; ++i)
    r.losses.push_back(static_cast<float>(step(random_floats({32, 16}, 50 + i), random_floats({32, 16}, 90 + i)).item()));
  r.state = net.bytes();
  return r;
}

TEST(Checkpoint, LoopAndCompiledHaveTheSameBitsWithAndWithout) {
  std::vector<Result> results;
  for (bool checkpointed : {false, true})
    for (bool compiled : {false, true}) {
      Net net(checkpointed);
      if (compiled)
        results.push_back(train(net, jit(training_step(net), net)));
      else
        results.push_back(train(net, training_step(net)));
    }
  for (const Result& r : results) EXPECT_EQ(r, results[0]);
}

TEST(Checkpoint, EachRepeatedKernelHoldsAgainstTheReference) {
  FlagScope verify("verify", "3"), poison("poison", "1");
  Net net(true);
  train(net, jit(training_step(net), net));
}

TEST(Checkpoint, SavesTemporariesOfTheCompiledStep) {
  std::vector<MemoryAnalysis> memory;
  for (bool checkpointed : {false, true}) {
    Net net(checkpointed);
    auto step = jit(training_step(net), net);
    Tensor batch[] = {random_floats({512, 16}, 1), random_floats({512, 16}, 2)};
    step.prepare(batch);
    memory.push_back(step.memory_analysis());
    EXPECT_EQ(step.cost_analysis().recomputed_flops > 0, checkpointed);
  }
  EXPECT_EQ(memory[0].num_recomputed, 0);
  EXPECT_GT(memory[1].num_recomputed, 4);
  EXPECT_EQ(memory[1].unlimited_peak_bytes, memory[0].peak_bytes - memory[0].temporary_bytes + memory[0].arena_bytes +
                                                (memory[1].temporary_bytes - memory[1].arena_bytes));
  EXPECT_LT(static_cast<double>(memory[1].arena_bytes), 0.6 * static_cast<double>(memory[0].arena_bytes));
}

TEST(Checkpoint, SavesMemoryOfTheLoop) {
  std::vector<int64_t> peaks;
  for (bool checkpointed : {false, true}) {
    Net net(checkpointed);
    Tensor x = random_floats({4096, 16}, 1), y = random_floats({4096, 16}, 2);
    training_step(net)(x, y);
    reset_allocator_peak();
    training_step(net)(x, y);
    peaks.push_back(allocator_stats().peak_live_bytes);
  }
  EXPECT_LT(static_cast<double>(peaks[1]), 0.6 * static_cast<double>(peaks[0]));
}

TEST(Checkpoint, OfAViewOfWhatItGotAndOfNothing) {
  Variable w("w", random_floats({4, 4}, 1), true);
  auto value = [&](bool checkpointed) {
    auto block = [&](const Tensor& x) { return matmul(x, w).reshape({2, 8}); };
    auto same = [](const Tensor& x) { return x; };
    Tensor x = random_floats({4, 4}, 2);
    Tensor y = checkpointed ? checkpoint(same, checkpoint(block, x)) : block(x);
    return grad((y * y).sum(), {w}).values[0].to_vector<float>();
  };
  EXPECT_EQ(value(true), value(false));
  EXPECT_NE(message_of([&] { checkpoint([](const Tensor&) { return Tensor(); }, w.value()); }).find("undefined"),
            std::string::npos);
}

TEST(Checkpoint, InsideAnotherBelongsToTheOuterOne) {
  auto run = [](bool compiled) {
    Net net(true);
    auto step = [&net](const Tensor& x, const Tensor& y) {
      Tensor out = checkpoint([&](const Tensor& t) { return net(t); }, x);
      Tensor loss = square(out - y).mean();
      Gradients g = grad(loss, net.parameters());
      NoGrad no_grad;
      for (size_t i = 0; i < g.parameters.size(); ++i) g.parameters[i].set(g.parameters[i] - g.values[i] * 0.05);
      return loss;
    };
    if (compiled) return train(net, jit(step, net));
    return train(net, step);
  };
  Net plain(false);
  const Result right = train(plain, training_step(plain));
  EXPECT_EQ(run(false), right);
  EXPECT_EQ(run(true), right);
}

TEST(MemoryBudget, KeepsToItWithTheSameBits) {
  Net first(false);
  auto unlimited = jit(training_step(first), first);
  const Result right = train(first, unlimited);
  const MemoryAnalysis most = unlimited.memory_analysis();
  EXPECT_FALSE(most.limited);
  int64_t last = most.peak_bytes;
  for (double share : {1.0, 0.9, 0.8}) {
    Net net(false);
    const auto budget = static_cast<int64_t>(share * static_cast<double>(most.peak_bytes));
    auto step = jit({.memory_budget_bytes = budget}, training_step(net), net);
    EXPECT_EQ(train(net, step), right) << share;
    const MemoryAnalysis m = step.memory_analysis();
    EXPECT_LE(m.peak_bytes, budget);
    EXPECT_LE(m.peak_bytes, last);
    EXPECT_EQ(m.limited, share < 1);
    EXPECT_EQ(m.num_recomputed > 0, share < 1);
    EXPECT_EQ(m.unlimited_peak_bytes, most.peak_bytes);
    EXPECT_NE(m.text().find(share < 1 ? "memory was limiting" : "memory is not limiting"), std::string::npos) << m.text();
    last = m.peak_bytes;
  }
}

TEST(MemoryBudget, ThatCannotBeMetNamesTheLeastPossible) {
  Net net(false);
  Tensor batch[] = {random_floats({512, 16}, 1), random_floats({512, 16}, 2)};
  auto step = jit({.memory_budget_bytes = 100000}, training_step(net), net);
  const std::string message = message_of([&] { step.prepare(batch); });
  const size_t at = message.find("least possible is ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t least = std::stoll(message.substr(at + 18));
  auto possible = jit({.memory_budget_bytes = least}, training_step(net), net);
  possible.prepare(batch);
  EXPECT_LE(possible.memory_analysis().peak_bytes, least);
}

TEST(Plan, OtherBatchesWithoutRunningThem) {
  Net net(false);
  auto step = jit(training_step(net), net);
  Tensor small[] = {random_floats({8, 16}, 1), random_floats({8, 16}, 2)};
  Tensor large[] = {random_floats({512, 16}, 1), random_floats({512, 16}, 2)};
  const MemoryAnalysis planned = step.plan(small, 512);
  step.prepare(large);
  EXPECT_EQ(planned.arena_bytes, step.memory_analysis().arena_bytes);
  const int64_t batch = step.largest_batch(small, planned.peak_bytes);
  EXPECT_GE(batch, 512);
  EXPECT_LE(step.plan(small, batch).peak_bytes, planned.peak_bytes);
  EXPECT_GT(step.plan(small, batch + 1).peak_bytes, planned.peak_bytes);
  EXPECT_EQ(step.largest_batch(small, 10), 0);
}

TEST(Plan, LargestBatchUnderABudgetCountsWhatRunsTwice) {
  Net net(false);
  auto step = jit(training_step(net), net);
  Tensor batch[] = {random_floats({512, 16}, 1), random_floats({512, 16}, 2)};
  const int64_t peak = step.plan(batch).peak_bytes;
  auto limited = jit({.memory_budget_bytes = peak}, training_step(net), net);
  const int64_t more = limited.largest_batch(batch);
  EXPECT_GT(more, step.largest_batch(batch, peak));
  EXPECT_LE(limited.plan(batch, more).peak_bytes, peak);
  EXPECT_THROW(limited.plan(batch, more + 1), MemoryError);
}

TEST(Plan, WhatDoesNotFitTheMachineIsRefusedBeforeItStarts) {
  FlagScope limit("memory_limit", "1MiB");
  Net net(false);
  const std::string before = net.bytes();
  auto step = jit({.name = "my_step"}, training_step(net), net);
  Tensor x = random_floats({4096, 16}, 1), y = random_floats({4096, 16}, 2);
  int64_t fitting = 0;
  try {
    step(x, y);
    FAIL() << "nothing was thrown";
  } catch (const MemoryError& e) {
    fitting = e.fitting_batch;
    EXPECT_GT(e.needed_bytes, e.available_bytes);
    EXPECT_NE(std::string(e.what()).find("my_step"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("batch that fits is " + std::to_string(fitting)), std::string::npos) << e.what();
  }
  EXPECT_EQ(net.bytes(), before);
  ASSERT_GT(fitting, 0);
  ASSERT_LT(fitting, 4096);
  step(random_floats({fitting, 16}, 1), random_floats({fitting, 16}, 2));
}

}  // namespace
}  // namespace ws
