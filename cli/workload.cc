#include "workload.h"

#include <algorithm>

#include "analysis/machine_memory.h"
#include "api/json_config.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/flags.h"

namespace ws::cli {
namespace {

Tensor normal_tensor(Key key, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  init::normal(1.0)(values, shape, key);
  return Tensor::from(values, shape);
}

Samples random_windows(Key key, int64_t count, int64_t seq, int64_t vocab) {
  RandomStream stream(key);
  auto block = static_cast<size_t>(seq);
  std::vector<int32_t> x(static_cast<size_t>(count) * block), y(x.size());
  for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
    auto token = static_cast<int32_t>(stream.below(static_cast<uint64_t>(vocab)));
    for (size_t t = 0; t < block; ++t) {
      x[row * block + t] = token;
      token = static_cast<int32_t>(stream.below(static_cast<uint64_t>(vocab)));
      y[row * block + t] = token;
    }
  }
  return {Tensor::from(x, {count, seq}), Tensor::from(y, {count, seq})};
}

}  // namespace

void check_memory(int64_t blocks, int64_t width, int64_t rows, int64_t squares) {
  constexpr double kBytes = 4;
  const double w = static_cast<double>(width), weights = kBytes * static_cast<double>(squares) * w * w,
               activations = kBytes * static_cast<double>(std::max<int64_t>(blocks, 1)) * static_cast<double>(rows) * w;
  // What else a limit allows the plan of the step says, which may need one activation at a time and no gradients.
  const bool is_limited = !flags().memory_limit.empty();
  const double need = is_limited ? weights : 2 * weights + activations, have = static_cast<double>(machine_memory_bytes());
  if (need > have)
    fail("{}--blocks {} of --width {}{} need more than {}, {} {}: make one of them smaller", is_limited ? "the weights of " : "",
         blocks, width, is_limited ? " alone" : fmt::format(" on {} rows", rows), bytes_text(need), whose_memory(),
         bytes_text(have));
}

void check_heads(const char* model, int64_t width, int64_t heads, bool rope) {
  if (const int64_t unit = rope ? 2 * heads : heads; width % unit != 0)
    fail("--width {}: {} has {} heads{}, so the width must be a multiple of {}", width, model, heads,
         rope ? ", and RoPE pairs the features of each" : "", unit);
}

models::GptConfig book_gpt(int64_t vocab, int64_t width, int64_t blocks, int64_t max_len) {
  models::GptConfig config;
  config.vocab = vocab;
  config.width = width;
  config.blocks = blocks;
  config.max_len = max_len;
  return config;
}

void add_size_options(CLI::App* command, WorkloadOptions& o, int64_t least_blocks) {
  add_number(command, "--batch", o.batch, 1, kMaxBatch, "samples a step, however many processes share it");
  add_number(command, "--seq", o.seq, 1, kMaxSeq, "positions a sample (encoder, gpt)");
  add_number(command, "--width", o.width, 1, kMaxWidth, kWidthHelp);
  add_number(command, "--blocks", o.blocks, least_blocks, kMaxBlocks, "blocks, or layers of an mlp");
  command->add_flag("--checkpoint", o.checkpoint, "each block by checkpoint(): less memory (encoder, gpt)");
  add_seed(command, o.seed, "of weights and data");
}

Workload make_workload(const WorkloadOptions& o) {
  Workload w;
  Key key(o.seed);
  auto or_default = [](int64_t given, int64_t otherwise, int64_t none) { return given == none ? otherwise : given; };
  if (o.model == "mlp" || o.model == "tiny") {
    bool tiny = o.model == "tiny";
    int64_t width = or_default(o.width, tiny ? 16 : 512, 0), layers = or_default(o.blocks, tiny ? 2 : 4, -1);
    if (layers < 1) fail("--blocks must be at least 1, not {}", layers);  // of an encoder or gpt it may be 0
    std::vector<int64_t> sizes(static_cast<size_t>(layers) + 1, width);
    if (tiny) sizes.front() = 8, sizes.back() = 1;
    w.batch = or_default(o.batch, tiny ? 4 : 256, 0);
    check_memory(layers, width, w.batch, tiny ? std::max<int64_t>(layers - 2, 0) : layers);
    w.model = std::make_unique<models::Mlp>(sizes, key);
    int64_t in = sizes.front(), out = sizes.back();
    w.draw = [in, out](Key k, int64_t n) {
      return Samples{normal_tensor(k.fold("X"), {n, in}), normal_tensor(k.fold("y"), {n, out})};
    };
  } else if (o.model == "encoder") {
    models::TransformerEncoderConfig config;
    config.width = or_default(o.width, 256, 0);
    config.blocks = or_default(o.blocks, 4, -1);
    config.hidden = 4 * config.width;
    config.max_len = o.seq;
    config.checkpoint = o.checkpoint;
    w.batch = or_default(o.batch, 32, 0);
    check_heads("an encoder", config.width, config.heads, false);
    check_memory(config.blocks, config.width, w.batch * o.seq, kSquaresPerBlock * config.blocks);
    w.model = std::make_unique<models::TransformerEncoder>(config, key);
    int64_t seq = o.seq, in = config.inputs, out = config.outputs;
    w.draw = [=](Key k, int64_t n) {
      return Samples{normal_tensor(k.fold("X"), {n, seq, in}), normal_tensor(k.fold("y"), {n, out})};
    };
  } else if (o.model == "gpt") {
    auto config = book_gpt(28, or_default(o.width, 512, 0), or_default(o.blocks, 6, -1), o.seq);
    config.checkpoint = o.checkpoint;
    w.batch = or_default(o.batch, 64, 0);
    check_heads("a gpt", config.width, config.heads, config.pos == models::PositionKind::rope);
    check_memory(config.blocks, config.width, w.batch * o.seq, kSquaresPerBlock * config.blocks);
    w.model = std::make_unique<models::Gpt>(config, key);
    int64_t seq = o.seq, vocab = config.vocab;
    w.draw = [=](Key k, int64_t n) { return random_windows(k, n, seq, vocab); };
  } else {
    fail("unknown model '{}': known ones are mlp, encoder, gpt, tiny", o.model);
  }
  if (o.checkpoint && (o.model == "mlp" || o.model == "tiny"))
    fail("--checkpoint: a model of kind '{}' has no blocks; use --memory-budget", o.model);
  bool is_gpt = o.model == "gpt";
  w.loss = is_gpt ? Loss(SoftmaxCrossEntropy()) : Loss(MSE());
  w.default_optimizer = is_gpt ? "adamw" : "sgd";
  w.default_lr = is_gpt ? 1e-3 : 0.01;
  w.default_weight_decay = is_gpt ? 1e-4 : 0;
  w.tokens_per_step = is_gpt || o.model == "encoder" ? w.batch * o.seq : 0;
  return w;
}

}  // namespace ws::cli
