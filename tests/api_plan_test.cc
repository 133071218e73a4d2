// What a whole training step keeps in memory, planned and not run.
#include <gtest/gtest.h>

#include "wholestep/jit.h"
#include "wholestep/losses.h"
#include "wholestep/models.h"
#include "wholestep/optimizers.h"
#include "wholestep/precision.h"

namespace ws {
namespace {

TEST(Plan, TheBooksGptOfBatch64) {
  const auto model = models::gpt({}, Key(0));
  AdamW optimizer(model.parameters(), {.lr = 1e-3});
  auto step = jit(
      [&](const Tensor& x, const Tensor& y) {
        Tensor loss = cross_entropy(model(x), y);
        optimizer.update(grad(loss, model.parameters()));
        return loss;
      },
      model, optimizer);
  const std::vector<int32_t> tokens(size_t{64} * 128, 1);
  const Tensor x = Tensor::from(std::span<const int32_t>(tokens), {64, 128});
  const Tensor inputs[] = {x, x};
  step.prepare(inputs);
  EXPECT_LE(step.memory_analysis().temporary_bytes, int64_t{1250} << 20);
}

template <class Model, class Loss>
int64_t planned_bytes(const Model& model, const Tensor& x, const Tensor& y, const Loss& loss_of, DType dtype) {
  SGD optimizer(model.parameters(), {.lr = 0.01});
  auto step = jit(
      [&](const Tensor& in, const Tensor& wanted) {
        const ComputeDType precision(dtype);
        Tensor loss = loss_of(model(in), wanted);
        optimizer.update(grad(loss, model.parameters()));
        return loss;
      },
      model, optimizer);
  const Tensor inputs[] = {x, y};
  step.prepare(inputs);
  return step.memory_analysis().temporary_bytes;
}

// Norms keep a bf16 row and its mean, ReLU's gradient is kept once, concatenated gradients are rounded part by part.
TEST(Plan, Bf16NeedsLittleMoreThanHalfOfTheTemporaries) {
  const auto ratio = [](const auto& model, const Tensor& x, const Tensor& y, const auto& loss) {
    return static_cast<double>(planned_bytes(model, x, y, loss, DType::bf16)) /
           static_cast<double>(planned_bytes(model, x, y, loss, DType::f32));
  };
  const auto squares = [](const Tensor& p, const Tensor& y) { return mse(p, y); };
  // Activations count here, not what products pack of the weights or the loss keeps in fp32: many rows, few outputs.
  EXPECT_LE(ratio(models::mlp({512, 512, 512, 512, 32}, Key(0)), Tensor::ones({4096, 512}), Tensor::ones({4096, 32}), squares),
            0.55);
  EXPECT_LE(
      ratio(models::transformer_encoder({.blocks = 2}, Key(0)), Tensor::ones({16, 128, 64}), Tensor::ones({16, 16}), squares),
      0.55);
  const std::vector<int32_t> tokens(size_t{64} * 64, 1);
  const Tensor ids = Tensor::from(std::span<const int32_t>(tokens), {64, 64});
  EXPECT_LE(ratio(models::gpt({.width = 128, .blocks = 2}, Key(0)), ids, ids,
                  [](const Tensor& p, const Tensor& y) { return cross_entropy(p, y); }),
            0.55);
}

// Not the caller's precisions: those that the step will be compiled with.
TEST(Plan, IsOfTheStepsOwnPrecision) {
  const auto model = models::mlp({64, 64, 64}, Key(0));
  const auto make = [&](const JitOptions& options) {
    return jit(
        options, [&](const Tensor& x) { return grad(square(model(x)).sum(), model.parameters()).loss; }, model);
  };
  const Tensor inputs[] = {Tensor::ones({32, 64})};
  const auto same = [](const MemoryAnalysis& a, const MemoryAnalysis& b) {
    return a.temporary_bytes == b.temporary_bytes && a.derived_bytes == b.derived_bytes;
  };
  auto plain = make({.name = "plain"});
  plain.prepare(inputs);
  for (const JitOptions& options :
       {JitOptions{.compute_dtype = DType::bf16}, JitOptions{.matmul_precision = MatmulPrecision::bf16}}) {
    auto step = make(options);
    const MemoryAnalysis planned = step.plan(inputs);
    step.prepare(inputs);
    EXPECT_TRUE(same(planned, step.memory_analysis()));
    EXPECT_FALSE(same(planned, plain.memory_analysis()));
  }
}

}  // namespace
}  // namespace ws
