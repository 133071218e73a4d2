// The same model trained in fp32 and in mixed precision: losses, memory, the dtype report, and a planted leak that it finds.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "wholestep/wholestep.h"

namespace {

ws::models::GptConfig config() { return {.vocab = 28, .width = 64, .heads = 4, .blocks = 2, .max_len = 64}; }

// Sequences whose next token follows from the last: 3 x + 1 modulo 28.
ws::Tensor tokens(int32_t first_step) {
  std::vector<int32_t> values;
  for (int32_t row = 0; row < 16; ++row)
    for (int32_t t = 0, token = row; t < 64 + first_step; ++t, token = (3 * token + 1) % 28)
      if (t >= first_step) values.push_back(token);
  return ws::Tensor::from(values, {16, 64});
}

double train(ws::DType dtype, int64_t* temporary_bytes) {
  ws::Tensor X = tokens(0), y = tokens(1);
  auto model = ws::models::gpt(config(), ws::Key(0));
  ws::Trainer trainer(model, ws::SoftmaxCrossEntropy(), ws::AdamW({.lr = 0.003}), {.compile = true, .compute_dtype = dtype});
  ws::History history = trainer.fit(X, y, {.epochs = 30, .batch_size = 16});
  ws::MemoryAnalysis memory = trainer.compiled_step().memory_analysis();
  std::printf("copies of weights: %.2f MiB\n", static_cast<double>(memory.derived_bytes) / 0x1p20);
  *temporary_bytes = memory.temporary_bytes;
  std::printf("%s", trainer.compiled_step().dtype_report().text().c_str());
  return history.train_loss.back();
}

// A layer that multiplies by a table of fp32: from here on the block works in fp32.
struct Scaled : ws::Module {
  ws::Linear inner{*this, "inner", 64, 64};
  ws::Tensor table = ws::Tensor::full({64}, 0.5);
  using Module::Module;
  ws::Tensor forward(const ws::Tensor& x) const override { return inner(x) * table; }
};

std::string leak() {
  auto model = ws::models::gpt(config(), ws::Key(0), {.feed_forward = ws::layer<Scaled>()});
  auto forward = ws::jit([&](const ws::Tensor& x) { return model(x); }, model);
  ws::ComputeDType precision(ws::DType::bf16);
  forward(tokens(0));
  ws::DTypeReport report = forward.dtype_report();
  return report.leaks.empty() ? "" : report.leaks[0].message;
}

// fp32 all through, its products in bf16 parts: how far the logits move, relative to the largest.
double moved_by(ws::MatmulPrecision precision) {
  auto model = ws::models::gpt(config(), ws::Key(0));
  ws::NoGrad no_grad;
  std::vector<float> exact = model(tokens(0)).to_vector<float>();
  ws::MatmulPrecisionScope scope(precision);
  std::vector<float> near = model(tokens(0)).to_vector<float>();
  double largest = 0, moved = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(exact[i])));
    moved = std::max(moved, std::fabs(static_cast<double>(near[i] - exact[i])));
  }
  return moved / largest;
}

}  // namespace

int main() {
  int64_t wide_bytes = 0, narrow_bytes = 0;
  double wide = train(ws::DType::f32, &wide_bytes), narrow = train(ws::DType::bf16, &narrow_bytes);
  std::printf("loss in fp32 %.4f, in bf16 %.4f; temporaries %.2f and %.2f MiB\n", wide, narrow,
              static_cast<double>(wide_bytes) / 0x1p20, static_cast<double>(narrow_bytes) / 0x1p20);
  std::string message = leak();
  std::printf("planted leak: %s\n", message.c_str());
  double high = moved_by(ws::MatmulPrecision::high), bf16 = moved_by(ws::MatmulPrecision::bf16);
  std::printf("logits move by %.1e with products in two parts, %.1e with one\n", high, bf16);
  if (!(high > 0 && high < 1e-4 && bf16 > 10 * high)) return 1;
  return narrow < wide + 0.05 && narrow_bytes < wide_bytes && !message.empty() ? 0 : 1;
}
