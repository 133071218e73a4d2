// What a whole training step keeps in memory, planned and not run.
#include <gtest/gtest.h>

#include "wholestep/jit.h"
#include "wholestep/losses.h"
#include "wholestep/models.h"
#include "wholestep/optimizers.h"

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

}  // namespace
}  // namespace ws
