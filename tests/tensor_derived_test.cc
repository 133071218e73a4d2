// Derived values: the bf16 copies of parameters that a compiled step keeps and refreshes itself.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "support/error.h"
#include "support/flags.h"
#include "tensor/eager.h"
#include "tensor_util.h"
#include "wholestep/jit.h"
#include "wholestep/precision.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

std::string bytes(const Tensor& t) {
  std::vector<float> values = t.detach().contiguous().to_vector<float>();
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// A table that is also the head, as in language models, and a layer between.
struct Tied : Stateful {
  Variable table, middle;
  explicit Tied(uint32_t seed = 1)
      : table("table", random_floats({33, 32}, seed), true), middle("middle", random_floats({32, 32}, seed + 1), true) {}
  Tensor operator()(const Tensor& x) const {
    return matmul(relu(matmul(matmul(x, table), middle)), table.value().transpose({1, 0}));
  }
  std::vector<Variable> parameters() const { return {table, middle}; }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : parameters()) into.push_back(v);
  }
  std::string state() const { return bytes(table.value()) + bytes(middle.value()); }
};

/// One step of gradient descent on what is trainable.
Tensor descend(const Tied& model, const Tensor& x, const Tensor& y) {
  std::vector<Variable> trained;
  for (const Variable& v : model.parameters())
    if (v.trainable()) trained.push_back(v);
  Gradients g = grad(square(model(x) - y).mean(), trained);
  NoGrad no_grad;
  for (size_t i = 0; i < trained.size(); ++i) trained[i].set(trained[i].value() - g.values[i] * 0.0005);
  return g.loss;
}
auto training_step(const Tied& model) {
  return [&model](const Tensor& x, const Tensor& y) { return descend(model, x, y); };
}
auto evaluation(const Tied& model) {
  return [&model](const Tensor& x) { return model(x); };
}

Tensor batch_x(uint32_t step, int64_t rows = 5) { return random_floats({rows, 33}, 100 + step); }
Tensor batch_y(uint32_t step, int64_t rows = 5) { return random_floats({rows, 33}, 200 + step); }

/// Tests under bf16, with each kept copy compared with its parameter before every call.
class Derived : public ::testing::Test {
 protected:
  ComputeDType precision_{DType::bf16};
  FlagScope check_{"verify", "1"};
};

TEST_F(Derived, CopiesAreInputsThatTheUpdateWrites) {
  FlagScope unchecked("verify", "0");
  Tied model, loop;
  auto step = jit(training_step(model), model);
  for (uint32_t i = 0; i < 6; ++i) {
    Tensor x = batch_x(i), y = batch_y(i);
    const int64_t made = eager_stats().calls;
    Tensor loss = step(x, y);
    // The first call makes the copies, the others make nothing.
    EXPECT_EQ(eager_stats().calls - made, i == 0 ? 2 : 0) << i;
    EXPECT_EQ(bytes(loss), bytes(descend(loop, x, y)));
    EXPECT_EQ(model.state(), loop.state());
  }
  // One copy of the table serves both of its products, one side transposed.
  const MemoryAnalysis memory = step.memory_analysis();
  EXPECT_EQ(memory.derived_bytes, (33 * 32 + 32 * 32) * 2);
  EXPECT_EQ(memory.donated_bytes, (33 * 32 + 32 * 32) * 4);
  EXPECT_EQ(memory.argument_bytes, (33 * 32 + 32 * 32 + 2 * 5 * 33) * 4);
  EXPECT_EQ(memory.peak_bytes,
            memory.argument_bytes + memory.derived_bytes + memory.output_bytes - memory.donated_bytes + memory.arena_bytes);
  EXPECT_NE(memory.text().find("derived"), std::string::npos);
  int64_t listed = 0;
  for (const TensorMemory& t : memory.tensors) listed += t.role == "derived" ? t.bytes : 0;
  EXPECT_EQ(listed, memory.derived_bytes);
  EXPECT_NE(step.as_text().find("\"derived/bf16/table\": bf16[33, 32]"), std::string::npos) << step.as_text();
}

TEST_F(Derived, SwitchedOffHasTheSameBits) {
  auto run = [](const char* disabled) {
    FlagScope off("disable", disabled);
    Tied model;
    auto step = jit(training_step(model), model);
    std::string all;
    for (uint32_t i = 0; i < 4; ++i) all += bytes(step(batch_x(i), batch_y(i)));
    EXPECT_EQ(step.memory_analysis().derived_bytes > 0, std::string(disabled).empty());
    return all + model.state();
  };
  EXPECT_EQ(run(""), run("derived"));
}

// Assignment, the loop's update, another compiled function's, and one batch shape's program after the other's.
TEST_F(Derived, OutsideWritesAreSeen) {
  Tied model, loop;
  auto step = jit(training_step(model), model), other = jit(training_step(model), model);
  auto evaluate = jit(evaluation(model), model);
  for (uint32_t i = 0; i < 12; ++i) {
    const int64_t rows = i % 5 == 4 ? 3 : 5;
    Tensor x = batch_x(i, rows), y = batch_y(i, rows);
    switch (i % 4) {
      case 0: step(x, y); break;
      case 1: other(x, y); break;
      case 2: descend(model, x, y); break;
      default:
        model.middle.set(random_floats({32, 32}, i));
        loop.middle.set(random_floats({32, 32}, i));
        step(x, y);
    }
    descend(loop, x, y);
    EXPECT_EQ(model.state(), loop.state()) << i;
    EXPECT_EQ(bytes(evaluate(x)), bytes(loop(x))) << i;
  }
}

// The step leaves a frozen parameter alone; its copy is made once.
TEST_F(Derived, FrozenParametersKeepTheirs) {
  FlagScope unchecked("verify", "0");
  Tied model, loop;
  auto step = jit({.announce_recompiles = false}, training_step(model), model);
  for (uint32_t i = 0; i < 9; ++i) {
    if (i % 3 == 0)
      for (Tied* m : {&model, &loop}) m->table.set_trainable(i != 3), m->middle.set_trainable(i == 3);
    Tensor x = batch_x(i), y = batch_y(i);
    const int64_t made = eager_stats().calls;
    step(x, y);
    EXPECT_EQ(eager_stats().calls - made, i == 0 ? 2 : 0) << i;
    descend(loop, x, y);
    EXPECT_EQ(model.state(), loop.state()) << i;
  }
}

// A Variable set to the other's value, or read by a result after the update, is written into memory of its own: no copy follows it.
TEST_F(Derived, OnlyWhatIsWrittenInPlaceIsFollowed) {
  auto swap_step = [](Tied& model) {
    return [&model](const Tensor& x, const Tensor& y) {
      const Tensor before = model.middle.value();
      descend(model, x, y);
      return std::make_tuple(before, model(x));
    };
  };
  Tied model, loop;
  auto step = jit(swap_step(model), model);
  auto by_hand = swap_step(loop);
  for (uint32_t i = 0; i < 4; ++i) {
    auto [before, after] = step(batch_x(i), batch_y(i));
    auto [loop_before, loop_after] = by_hand(batch_x(i), batch_y(i));
    EXPECT_EQ(bytes(before), bytes(loop_before));
    EXPECT_EQ(bytes(after), bytes(loop_after));
    EXPECT_EQ(model.state(), loop.state());
  }
  EXPECT_EQ(step.memory_analysis().derived_bytes, 33 * 32 * 2);
}

TEST_F(Derived, TwoModelsOfOneProgramInTwoThreads) {
  std::string right[2], got[2];
  for (uint32_t seed : {0u, 1u}) {
    Tied loop(seed);
    for (uint32_t i = 0; i < 20; ++i) descend(loop, batch_x(i), batch_y(i));
    right[seed] = loop.state();
  }
  auto train = [&](uint32_t seed) {
    ComputeDType precision(DType::bf16);
    Tied model(seed);
    auto step = jit(training_step(model), model);
    for (uint32_t i = 0; i < 20; ++i) step(batch_x(i), batch_y(i));
    got[seed] = model.state();
  };
  std::thread second(train, 1);
  train(0);
  second.join();
  for (int seed : {0, 1}) EXPECT_EQ(got[seed], right[seed]) << seed;
}

// Memory that is asked for comes first.
TEST_F(Derived, ABudgetTooSmallForCopiesHasNone) {
  Tied model, loop;
  auto free = jit(training_step(model), model);
  free(batch_x(0), batch_y(0));
  descend(loop, batch_x(0), batch_y(0));
  const MemoryAnalysis most = free.memory_analysis();
  for (int64_t less : {int64_t{0}, most.derived_bytes / 2}) {
    auto step = jit({.memory_budget_bytes = most.peak_bytes - less}, training_step(model), model);
    step(batch_x(1), batch_y(1));
    descend(loop, batch_x(1), batch_y(1));
    EXPECT_EQ(model.state(), loop.state());
    EXPECT_EQ(step.memory_analysis().derived_bytes > 0, less == 0);
    EXPECT_LE(step.memory_analysis().peak_bytes, most.peak_bytes - less);
  }
}

TEST_F(Derived, AStaleCopyIsCaughtUnderVerify) {
  Tied model;
  auto step = jit(training_step(model), model);
  step(batch_x(0), batch_y(0));
  const float other = 3;
  std::memcpy(const_cast<void*>(model.middle.value().data()), &other, sizeof other);  // a write that nobody is told of
  EXPECT_THROW(step(batch_x(1), batch_y(1)), InternalError);
}

}  // namespace
}  // namespace ws
