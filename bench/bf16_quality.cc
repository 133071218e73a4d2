// Does bf16 train as well as fp32? 300 steps of a small GPT on the built-in text and of an encoder that learns a teacher: the loss in
// bf16, mean of the same seeds, beside the lowest and highest of five fp32 seeds, every 50 steps. Exits with 1 where it lies above.
//
//   build/bench_bf16_quality
#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "io/corpus.h"
#include "wholestep/wholestep.h"

namespace ws {
namespace {

constexpr int kSteps = 300, kWindow = 50, kSeeds = 5;

using Curve = std::vector<double>;  // mean loss of each window
using Run = std::function<Curve(DType dtype, uint64_t seed)>;

Curve windows(const std::vector<double>& losses) {
  Curve curve;
  for (size_t start = 0; start + kWindow <= losses.size(); start += kWindow) {
    double sum = 0;
    for (size_t i = start; i < start + kWindow; ++i) sum += losses[i];
    curve.push_back(sum / kWindow);
  }
  return curve;
}

Curve train_gpt(DType dtype, uint64_t seed) {
  static const Corpus corpus = make_corpus("built-in text", built_in_text(), 64, Vocabulary::Kind::kLetters);
  auto model = models::gpt({.vocab = corpus.vocabulary.size(), .width = 64, .heads = 4, .blocks = 2, .max_len = 64}, Key(seed));
  Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 0.002}), {.compile = true, .compute_dtype = dtype});
  TokenWindows text(corpus.train(), 64);
  RandomStream stream(Key(seed).fold("windows"));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int64_t> starts(8);
    std::vector<int32_t> x(8 * 64), y(8 * 64);
    for (int64_t& s : starts) s = static_cast<int64_t>(stream.below(static_cast<uint64_t>(text.count())));
    text.gather(starts, x, y);
    losses.push_back(trainer.train_step(Tensor::from(x, {8, 64}), Tensor::from(y, {8, 64})).item());
  }
  return windows(losses);
}

Tensor normal(const Shape& shape, Key key) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  init::normal(1)(values, shape, key);
  return Tensor::from(std::span<const float>(values), shape);
}

// The target is what a random encoder of the same kind says.
Curve train_encoder(DType dtype, uint64_t seed) {
  models::TransformerEncoderConfig config{
      .inputs = 16, .width = 64, .outputs = 8, .blocks = 2, .heads = 4, .hidden = 128, .max_len = 32};
  Tensor X = normal({512, 32, 16}, Key(100));
  auto teacher = models::transformer_encoder(config, Key(101));
  Tensor y = teacher(X).detach().contiguous();
  auto model = models::transformer_encoder(config, Key(seed));
  Trainer trainer(model, MSE(), Adam({.lr = 0.001}), {.compile = true, .compute_dtype = dtype});
  return windows(trainer.fit(X, y, {.epochs = 19, .batch_size = 32, .key = Key(seed)}).step_losses);
}

bool compare(const char* name, const Run& run) {
  std::vector<Curve> wide, narrow;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    wide.push_back(run(DType::f32, seed));
    narrow.push_back(run(DType::bf16, seed));
  }
  fmt::print("{}\n{:>6} {:>10} {:>10} {:>10} {:>10}\n", name, "steps", "fp32 low", "fp32 high", "fp32 mean", "bf16 mean");
  bool fine = true;
  for (size_t w = 0; w < kSteps / kWindow; ++w) {
    auto at = [&](const Curve& a, const Curve& b) { return a[w] < b[w]; };
    double low = std::min_element(wide.begin(), wide.end(), at)->at(w),
           high = std::max_element(wide.begin(), wide.end(), at)->at(w);
    double mean = 0, mean_narrow = 0;
    for (size_t s = 0; s < kSeeds; ++s) mean += wide[s][w] / kSeeds, mean_narrow += narrow[s][w] / kSeeds;
    bool inside = mean_narrow <= high;
    fine &= inside;
    fmt::print("{:>6} {:>10.5f} {:>10.5f} {:>10.5f} {:>10.5f}{}\n", (w + 1) * kWindow, low, high, mean, mean_narrow,
               inside ? "" : "  above");
  }
  return fine;
}

}  // namespace
}  // namespace ws

int main() {
  bool gpt = ws::compare("gpt", ws::train_gpt), encoder = ws::compare("encoder", ws::train_encoder);
  return gpt && encoder ? 0 : 1;
}
