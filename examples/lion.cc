// An optimizer of one's own: Lion (Chen et al. 2023). One update rule in tensor ops; it runs in the loop and compiles.
//   u = sign(beta1*m + (1-beta1)*g);  w -= lr * (u + decay*w);  m = beta2*m + (1-beta2)*g
#include <wholestep/wholestep.h>

#include <cstdio>
#include <vector>

namespace {

struct LionOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

class Lion : public ws::Optimizer {
 public:
  explicit Lion(const LionOptions& options) : Optimizer("lion", options.lr, {{"m"}}), options_(options) {}

 protected:
  ws::Tensor step(const ws::Variable& parameter, const ws::Tensor& gradient, const ws::Tensor& lr,
                  std::span<ws::Variable> moments) override {
    const ws::Tensor& w = parameter;
    const ws::Tensor& m = moments[0];
    ws::Tensor move = ws::sign(m * options_.beta1 + gradient * (1 - options_.beta1)) + w * options_.weight_decay;
    moments[0].set(m * options_.beta2 + gradient * (1 - options_.beta2));
    return w - move * lr;
  }

 private:
  LionOptions options_;
};

std::vector<double> train(bool compile) {
  constexpr int64_t kSamples = 256;
  std::vector<float> x(kSamples * 8), y(kSamples);
  ws::RandomStream random(ws::Key(2));
  for (float& v : x) v = static_cast<float>(random.normal());
  for (size_t i = 0; i < y.size(); ++i) y[i] = x[8 * i] * x[8 * i + 1] + x[8 * i + 2];
  auto model = ws::models::mlp({8, 64, 1}, ws::Key(0));
  ws::Trainer trainer(model, ws::MSE(), Lion({.lr = 0.002, .weight_decay = 0.01}), {.compile = compile});
  return trainer
      .fit(ws::Tensor::from(std::span<const float>(x), {kSamples, 8}), ws::Tensor::from(std::span<const float>(y), {kSamples, 1}),
           {.epochs = 60, .batch_size = 32})
      .train_loss;
}

}  // namespace

int main() {
  std::vector<double> loop = train(false), compiled = train(true);
  std::printf("Lion: loss %.4f -> %.4f in 60 epochs; loop and compiled %s\n", compiled.front(), compiled.back(),
              loop == compiled ? "give the same bits" : "DIFFER");
  return loop == compiled && compiled.back() < 0.1 * compiled.front() ? 0 : 1;
}
