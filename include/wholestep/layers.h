// Layers. Each takes (parent, name, sizes..., options), names its parameters as torch does (weight, bias), and checks its
// input: an Error names the layer's path, the shapes and the fix. C is features, T positions, B the batch, H heads, D features a head.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "wholestep/module.h"

namespace ws {

// ---- activations ----

enum class Activation : uint8_t { relu, tanh, sigmoid, gelu, gelu_tanh, silu };
Tensor activate(Activation kind, const Tensor& x);
std::string_view name_of(Activation kind);
/// Throws an Error that lists the known words.
Activation activation_from_name(std::string_view name);

/// An elementwise activation as a layer.
template <Activation kind>
class ActivationLayer final : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) const override { return activate(kind, x); }
};
using ReLU = ActivationLayer<Activation::relu>;
using Tanh = ActivationLayer<Activation::tanh>;
using Sigmoid = ActivationLayer<Activation::sigmoid>;
using GELU = ActivationLayer<Activation::gelu>;           ///< exact (erf)
using GELUTanh = ActivationLayer<Activation::gelu_tanh>;  ///< the tanh form
using SiLU = ActivationLayer<Activation::silu>;

/// x where above 0, else slope*x.
class LeakyReLU final : public Module {
 public:
  LeakyReLU(Module& parent, const std::string& name, double slope = 0.01);
  Tensor forward(const Tensor& x) const override;

 private:
  double slope_;
};

/// log(1 + exp(x)), as max(x, 0) + log(1 + exp(-|x|)): it does not overflow.
class Softplus final : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) const override;
};

/// x [N, ..] -> [N, all the rest].
class Flatten final : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) const override;
};

// ---- linear maps and tables ----

struct LinearOptions {
  bool bias = true;
  Initializer weight_init = init::truncated_lecun_normal();
};

/// x [.., in] -> x * weight [in, out] + bias [out].
class Linear final : public Module {
 public:
  Linear(Module& parent, const std::string& name, int64_t in, int64_t out, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Tensor forward_unrounded(const Tensor& x) const override;
  Parameter weight, bias;  // bias undefined where the options say none
};

/// ids i32 [..] -> rows of weight [count, width]. An id outside [0, count) stops the step with an error.
class Embedding final : public Module {
 public:
  Embedding(Module& parent, const std::string& name, int64_t count, int64_t width,
            const Initializer& initializer = init::normal(0.02));
  Tensor forward(const Tensor& ids) const override;
  Parameter weight;
};

// ---- norms: features are the last axis; in fp32 ----

/// (x - mean) / sqrt(variance + eps) * weight + bias, variance of the differences (two passes), biased.
class LayerNorm final : public Module {
 public:
  LayerNorm(Module& parent, const std::string& name, int64_t width, double eps = 1e-5);
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;

 private:
  double eps_;
};

/// x / sqrt(mean(x^2) + eps) * weight.
class RMSNorm final : public Module {
 public:
  RMSNorm(Module& parent, const std::string& name, int64_t width, double eps = 1e-6);
  Tensor forward(const Tensor& x) const override;
  Parameter weight;

 private:
  double eps_;
};

struct BatchNormOptions {
  double momentum = 0.1;  ///< weight of the new value in the running statistics
  double eps = 1e-5;
  bool unbiased_running = true;  ///< what is stored; the batch itself is always normalised with the biased variance
};

/// Normalises each feature (last axis) over all other axes: by the batch's statistics in training, by the running ones else.
class BatchNorm final : public Module {
 public:
  BatchNorm(Module& parent, const std::string& name, int64_t width, const BatchNormOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;
  Buffer running_mean, running_var;

 private:
  BatchNormOptions options_;
};

/// Groups of C/groups neighbouring features; each sample and group is normalised over its features and all positions (Wu and He
/// 2018), by the biased variance, then * weight [C] + bias [C]. x [N, positions.., C]. The groups must divide C.
class GroupNorm final : public Module {
 public:
  GroupNorm(Module& parent, const std::string& name, int64_t groups, int64_t width, double eps = 1e-5);
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;

 private:
  int64_t groups_;
  double eps_;
};

/// Each sample and feature normalised over its positions (Ulyanov et al. 2016): GroupNorm with a group a feature, and no weight or
/// bias unless `affine`. x [N, positions.., C] with at least two positions, since one has no variance.
class InstanceNorm final : public Module {
 public:
  InstanceNorm(Module& parent, const std::string& name, int64_t width, double eps = 1e-5, bool affine = false);
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;  // undefined unless affine

 private:
  int64_t width_;
  double eps_;
};

// ---- convolution and pooling: features are the last dim ----

struct ConvOptions {
  int64_t stride = 1;
  int64_t padding = 0;  ///< zeros on each side
  bool bias = true;
  Initializer weight_init = init::he_normal();
  int64_t dilation = 1;  ///< distance of the places that a window reads
  /// The features are cut into so many neighbouring groups; outputs of group g read inputs of group g only (in: depthwise). Divides both.
  int64_t groups = 1;
};

/// x [N, L, in] -> [N, (L + 2*padding - dilation*(kernel - 1) - 1)/stride + 1, out]:
/// y[l] = sum over k of x[l*stride + k*dilation - padding] * weight[k] + bias, weight [kernel, in/groups, out]. Made of slices and one
/// matrix product, of groups one batched product. An Error where the window exceeds the padded input.
class Conv1D final : public Module {
 public:
  Conv1D(Module& parent, const std::string& name, int64_t in, int64_t out, int64_t kernel, const ConvOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;

 private:
  ConvOptions options_;
};

/// The same in two dims: x [N, H, W, in] -> [N, H', W', out], weight [kernel, kernel, in/groups, out].
class Conv2D final : public Module {
 public:
  Conv2D(Module& parent, const std::string& name, int64_t in, int64_t out, int64_t kernel, const ConvOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Parameter weight, bias;

 private:
  ConvOptions options_;
};

enum class Pool : uint8_t { max, average };

/// x [N, positions.., C], one or two dims of positions, kernel positions a dim -> [N, (positions + 2*padding - kernel)/stride + 1.., C].
/// The greatest or the mean of each window; what is left over at the end is not read. Equal maxima share the gradient. stride 0: the
/// kernel. Padding, at most half the kernel, adds places that no maximum is taken from, and that count as 0 in a mean (as in torch).
template <Pool kind>
class PoolLayer final : public Module {
 public:
  PoolLayer(Module& parent, const std::string& name, int64_t kernel, int64_t stride = 0, int64_t padding = 0);
  Tensor forward(const Tensor& x) const override;

 private:
  int64_t kernel_, stride_, padding_;
};
using MaxPool = PoolLayer<Pool::max>;
using AveragePool = PoolLayer<Pool::average>;

// ---- dropout ----

/// Zeroes each element with probability p and multiplies the others by 1/(1-p) (Srivastava et al. 2014, the inverted form). p = 0
/// is x itself; p = 1 gives zeros, with zero gradient. `key` (u32 [2], see draw_bits) moves on at each call: a new mask each time.
/// An Error unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p, Variable key);

/// dropout in training mode, nothing in evaluation mode, which does not move the key either. x of any shape. The key is a buffer:
/// it begins at the layer's own key, so that masks depend on the model's key and the layer's name, and checkpoints keep it.
class Dropout final : public Module {
 public:
  Dropout(Module& parent, const std::string& name, double p = 0.5);
  Tensor forward(const Tensor& x) const override;
  Buffer random_key;

 private:
  double p_;
};

// ---- attention ----

enum class RopePairs : uint8_t { interleaved, half_split };  ///< (2i, 2i+1), or (i, i + D/2)

/// Rotary position embedding (Su et al. 2021): pair i at position t turns by t * base^(-2i/D). A light handle: copies share
/// the tables, so that all blocks of a model read the same ones.
class Rope {
 public:
  Rope(int64_t max_len, int64_t head_dim, RopePairs pairs = RopePairs::interleaved, double base = 10000);
  /// x [B,T,H,D] -> same. Error where T exceeds max_len.
  Tensor operator()(const Tensor& x) const;

 private:
  RopePairs pairs_;
  Tensor cos_, sin_;  // interleaved: [max_len, 1, D], the sine signed -, +; half-split: [max_len, 1, D/2]
};

struct SelfAttentionOptions {
  bool causal = false;
  bool bias = false;   ///< of both projections
  double dropout = 0;  ///< of the attention weights, while training
  std::optional<Rope> rope = {};
  Initializer weight_init = init::truncated_lecun_normal();
};

/// x [B,T,C] -> [B,T,C]. One fused projection `qkv` of weight [C, 3C] (q, k, v side by side, each H x D), then `out`.
class SelfAttention final : public Module {
 public:
  SelfAttention(Module& parent, const std::string& name, int64_t width, int64_t heads, const SelfAttentionOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Tensor forward_unrounded(const Tensor& x) const override;
  Linear qkv, out;
  Buffer random_key;  // only where there is dropout

 private:
  int64_t width_, heads_;
  SelfAttentionOptions options_;
};

// ---- feed-forward ----

struct FeedForwardOptions {
  Activation activation = Activation::relu;
  bool gated = false;  ///< down(activation(gate(x)) * up(x)) in place of down(activation(up(x))); SwiGLU with silu
  bool bias = true;
  Initializer weight_init = init::truncated_lecun_normal();
};

/// The width that gives a gated feed-forward the parameters of an ungated one of 4*width: round(8*width/3).
int64_t swiglu_width(int64_t width);

/// x [.., C] -> [.., C] through `hidden` features.
class FeedForward final : public Module {
 public:
  FeedForward(Module& parent, const std::string& name, int64_t width, int64_t hidden, const FeedForwardOptions& options = {});
  Tensor forward(const Tensor& x) const override;
  Tensor forward_unrounded(const Tensor& x) const override;

 private:
  Activation activation_;
  std::unique_ptr<Linear> gate_;  // only where gated
  Linear up_, down_;
};

// ---- transformer block ----

enum class NormKind : uint8_t { layer, rms };
/// A LayerNorm or RMSNorm.
LayerFactory norm_layer(NormKind kind, int64_t width, double eps);

/// attention and feed_forward with a norm and a residual each:
/// pre-norm x + drop(f(norm(x))), post-norm norm(x + drop(f(x))), drop being Dropout(dropout), absent where that is 0.
class TransformerBlock final : public Module {
 public:
  TransformerBlock(Module& parent, const std::string& name, const LayerFactory& attention, const LayerFactory& feed_forward,
                   const LayerFactory& norm, bool pre_norm, double dropout = 0);
  Tensor forward(const Tensor& x) const override;

 private:
  bool pre_norm_;
  std::unique_ptr<Module> norm1_, attention_, norm2_, feed_forward_;
  std::unique_ptr<Dropout> dropout1_, dropout2_;  // only where there is any
};

// ---- positions and pooling ----

/// x [B,T,C] -> x + table[0..T): sine at even, cosine at odd columns of pair frequency 10000^(-2i/C). Not trained.
class SinusoidalPositions final : public Module {
 public:
  SinusoidalPositions(Module& parent, const std::string& name, int64_t max_len, int64_t width);
  Tensor forward(const Tensor& x) const override;

 private:
  Tensor table_;  // [max_len, C]
};

/// x [B,T,C] -> x + weight[0..T), trained.
class LearnedPositions final : public Module {
 public:
  LearnedPositions(Module& parent, const std::string& name, int64_t max_len, int64_t width,
                   const Initializer& initializer = init::normal(0.02));
  Tensor forward(const Tensor& x) const override;
  Parameter weight;
};

/// x [B,T,C] -> [B,C].
class MeanOverTime final : public Module {
 public:
  using Module::Module;
  Tensor forward(const Tensor& x) const override;
};

}  // namespace ws
