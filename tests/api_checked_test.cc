// Training steps under every check at once: each kernel against the reference, freed memory poisoned, no NaN.
#include "api_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

/// Losses of two steps, checked or not.
template <class Model, class L>
std::vector<double> losses_of(const Model& make, const L& loss, const Tensor& x, const Tensor& y, DType dtype, bool checked) {
  const FlagScope verify("verify", checked ? "3" : "0"), poison("poison", checked ? "1" : "0"),
      nan("nan_check", checked ? "1" : "0");
  auto model = make();
  Trainer trainer(model, loss, SGD({.lr = 0.01}), {.compile = true, .num_threads = 2, .compute_dtype = dtype});
  std::vector<double> losses;
  for (int i = 0; i < 2; ++i) losses.push_back(trainer.train_step(x, y).item());
  return losses;
}

template <class Model, class L>
void expect_clean(const Model& make, const L& loss, const Tensor& x, const Tensor& y) {
  for (DType dtype : {DType::f32, DType::bf16})
    EXPECT_EQ(losses_of(make, loss, x, y, dtype, true), losses_of(make, loss, x, y, dtype, false)) << name_of(dtype);
}

TEST(Checked, StepsOfAnEncoder) {
  models::TransformerEncoderConfig config;
  config.inputs = 6, config.outputs = 3, config.width = 32, config.hidden = 64, config.blocks = 2, config.max_len = 16;
  expect_clean([&] { return models::TransformerEncoder(config, Key(0)); }, MSE(), random_floats({4, 16, 6}, 1),
               random_floats({4, 3}, 2));
}

TEST(Checked, StepsOfAGpt) {
  models::GptConfig config;
  config.vocab = 28, config.width = 32, config.blocks = 2, config.max_len = 16;
  std::vector<int32_t> tokens(size_t{4} * 16);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 11 % 28);
  const Tensor x = Tensor::from(std::span<const int32_t>(tokens), {4, 16});
  expect_clean([&] { return models::gpt(config, Key(0)); }, SoftmaxCrossEntropy(), x, x);
}

}  // namespace
}  // namespace ws::testing
