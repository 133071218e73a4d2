// Ready models. Each is built where it is returned to, so `auto model = ws::models::gpt({...}, ws::Key(0));` works though
// modules do not move.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wholestep/layers.h"

namespace ws::models {

/// Linear layers "layers.0", "layers.1", ... with an activation between them.
class Mlp final : public Module {
 public:
  /// sizes: input, hidden.., output. Weights N(0, 2/fan_in) where the activation is of ReLU's kind, N(0, 1/fan_in) for tanh
  /// and sigmoid; biases 0.
  Mlp(const std::vector<int64_t>& sizes, Key key, Activation activation = Activation::relu);
  Tensor forward(const Tensor& x) const override;  // x [N, sizes.front()] -> [N, sizes.back()]

 private:
  Activation activation_;
  ModuleList layers_{*this, "layers"};
};

inline Mlp mlp(const std::vector<int64_t>& sizes, Key key, Activation activation = Activation::relu) {
  return Mlp(sizes, key, activation);
}

/// A part of a model that a user may replace; an empty one means the model's own.
struct Parts {
  /// Builds a module [B,T,C] -> [B,T,C], once a block.
  LayerFactory attention = {};
  LayerFactory feed_forward = {};
};

struct TransformerEncoderConfig {
  int64_t inputs = 64, width = 256, outputs = 16;  ///< features
  int64_t blocks = 4, heads = 8, hidden = 1024;    ///< hidden: of the feed-forward
  int64_t max_len = 512;
  bool causal = false;
  bool checkpoint = false;  ///< each block by checkpoint(): less memory, more time, the same bits
  double dropout = 0;       ///< after the positions, attention and feed-forward of each block
  bool operator==(const TransformerEncoderConfig&) const = default;
};

/// Linear, sinusoidal positions, post-norm blocks (attention without biases, ReLU), mean over time, Linear.
class TransformerEncoder final : public Module {
 public:
  TransformerEncoder(const TransformerEncoderConfig& config, Key key, const Parts& parts = {});
  Tensor forward(const Tensor& x) const override;  // x [B,T,inputs] -> [B,outputs]
  const TransformerEncoderConfig& config() const { return config_; }

 private:
  TransformerEncoderConfig config_;
  Linear input_;
  SinusoidalPositions positions_;
  ModuleList blocks_{*this, "blocks"};
  std::unique_ptr<Dropout> dropout_;  // only where there is any
  MeanOverTime mean_{*this, "mean"};
  Linear output_;
};

inline TransformerEncoder transformer_encoder(const TransformerEncoderConfig& config, Key key, const Parts& parts = {}) {
  return TransformerEncoder(config, key, parts);
}

enum class PositionKind : uint8_t { rope, learned, sinusoidal };

/// The book's GPT. As JSON: {"type": "gpt", "vocab_size": 28, "num_hiddens": 512, ...}.
struct GptConfig {
  int64_t vocab = 28, width = 512, heads = 8, blocks = 6;
  int64_t max_len = 1024;  ///< longest sequence
  PositionKind pos = PositionKind::rope;
  NormKind norm = NormKind::rms;
  bool swiglu = true;  ///< width round(8*width/3); else GELU of 4*width
  bool pre_norm = true;
  bool bias = false;      ///< of the linear layers
  bool tied_head = true;  ///< logits from the token embedding; else a Linear without bias
  double norm_eps = 1e-6;
  bool gelu_tanh = true;  ///< the tanh form, as the book; else exact
  RopePairs rope_pairs = RopePairs::interleaved;
  bool checkpoint = false;  ///< each block by checkpoint(): less memory, more time, the same bits
  double dropout = 0;       ///< after the embedding, attention and feed-forward of each block
  bool operator==(const GptConfig&) const = default;

  std::string to_json() const;
  /// Missing keys keep their defaults; unknown keys and words are an Error.
  static GptConfig from_json(std::string_view text, const std::string& name = "gpt config");
};

/// token_embedding, positions, blocks.N.{norm1, attention.{qkv,out}, norm2, feed_forward.{gate,up,down}}, norm, head.
class Gpt final : public Module {
 public:
  Gpt(const GptConfig& config, Key key, const Parts& parts = {});
  Tensor forward(const Tensor& tokens) const override;  // i32 [B,T] -> logits [B,T,vocab]
  const GptConfig& config() const { return config_; }

 private:
  GptConfig config_;
  Embedding token_embedding_;
  std::unique_ptr<Module> positions_;  // learned or sinusoidal; rope lives in the attention
  std::unique_ptr<Dropout> dropout_;   // only where there is any
  ModuleList blocks_{*this, "blocks"};
  std::unique_ptr<Module> norm_;
  std::unique_ptr<Linear> head_;  // only where not tied
};

inline Gpt gpt(const GptConfig& config, Key key, const Parts& parts = {}) { return Gpt(config, key, parts); }

}  // namespace ws::models
