// Gradients that travel while the backward pass goes on: the bits of those that do not, whatever the size of the buckets.
#include <cmath>

#include "ranks_util.h"
#include "support/communicator.h"

namespace ws::testing {
namespace {

MlpRun train(TrainerOptions options, int64_t accumulate = 1) {
  AdamW optimizer({.lr = 1e-2});
  return train_mlp(optimizer, options, accumulate);
}

TEST(Overlap, HasTheBitsOfNoOverlap) {
  if (!communicator().overlaps()) GTEST_SKIP() << "one rank";
  for (int variant = 0; variant < 3; ++variant) {
    TrainerOptions options = {.compile = true, .mesh = mesh()};
    if (variant == 1) options.clip_norm = 0.5, options.weight_decay = 1e-3;
    if (variant == 2) options.record_grad_norm = true;
    const int64_t accumulate = variant == 2 ? 2 : 1;
    options.mesh.overlap = Overlap::off;
    const MlpRun plain = train(options, accumulate);
    EXPECT_EQ(plain.program.find("begin_all_reduce"), std::string::npos);
    options.mesh.overlap = Overlap::on;
    for (int64_t bucket_bytes : {1, 1000, 6000, 1 << 30, 0}) {
      options.mesh.bucket_bytes = bucket_bytes;
      const MlpRun overlapped = train(options, accumulate);
      EXPECT_EQ(plain.losses, overlapped.losses) << bucket_bytes;
      EXPECT_EQ(plain.state, overlapped.state) << bucket_bytes;
      EXPECT_NE(overlapped.program.find("begin_all_reduce"), std::string::npos);
    }
    options.compile = false;
    const MlpRun loop = train(options, accumulate);
    EXPECT_EQ(plain.losses, loop.losses);
    EXPECT_EQ(plain.state, loop.state);
  }
}

// Between the beginning and the end of the first bucket lie products of the backward pass.
TEST(Overlap, ProductsRunWhileABucketTravels) {
  if (!communicator().overlaps()) GTEST_SKIP() << "one rank";
  TrainerOptions options = {.compile = true, .mesh = mesh()};
  options.mesh.overlap = Overlap::on;
  options.mesh.bucket_bytes = 1;
  const std::string program = train(options).program;
  const size_t begin = program.find("begin_all_reduce"), finish = program.find("finish_all_reduce");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(finish, std::string::npos);
  EXPECT_NE(program.substr(begin, finish - begin).find("gemm"), std::string::npos) << program;
}

// A step that stops early has begun what the other ranks have, and leaves nothing under way.
TEST(Overlap, StepsThatAreSkipped) {
  if (!communicator().overlaps()) GTEST_SKIP() << "one rank";
  auto model = make_mlp();
  TrainerOptions options = {.compile = true, .clip_norm = 1.0, .on_nonfinite = OnNonFinite::skip, .mesh = mesh()};
  options.mesh.overlap = Overlap::on;
  options.mesh.bucket_bytes = 1000;
  Trainer trainer(*model, MSE(), Adam({.lr = 0.01}), options);
  const Tensor X = random_floats({4, 6}, 1), y = random_floats({4, 2}, 2);
  std::vector<float> huge = X.to_vector<float>();
  huge.back() = 1e30F;  // a finite loss, whose gradients are not
  for (int round = 0; round < 3; ++round) {
    const std::string before = bytes(*model);
    EXPECT_TRUE(std::isnan(trainer.train_step(X, y * INFINITY).item()));
    EXPECT_TRUE(std::isnan(trainer.train_step(floats(huge, {4, 6}) * 1e10, y).item()));
    EXPECT_EQ(bytes(*model), before);
    trainer.train_step(X, y);
    EXPECT_NE(bytes(*model), before);
    distributed::check_replicas(model->parameters());
  }
}

// checkpoint() and buckets: kernels run twice, ranks meet once.
TEST(Overlap, Recomputation) {
  const Tensor tokens = random_ints({8, 12}, 28, 4), targets = random_ints({8, 12}, 28, 5);
  std::vector<double> losses[2];
  int64_t arena[2] = {};
  int repeated[2] = {};
  for (int variant = 0; variant < 2; ++variant) {
    models::GptConfig config;
    config.width = 32, config.heads = 4, config.blocks = 2, config.max_len = 12, config.dropout = 0.1;
    config.checkpoint = variant > 0;
    models::Gpt model(config, Key(2));
    TrainerOptions options = {.compile = true, .mesh = mesh()};
    options.mesh.overlap = Overlap::on;
    options.mesh.bucket_bytes = 5000;
    Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 1e-2}), options);
    for (int step = 0; step < 3; ++step) losses[variant].push_back(trainer.train_step(tokens, targets).item());
    const MemoryAnalysis memory = trainer.compiled_step().memory_analysis();
    arena[variant] = memory.temporary_bytes, repeated[variant] = memory.num_recomputed;
    distributed::check_replicas(model.parameters());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(repeated[0], 0);
  EXPECT_GT(repeated[1], 0);
  EXPECT_LT(arena[1], arena[0]);
}

}  // namespace
}  // namespace ws::testing
