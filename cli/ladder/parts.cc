#include "ladder/parts.h"

#include <cmath>
#include <limits>

#include "api/json_config.h"

namespace ws::cli {
namespace {

struct Sizes {
  int64_t width = 0, heads = 0, hidden = 0, max_len = 0;
  bool causal = false, gated = false, bias = false, attention_bias = false;
  Activation activation = Activation::relu;
  std::optional<Rope> rope;
  Initializer attention_init = init::truncated_lecun_normal(), feed_forward_init = init::truncated_lecun_normal();
};

Sizes sizes_of(const Task& task) {
  Sizes s;
  if (task.description["type"] == "gpt") {
    auto c = gpt_config_from_json(task.description, task.name);
    s.width = c.width, s.heads = c.heads, s.max_len = c.max_len, s.causal = true, s.gated = c.swiglu;
    s.bias = s.attention_bias = c.bias;
    s.hidden = c.swiglu ? swiglu_width(c.width) : 4 * c.width;
    s.activation = c.swiglu ? Activation::silu : c.gelu_tanh ? Activation::gelu_tanh : Activation::gelu;
    if (c.pos == models::PositionKind::rope) s.rope = Rope(c.max_len, c.width / c.heads, c.rope_pairs);
  } else {
    auto c = encoder_config_from_json(task.description, task.name);
    s.width = c.width, s.heads = c.heads, s.max_len = c.max_len, s.causal = c.causal, s.hidden = c.hidden, s.bias = true;
    s.attention_init = init::fan_in_normal(), s.feed_forward_init = init::he_normal();
  }
  return s;
}

Tensor through_bf16(const Tensor& x) { return x.cast(DType::bf16).cast(DType::f32); }

class StorageCast final : public Module {
 public:
  StorageCast(Module& parent, const std::string& name, const LayerFactory& inner)
      : Module(parent, name), inner_(inner(*this, "inner")) {}
  Tensor forward(const Tensor& x) const override {
    const Module& inner = *inner_;
    return through_bf16(inner(through_bf16(x)));
  }

 private:
  std::unique_ptr<Module> inner_;
};

// q, k, v [B,T,H,D] from one projection, and what comes after; derived classes say what lies between.
class AttentionBase : public Module {
 public:
  AttentionBase(Module& parent, const std::string& name, const Sizes& sizes)
      : Module(parent, name), sizes_(sizes),
        qkv_(*this, "qkv", sizes.width, 3 * sizes.width, {.bias = sizes.attention_bias, .weight_init = sizes.attention_init}),
        out_(*this, "out", sizes.width, sizes.width, {.bias = sizes.attention_bias, .weight_init = sizes.attention_init}) {}
  Tensor forward(const Tensor& x) const override {
    int64_t batch = x.dim(0), length = x.dim(1), size = sizes_.width / sizes_.heads;
    Tensor packed = qkv_(x).reshape({batch, length, 3, sizes_.heads, size});
    auto part = [&](int64_t i) { return packed.slice(2, i, i + 1).reshape({batch, length, sizes_.heads, size}); };
    Tensor q = part(0), k = part(1), v = part(2);
    return out_(attend(q, k, v).reshape({batch, length, sizes_.width}));
  }

 protected:
  virtual Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const = 0;
  Sizes sizes_;

 private:
  Linear qkv_, out_;
};

class LeakyAttention final : public AttentionBase {
 public:
  using AttentionBase::AttentionBase;

 protected:
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const override {
    ComputeDType fp32(DType::f32);  // as where dtypes are promoted: q and k come out of the rotation in fp32, so v is widened too
    return attention((*sizes_.rope)(q.cast(DType::f32)), (*sizes_.rope)(k.cast(DType::f32)), v.cast(DType::f32), sizes_.causal);
  }
};

class ComposedAttention final : public AttentionBase {
 public:
  ComposedAttention(Module& parent, const std::string& name, const Sizes& sizes) : AttentionBase(parent, name, sizes) {
    if (!sizes.causal) return;
    auto n = static_cast<size_t>(sizes.max_len);
    std::vector<float> values(n * n, 0);
    for (size_t t = 0; t < n; ++t)
      for (size_t s = t + 1; s < n; ++s) values[t * n + s] = -std::numeric_limits<float>::infinity();
    mask_ = Tensor::from(values, {sizes.max_len, sizes.max_len});
  }

 protected:
  Tensor attend(const Tensor& q_given, const Tensor& k_given, const Tensor& v) const override {
    Tensor q = sizes_.rope ? (*sizes_.rope)(q_given) : q_given, k = sizes_.rope ? (*sizes_.rope)(k_given) : k_given;
    int64_t length = q.dim(1);
    auto by_head = [](const Tensor& x) { return x.transpose({0, 2, 1, 3}); };  // [B,H,T,D]
    Tensor scores = matmul(by_head(q), by_head(k), false, true) * (1 / std::sqrt(static_cast<double>(q.dim(3))));
    if (mask_.defined()) scores = scores + mask_.slice(0, 0, length).slice(1, 0, length);
    return matmul(softmax(scores), by_head(v)).transpose({0, 2, 1, 3}).contiguous();
  }

 private:
  Tensor mask_;  // [T,T]: 0, or -infinity where a key comes later
};

// The nearest number of four significant bits, or a multiple of 2^-9 below 2^-6 (Micikevicius et al. 2022, E4M3), after scaling so that the
// largest is 448. The gradient passes as if nothing was rounded.
Tensor through_fp8(const Tensor& x) {
  Tensor plain = x.detach();
  Tensor largest = maximum(plain.max(), -((-plain).max()));
  Tensor scale = 448.0 / maximum(largest, Tensor(1e-30));
  Tensor scaled = plain * scale;
  constexpr double kSplit = (1 << 20) + 1, kShift = 1.5 * (1 << 14);
  Tensor wide = scaled * kSplit;
  Tensor normal = wide - (wide - scaled);
  Tensor tiny = (scaled + kShift) - kShift;
  Tensor rounded = where(lt(maximum(scaled, -scaled), Tensor(1.0 / 64).broadcast_to(scaled.shape())), tiny, normal) / scale;
  return x + (rounded - plain);
}

class Fp8FeedForward final : public Module {
 public:
  Fp8FeedForward(Module& parent, const std::string& name, const Sizes& s)
      : Module(parent, name), activation_(s.activation),
        gate_(s.gated ? std::make_unique<Linear>(*this, "gate", s.width, s.hidden,
                                                 LinearOptions{.bias = s.bias, .weight_init = s.feed_forward_init})
                      : nullptr),
        up_(*this, "up", s.width, s.hidden, {.bias = s.bias, .weight_init = s.feed_forward_init}),
        down_(*this, "down", s.hidden, s.width, {.bias = s.bias, .weight_init = s.feed_forward_init}) {}
  Tensor forward(const Tensor& x) const override {
    Tensor input = through_fp8(x);
    Tensor up = product(input, up_);
    if (!gate_) return product(through_fp8(activate(activation_, up)), down_);
    Tensor gate = activate(activation_, product(input, *gate_));
    return product(through_fp8(gate * up), down_);
  }

 private:
  static Tensor product(const Tensor& x, const Linear& linear) {
    Tensor y = matmul(x, through_fp8(linear.weight));
    return linear.bias.defined() ? y + linear.bias : y;
  }
  Activation activation_;
  std::unique_ptr<Linear> gate_;
  Linear up_, down_;
};

template <class Layer>
LayerFactory part(const Sizes& sizes) {
  return [sizes](Module& parent, const std::string& name) -> std::unique_ptr<Module> {
    return std::make_unique<Layer>(parent, name, sizes);
  };
}

}  // namespace

models::Parts storage_cast_parts(const Task& task) {
  Sizes s = sizes_of(task);
  SelfAttentionOptions attention{.causal = s.causal, .bias = s.attention_bias, .rope = s.rope, .weight_init = s.attention_init};
  FeedForwardOptions feed{.activation = s.activation, .gated = s.gated, .bias = s.bias, .weight_init = s.feed_forward_init};
  auto cast = [](LayerFactory inner) -> LayerFactory {
    return [inner](Module& parent, const std::string& name) -> std::unique_ptr<Module> {
      return std::make_unique<StorageCast>(parent, name, inner);
    };
  };
  return {cast(layer<SelfAttention>(s.width, s.heads, attention)), cast(layer<FeedForward>(s.width, s.hidden, feed))};
}

models::Parts leaky_rope_parts(const Task& task) {
  Sizes s = sizes_of(task);
  if (!s.rope) return {};
  return {.attention = part<LeakyAttention>(s)};
}

models::Parts composed_attention_parts(const Task& task) { return {.attention = part<ComposedAttention>(sizes_of(task))}; }

models::Parts fp8_parts(const Task& task) { return {.feed_forward = part<Fp8FeedForward>(sizes_of(task))}; }

}  // namespace ws::cli
