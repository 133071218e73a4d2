#include "wholestep/models.h"

#include "api/layer_checks.h"
#include "wholestep/recompute.h"

namespace ws::models {

Mlp::Mlp(const std::vector<int64_t>& sizes, Key key, Activation activation) : Module(key), activation_(activation) {
  if (sizes.size() < 2) fail("mlp: {} sizes given, but it needs at least two: inputs and outputs", sizes.size());
  bool saturates = activation == Activation::tanh || activation == Activation::sigmoid;
  LinearOptions options{.weight_init = saturates ? init::fan_in_normal() : init::he_normal()};
  for (size_t i = 0; i + 1 < sizes.size(); ++i) layers_.add<Linear>(sizes[i], sizes[i + 1], options);
}

Tensor Mlp::forward(const Tensor& x) const {
  Tensor h = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    bool is_last = i + 1 == layers_.size();
    h = is_last ? layers_[i].unrounded(h) : activate(activation_, layers_[i](h));
  }
  return h;
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderConfig& config, Key key, const Parts& parts)
    : Module(key), config_(config), input_(*this, "input", config.inputs, config.width, {.weight_init = init::he_normal()}),
      positions_(*this, "positions", config.max_len, config.width),
      output_(*this, "output", config.width, config.outputs, {.weight_init = init::he_normal()}) {
  SelfAttentionOptions attention{.causal = config.causal, .weight_init = init::fan_in_normal()};
  FeedForwardOptions feed_forward{.weight_init = init::he_normal()};
  for (int64_t i = 0; i < config.blocks; ++i)
    blocks_.add<TransformerBlock>(
        parts.attention ? parts.attention : layer<SelfAttention>(config.width, config.heads, attention),
        parts.feed_forward ? parts.feed_forward : layer<FeedForward>(config.width, config.hidden, feed_forward),
        norm_layer(NormKind::layer, config.width, 1e-5), false, config.dropout);
  if (config.dropout != 0) dropout_ = std::make_unique<Dropout>(*this, "dropout", config.dropout);
}

Tensor TransformerEncoder::forward(const Tensor& x) const {
  check_sequence("encoder", *this, x);
  Tensor h = positions_(input_.unrounded(x));  // [B,T,C]
  if (dropout_) h = (*dropout_)(h);
  for (const auto& block : blocks_) h = config_.checkpoint ? checkpoint(*block, h) : (*block)(h);
  return output_.unrounded(mean_(h));
}

}  // namespace ws::models
