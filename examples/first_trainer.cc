// A model, a loss, an optimizer and Trainer: fits a sine and says how well.
#include <wholestep/wholestep.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  constexpr int64_t kSamples = 1024;
  std::vector<float> x(kSamples), y(kSamples);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i) / kSamples * 6.0F - 3.0F;
    y[i] = std::sin(x[i]);
  }
  auto X = ws::Tensor::from(std::span<const float>(x), {kSamples, 1});
  auto Y = ws::Tensor::from(std::span<const float>(y), {kSamples, 1});

  auto model = ws::models::mlp({1, 64, 64, 1}, ws::Key(0), ws::Activation::tanh);
  ws::Trainer trainer(model, ws::MSE(), ws::Adam({.lr = 0.003}), {.compile = true});
  ws::History history = trainer.fit(X, Y, {.epochs = 100, .batch_size = 64, .key = ws::Key(0)});

  std::printf("%lld parameters; loss %.5f after the first epoch, %.6f after the last\n",
              static_cast<long long>(model.num_parameters()), history.train_loss.front(), history.train_loss.back());
  auto at = trainer.predict(ws::Tensor::full({1, 1}, 1.0));
  std::printf("sin(1) = %.4f, the model says %.4f\n", std::sin(1.0), at.item());
  return history.train_loss.back() < 1e-3 ? 0 : 1;
}
