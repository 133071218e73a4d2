// ZeRO-1: each rank keeps its rows of the optimizer's state. The bits and the checkpoints are those of whole state.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ranks_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

std::vector<std::pair<const char*, MakeOptimizer>> optimizers() {
  return {
      {"momentum", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.9}); }},
      {"nesterov", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true}); }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{.lr = 0.01}); }},
      {"adamw", [] { return std::make_unique<AdamW>(AdamWOptions{.lr = 0.01}); }},
      {"rmsprop", [] { return std::make_unique<RMSProp>(RMSPropOptions{.lr = 0.01}); }},
      {"adagrad", [] { return std::make_unique<AdaGrad>(AdaGradOptions{.lr = 0.1}); }},
  };
}

TEST(ShardedOptimizer, HasTheBitsOfAWholeOne) {
  for (const auto& [name, make] : optimizers())
    for (bool compile : {true, false}) {
      TrainerOptions options = {.compile = compile, .clip_norm = 0.5, .weight_decay = 1e-3, .mesh = mesh()};
      const auto whole = make(), sharded = make();
      const int64_t accumulate = compile ? 1 : 2;
      const MlpRun want = train_mlp(*whole, options, accumulate);
      options.shard_optimizer = true;
      const MlpRun got = train_mlp(*sharded, options, accumulate);
      EXPECT_EQ(want.losses, got.losses) << name;
      EXPECT_EQ(want.state, got.state) << name;
    }
}

TEST(ShardedOptimizer, KeepsItsShareOfTheBytes) {
  if (distributed::size() == 1) GTEST_SKIP() << "one rank";
  MemoryAnalysis memory[2];
  int64_t moments[2] = {};
  for (bool shard : {false, true}) {
    models::Mlp model({16, 64, 64, 16}, Key(1));
    AdamW optimizer(model.parameters(), {.lr = 1e-2});
    TrainerOptions options = {.compile = true, .mesh = mesh(), .shard_optimizer = shard};
    Trainer trainer(model, MSE(), optimizer, options);
    trainer.train_step(random_floats({8, 16}, 1), random_floats({8, 16}, 2));
    memory[shard] = trainer.compiled_step().memory_analysis();
    for (const Variable& v : optimizer.rowwise_state()) moments[shard] += 4 * v.value().shape().num_elements();
  }
  EXPECT_EQ(moments[0], moments[1] * distributed::size());  // every first dim divides
  EXPECT_EQ(memory[0].argument_bytes - memory[1].argument_bytes, moments[0] - moments[1]);
}

std::string file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(ShardedOptimizer, CheckpointsAreThoseOfAWholeOne) {
  const double job = distributed::maximum(distributed::rank() == 0 ? getpid() : 0);  // jobs may run beside each other
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("wholestep_sharded_{:.0f}", job);
  const Tensor X = random_floats({8, 6}, 1), y = random_floats({8, 2}, 2);
  std::string files[2], after[2];
  for (bool shard : {false, true}) {
    auto model = make_mlp();
    AdamW optimizer(model->parameters(), {.lr = 1e-2});
    TrainerOptions options = {.compile = true, .mesh = mesh(), .shard_optimizer = shard};
    Trainer trainer(*model, MSE(), optimizer, options);
    for (int i = 0; i < 3; ++i) trainer.train_step(X, y);
    trainer.save(folder.string());
    distributed::barrier();
    files[shard] = file(folder / "optimizer.safetensors") + file(folder / "model.safetensors");
    for (int i = 0; i < 2; ++i) trainer.train_step(X, y);
    const double went_on = trainer.train_step(X, y).item();
    trainer.load(folder.string());
    for (int i = 0; i < 2; ++i) trainer.train_step(X, y);
    EXPECT_EQ(trainer.train_step(X, y).item(), went_on);
    distributed::make_whole(optimizer.rowwise_state());
    after[shard] = bytes(*model) + bytes(optimizer);
    distributed::barrier();
  }
  EXPECT_GT(files[0].size(), 1000u);
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(after[0], after[1]);
  if (distributed::rank() == 0) std::filesystem::remove_all(folder);
}

// Two steps on one optimizer, one that shards it and one that does not, take turns.
TEST(ShardedOptimizer, BecomesWholeForAStepThatNeedsItWhole) {
  std::string states[2];
  for (bool mixed : {false, true}) {
    auto model = make_mlp();
    AdamW optimizer(model->parameters(), {.lr = 1e-2});
    Trainer whole(*model, MSE(), optimizer, {.compile = true, .mesh = mesh()});
    Trainer sharded(*model, MSE(), optimizer, {.compile = true, .mesh = mesh(), .shard_optimizer = mixed});
    const Tensor X = random_floats({8, 6}, 1), y = random_floats({8, 2}, 2);
    for (int i = 0; i < 3; ++i) sharded.train_step(X, y), whole.train_step(X, y);
    distributed::make_whole(optimizer.rowwise_state());
    states[mixed] = bytes(*model) + bytes(optimizer);
  }
  EXPECT_EQ(states[0], states[1]);
}

TEST(ShardedOptimizer, MuonRefuses) {
  auto model = make_mlp();
  EXPECT_TRUE(
      mentions(error_of([&] { Trainer(*model, MSE(), Muon(), {.compile = true, .mesh = mesh(), .shard_optimizer = true}); }),
               {"Muon", "cannot be sharded"}));
}

}  // namespace
}  // namespace ws::testing
