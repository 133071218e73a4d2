#include "api/json_config.h"
#include "api/layer_checks.h"
#include "wholestep/models.h"
#include "wholestep/recompute.h"

namespace ws::models {
namespace {

std::unique_ptr<Module> make_positions(Module& owner, const GptConfig& c) {
  switch (c.pos) {
    case PositionKind::rope: return nullptr;
    case PositionKind::learned: return std::make_unique<LearnedPositions>(owner, "position_embedding", c.max_len, c.width);
    case PositionKind::sinusoidal: return std::make_unique<SinusoidalPositions>(owner, "positions", c.max_len, c.width);
  }
  return nullptr;
}

LayerFactory make_attention(const GptConfig& c) {
  if (c.heads < 1 || c.width % c.heads != 0)
    fail("gpt: width {} is not divisible by {} heads; choose a width that is a multiple of the heads", c.width, c.heads);
  SelfAttentionOptions options{.causal = true, .bias = c.bias};
  if (c.pos == PositionKind::rope && c.width / c.heads % 2 != 0)
    fail("gpt: width {} leaves each of {} heads {} features, which RoPE cannot pair; choose a width that is a multiple of {}",
         c.width, c.heads, c.width / c.heads, 2 * c.heads);
  if (c.pos == PositionKind::rope) options.rope = Rope(c.max_len, c.width / c.heads, c.rope_pairs);
  return layer<SelfAttention>(c.width, c.heads, options);
}

LayerFactory make_feed_forward(const GptConfig& c) {
  if (c.swiglu)
    return layer<FeedForward>(c.width, swiglu_width(c.width),
                              FeedForwardOptions{.activation = Activation::silu, .gated = true, .bias = c.bias});
  Activation gelu = c.gelu_tanh ? Activation::gelu_tanh : Activation::gelu;
  return layer<FeedForward>(c.width, 4 * c.width, FeedForwardOptions{.activation = gelu, .bias = c.bias});
}

}  // namespace

Gpt::Gpt(const GptConfig& config, Key key, const Parts& parts)
    : Module(key), config_(config), token_embedding_(*this, "token_embedding", config.vocab, config.width),
      positions_(make_positions(*this, config)) {
  LayerFactory norm = norm_layer(config.norm, config.width, config.norm_eps);
  LayerFactory attention = parts.attention ? parts.attention : make_attention(config);
  LayerFactory feed_forward = parts.feed_forward ? parts.feed_forward : make_feed_forward(config);
  for (int64_t i = 0; i < config.blocks; ++i)
    blocks_.add<TransformerBlock>(attention, feed_forward, norm, config.pre_norm, config.dropout);
  if (config.dropout != 0) dropout_ = std::make_unique<Dropout>(*this, "dropout", config.dropout);
  norm_ = norm(*this, "norm");
  if (!config.tied_head)
    head_ = std::make_unique<Linear>(*this, "head", config.width, config.vocab, LinearOptions{.bias = false});
}

Tensor Gpt::forward(const Tensor& tokens) const {
  if (tokens.rank() != 2) fail("gpt: tokens {} must be [batch, positions]", tokens.shape().str());
  if (tokens.dim(1) > config_.max_len)
    fail("gpt: a sequence of {} tokens exceeds max_len {}; build the model with a larger max_len", tokens.dim(1),
         config_.max_len);
  Tensor h = token_embedding_(tokens);  // [B,T,C]
  if (positions_) h = (*positions_)(h);
  if (dropout_) h = (*dropout_)(h);
  for (const auto& block : blocks_) h = config_.checkpoint ? checkpoint(*block, h) : (*block)(h);
  h = (*norm_)(h);
  if (head_) return head_->unrounded(h);
  PathScope scope("head");
  return matmul(h, token_embedding_.weight, false, true);
}

std::string GptConfig::to_json() const { return gpt_config_to_json(*this).dump(1); }

GptConfig GptConfig::from_json(std::string_view text, const std::string& name) {
  return gpt_config_from_json(parse_json(text, name), name);
}

}  // namespace ws::models
