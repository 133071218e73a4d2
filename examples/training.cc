// Faster without changing the model: times the loop, turns compile on, checks the losses; then what else Trainer offers.
#include <wholestep/wholestep.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

namespace {

struct Data {
  ws::Tensor X, y;  // images [N,8,8,1], labels i32 [N]
};

/// Images of noise with a bright square in one of four corners: which one is the label.
Data corners(int64_t count, ws::Key key) {
  std::vector<float> pixels(static_cast<size_t>(count) * 64);
  std::vector<int32_t> labels(static_cast<size_t>(count));
  ws::RandomStream random(key);
  for (float& p : pixels) p = static_cast<float>(0.7 * random.normal());
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(random.below(4));
    size_t row = labels[i] / 2 * 4, column = labels[i] % 2 * 4;
    for (size_t r = row; r < row + 4; ++r)
      for (size_t c = column; c < column + 4; ++c) pixels[i * 64 + r * 8 + c] += 0.8F;
  }
  return {ws::Tensor::from(std::span<const float>(pixels), {count, 8, 8, 1}),
          ws::Tensor::from(std::span<const int32_t>(labels), {count})};
}

struct ConvNet : ws::Module {
  ws::Conv2D conv{*this, "conv", 1, 8, 3, {.padding = 1}};
  ws::BatchNorm norm{*this, "norm", 8};
  ws::MaxPool pool{*this, "pool", 2};
  ws::Flatten flatten{*this, "flatten"};
  ws::Dropout dropout{*this, "dropout", 0.2};
  ws::Linear out{*this, "out", 128, 4};
  explicit ConvNet(ws::Key key) : Module(key) {}
  ws::Tensor forward(const ws::Tensor& x) const override { return out(dropout(flatten(pool(ws::relu(norm(conv(x))))))); }
};

ws::History train(const Data& data, bool compile, double* seconds) {
  ConvNet model(ws::Key(0));
  ws::Trainer trainer(model, ws::SoftmaxCrossEntropy(), ws::AdamW({.lr = 0.003}), {.compile = compile, .clip_norm = 1});
  trainer.fit(data.X, data.y, {.epochs = 1, .batch_size = 32});  // the first epoch compiles and warms up
  auto start = std::chrono::steady_clock::now();
  ws::History history = trainer.fit(data.X, data.y, {.epochs = 3, .batch_size = 32});
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return history;
}

/// The share of right answers.
double accuracy(ws::Trainer& trainer, const Data& data) {
  std::vector<float> logits = trainer.predict(data.X).to_vector<float>();
  std::vector<int32_t> labels = data.y.to_vector<int32_t>();
  size_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    int32_t best = 0;
    for (int32_t c = 1; c < 4; ++c)
      if (logits[4 * i + static_cast<size_t>(c)] > logits[4 * i + static_cast<size_t>(best)]) best = c;
    right += best == labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace

int main() {
  Data data = corners(1024, ws::Key(1)), validation = corners(256, ws::Key(2));

  double loop_seconds = 0, compiled_seconds = 0;
  ws::History loop = train(data, false, &loop_seconds);
  ws::History compiled = train(data, true, &compiled_seconds);
  bool same = loop.step_losses == compiled.step_losses;  // every loss, every bit, dropout included
  std::printf("loop %.3f s, compiled %.3f s, %.1f times as fast; losses %s\n", loop_seconds, compiled_seconds,
              loop_seconds / compiled_seconds, same ? "equal in every bit" : "DIFFER");

  ConvNet model(ws::Key(0));
  ws::TrainerOptions options{.compile = true, .clip_norm = 1};
  options.schedule = ws::OneCycle{.peak = 0.02, .total = 160};
  options.on_nonfinite = ws::OnNonFinite::skip;
  options.record_grad_norm = true;
  options.groups = {{.contains = std::not_fn(ws::is_matrix), .decay = false},  // norms and biases
                    {.contains = [](const ws::Variable& p) { return p.name() == "out.weight"; }, .lr_scale = 0.5}};
  ws::Trainer trainer(model, ws::SoftmaxCrossEntropy({.smoothing = 0.05}), ws::Muon({.rest = {.lr = 0.01}}), options);

  ws::History history = trainer.fit(data.X, data.y,
                                    {.epochs = 10,
                                     .batch_size = 32,
                                     .X_val = validation.X,
                                     .y_val = validation.y,
                                     .patience = 5,
                                     .accumulate = 2,  // an update from two batches
                                     .on_epoch = [](const ws::EpochInfo& e) {
                                       std::printf("epoch %d: loss %.4f, validation %.4f\n", e.epoch, e.train_loss, *e.val_loss);
                                     }});

  double share = accuracy(trainer, validation);
  std::printf("best epoch %d, gradient norm %.3f -> %.3f, %.1f %% right\n", *history.best_epoch, history.grad_norms.front(),
              history.grad_norms.back(), 100 * share);

  // A loss of one's own: any function of tensors that returns a scalar.
  auto log_cosh = [](const ws::Tensor& prediction, const ws::Tensor& target) {
    ws::Tensor d = prediction - target;
    return (ws::abs(d) + ws::log1p(ws::exp(ws::abs(d) * -2.0))).mean();
  };
  auto mlp = ws::models::mlp({8, 16, 1}, ws::Key(0));
  ws::Trainer own_loss(mlp, log_cosh, ws::SGD({.lr = 0.1, .momentum = 0.9}), {.compile = true});
  own_loss.train_step(ws::Tensor::ones({4, 8}), ws::Tensor::ones({4, 1}));
  return same && share > 0.9 ? 0 : 1;
}
