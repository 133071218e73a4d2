// Rope, SelfAttention, FeedForward and the transformer block. The rotation and the gated product compute in f32 and round once.
#include <cmath>

#include "api/layer_checks.h"
#include "api/rounding.h"
#include "wholestep/attention.h"
#include "wholestep/layers.h"

namespace ws {

Rope::Rope(int64_t max_len, int64_t head_dim, RopePairs pairs, double base) : pairs_(pairs) {
  if (head_dim < 2 || head_dim % 2 != 0) fail("rope: {} features a head cannot be paired; use an even number", head_dim);
  if (max_len < 1) fail("rope: max_len is {}, but must be at least 1", max_len);
  bool interleaved = pairs == RopePairs::interleaved;
  int64_t half = head_dim / 2, columns = interleaved ? head_dim : half;
  std::vector<float> cosines, sines;
  cosines.reserve(static_cast<size_t>(max_len * columns));
  sines.reserve(cosines.capacity());
  for (int64_t t = 0; t < max_len; ++t)
    for (int64_t j = 0; j < columns; ++j) {
      int64_t pair = interleaved ? j / 2 : j;
      double angle = static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
      double sign = interleaved && j % 2 == 0 ? -1 : 1;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(sign * std::sin(angle)));
    }
  Shape shape{max_len, 1, columns};
  cos_ = Tensor::from(std::span<const float>(cosines), shape);
  sin_ = Tensor::from(std::span<const float>(sines), shape);
}

// Views come before the widening, so that the narrow values are what is read.
Tensor Rope::operator()(const Tensor& x) const {
  int64_t length = x.dim(1), head_dim = x.dim(3), columns = pairs_ == RopePairs::interleaved ? head_dim : head_dim / 2;
  if (length > cos_.dim(0))
    fail("rope: a sequence of {} positions exceeds max_len {}; build the model with a larger max_len", length, cos_.dim(0));
  if (columns != cos_.dim(2)) fail("rope: heads of {} features do not fit the table, built for {}", head_dim, cos_.dim(2));
  Tensor c = cos_.slice(0, 0, length), s = sin_.slice(0, 0, length);  // [T,1,columns]
  if (pairs_ == RopePairs::interleaved) {
    Tensor straight = in_f32(x) * c;
    Tensor crossed = in_f32(swap_pairs(x)) * s;
    return rounded_like(x, straight + crossed);
  }
  Tensor first = in_f32(x.slice(3, 0, columns)), second = in_f32(x.slice(3, columns, head_dim));
  Tensor first_c = first * c, second_s = second * s, second_c = second * c, first_s = first * s;
  Tensor turned_first = first_c - second_s, turned_second = second_c + first_s;
  return concatenate({rounded_like(x, turned_first), rounded_like(x, turned_second)}, 3);
}

SelfAttention::SelfAttention(Module& parent, const std::string& name, int64_t width, int64_t heads,
                             const SelfAttentionOptions& options)
    : Module(parent, name), qkv(*this, "qkv", width, 3 * width, {.bias = options.bias, .weight_init = options.weight_init}),
      out(*this, "out", width, width, {.bias = options.bias, .weight_init = options.weight_init}), width_(width), heads_(heads),
      options_(options) {
  check_positive("attention", *this, "its number of heads", heads);
  if (width % heads != 0)
    fail("attention {}: width {} is not divisible by {} heads; choose a width that is a multiple of the heads", display_name(),
         width, heads);
  if (!(options.dropout >= 0 && options.dropout <= 1))
    fail("attention {}: dropout is {}, but must lie in [0, 1]", display_name(), options.dropout);
  if (options.dropout > 0) random_key = Buffer(*this, "random_key", key_tensor(key().bits()));
}

Tensor SelfAttention::forward(const Tensor& x) const { return to_compute_dtype(forward_unrounded(x)); }

Tensor SelfAttention::forward_unrounded(const Tensor& x) const {
  check_sequence("attention", *this, x);
  check_features("attention", *this, x, width_);
  int64_t batch = x.dim(0), length = x.dim(1), head_dim = width_ / heads_;
  Tensor packed = qkv(x).reshape({batch, length, 3, heads_, head_dim});
  auto part = [&](int64_t i) { return packed.slice(2, i, i + 1).reshape({batch, length, heads_, head_dim}); };
  Tensor q = part(0), k = part(1), v = part(2);  // [B,T,H,D]
  if (options_.rope) {
    q = (*options_.rope)(q);
    k = (*options_.rope)(k);
  }
  AttentionOptions how{.causal = options_.causal};
  if (training() && options_.dropout > 0) how.dropout = options_.dropout, how.key = random_key;
  return out.unrounded(attention(q, k, v, how).reshape({batch, length, width_}));
}

int64_t swiglu_width(int64_t width) { return static_cast<int64_t>(std::nearbyint(8.0 * static_cast<double>(width) / 3.0)); }

FeedForward::FeedForward(Module& parent, const std::string& name, int64_t width, int64_t hidden,
                         const FeedForwardOptions& options)
    : Module(parent, name), activation_(options.activation),
      gate_(options.gated ? std::make_unique<Linear>(*this, "gate", width, hidden,
                                                     LinearOptions{.bias = options.bias, .weight_init = options.weight_init})
                          : nullptr),
      up_(*this, "up", width, hidden, {.bias = options.bias, .weight_init = options.weight_init}),
      down_(*this, "down", hidden, width, {.bias = options.bias, .weight_init = options.weight_init}) {}

Tensor FeedForward::forward(const Tensor& x) const { return to_compute_dtype(forward_unrounded(x)); }

Tensor FeedForward::forward_unrounded(const Tensor& x) const {
  if (!gate_) return down_.unrounded(activate(activation_, up_(x)));
  Tensor gate = activate(activation_, in_f32((*gate_)(x)));
  Tensor up = in_f32(up_(x));  // on a line of its own: the order of the trace must not depend on the C++ compiler
  return down_.unrounded(to_compute_dtype(gate * up));
}

TransformerBlock::TransformerBlock(Module& parent, const std::string& name, const LayerFactory& attention,
                                   const LayerFactory& feed_forward, const LayerFactory& norm, bool pre_norm, double dropout)
    : Module(parent, name), pre_norm_(pre_norm), norm1_(norm(*this, "norm1")), attention_(attention(*this, "attention")),
      norm2_(norm(*this, "norm2")), feed_forward_(feed_forward(*this, "feed_forward")) {
  if (dropout == 0) return;
  dropout1_ = std::make_unique<Dropout>(*this, "dropout1", dropout);
  dropout2_ = std::make_unique<Dropout>(*this, "dropout2", dropout);
}

Tensor TransformerBlock::forward(const Tensor& x) const {
  const Module &norm1 = *norm1_, &norm2 = *norm2_;
  // The residual stream is kept in the compute dtype; each sum goes into it rounded once.
  auto add = [](const Tensor& stream, const Module& branch, const std::unique_ptr<Dropout>& drop, const Tensor& input) {
    Tensor more = branch.unrounded(input);
    if (drop) more = (*drop)(more);
    return rounded_like(stream, in_f32(stream) + in_f32(more));
  };
  if (pre_norm_) {
    Tensor h = add(x, *attention_, dropout1_, norm1(x));
    return add(h, *feed_forward_, dropout2_, norm2(h));
  }
  Tensor h = norm1(add(x, *attention_, dropout1_, x));
  return norm2(add(h, *feed_forward_, dropout2_, h));
}

}  // namespace ws
