// The models that bench, parity and inspect run, with their data: those that the peers' scripts run too.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "command.h"
#include "wholestep/wholestep.h"

namespace ws::cli {

struct WorkloadOptions {
  std::string model = "mlp";     // mlp, encoder, gpt, tiny
  int64_t batch = 0, seq = 128;  // 0: the model's own
  int64_t width = 0, blocks = -1;
  bool checkpoint = false;  // encoder, gpt: each block
  uint64_t seed = 0;
};

/// Samples of a workload: mlp X, y f32 [N, width]; encoder X f32 [N, T, 64], y [N, 16]; gpt X, y i32 [N, T], y one token later.
struct Samples {
  Tensor X, y;
};

struct Workload {
  std::unique_ptr<Module> model;
  Loss loss;
  std::string default_optimizer;  // with its rate
  double default_lr = 0;
  double default_weight_decay = 0;  // of AdamW
  int64_t batch = 0;
  int64_t tokens_per_step = 0;  // 0 for models without positions
  /// `count` samples drawn from `key`.
  std::function<Samples(Key key, int64_t count)> draw;
};

/// Adds --batch --seq --width --blocks --checkpoint --seed to a command.
void add_size_options(CLI::App* command, WorkloadOptions& options, int64_t least_blocks = 1);

/// An Error names what does not fit.
Workload make_workload(const WorkloadOptions& options);

/// Before a model is built, an Error where `squares` weights of width x width, their gradients and one activation a block of `rows` rows
/// exceed the memory that there is, or the weights alone a --memory-limit.
void check_memory(int64_t blocks, int64_t width, int64_t rows, int64_t squares);
constexpr int64_t kSquaresPerBlock = 12;  // of a gpt or encoder: 4 of attention, 8 of the feed-forward part

/// An Error where the heads of a `model` cannot share --width out, or RoPE cannot pair the features of each.
void check_heads(const char* model, int64_t width, int64_t heads, bool rope);
/// What --help says of --width.
constexpr const char* kWidthHelp = "features; a multiple of 16 for a gpt, of 8 for an encoder (8 heads)";

/// A gpt of the book's kind: rope, RMSNorm, SwiGLU, tied head, 8 heads.
models::GptConfig book_gpt(int64_t vocab, int64_t width, int64_t blocks, int64_t max_len);

}  // namespace ws::cli
