// Norms; features are the last axis. Written as reductions of rows and elementwise work, so that each becomes one kernel.
#include "api/layer_checks.h"
#include "api/rounding.h"
#include "wholestep/layers.h"

namespace ws {

LayerNorm::LayerNorm(Module& parent, const std::string& name, int64_t width, double eps) : Module(parent, name), eps_(eps) {
  check_positive("layer norm", *this, "its width", width);
  weight = Parameter(*this, "weight", Shape{width}, init::ones());
  bias = Parameter(*this, "bias", Shape{width}, init::zeros());
}

Tensor LayerNorm::forward(const Tensor& given) const {
  check_features("layer norm", *this, given, weight.value().size());
  Tensor x = in_f32(given);
  Tensor centred = x - x.mean({-1}, true);
  Tensor variance = square(centred).mean({-1}, true);
  return rounded_like(given, centred * rsqrt(variance + eps_) * weight + bias);
}

RMSNorm::RMSNorm(Module& parent, const std::string& name, int64_t width, double eps) : Module(parent, name), eps_(eps) {
  check_positive("rms norm", *this, "its width", width);
  weight = Parameter(*this, "weight", Shape{width}, init::ones());
}

Tensor RMSNorm::forward(const Tensor& given) const {
  check_features("rms norm", *this, given, weight.value().size());
  Tensor x = in_f32(given);
  return rounded_like(given, x * rsqrt(square(x).mean({-1}, true) + eps_) * weight);
}

BatchNorm::BatchNorm(Module& parent, const std::string& name, int64_t width, const BatchNormOptions& options)
    : Module(parent, name), options_(options) {
  check_positive("batch norm", *this, "its width", width);
  if (!(options.momentum >= 0 && options.momentum <= 1))
    fail("batch norm {}: momentum {} must lie in [0, 1]", display_name(), options.momentum);
  weight = Parameter(*this, "weight", Shape{width}, init::ones());
  bias = Parameter(*this, "bias", Shape{width}, init::zeros());
  running_mean = Buffer(*this, "running_mean", Tensor::zeros({width}));
  running_var = Buffer(*this, "running_var", Tensor::ones({width}));
}

Tensor BatchNorm::forward(const Tensor& given) const {
  int64_t width = weight.value().size();
  check_features("batch norm", *this, given, width, 2);
  Tensor x = in_f32(given);
  if (!training()) return rounded_like(given, (x - running_mean) * rsqrt(running_var + options_.eps) * weight + bias);
  int64_t count = x.size() / width;  // values a feature
  if (count < 2)
    fail(
        "batch norm {}: a batch of shape {} has one value a feature, whose variance says nothing; use larger batches or "
        "drop_last",
        display_name(), x.shape().str());
  std::vector<int64_t> axes;
  for (int64_t axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  Tensor mean = x.mean(axes);
  Tensor centred = x - mean;
  Tensor variance = square(centred).mean(axes);
  double keep = 1 - options_.momentum, take = options_.momentum;
  double stored = options_.unbiased_running ? static_cast<double>(count) / static_cast<double>(count - 1) : 1.0;
  Buffer new_mean = running_mean, new_var = running_var;  // handles to the same slots
  Tensor kept_mean = running_mean * keep, kept_var = running_var * keep;
  new_mean.set((kept_mean + mean.detach() * take).detach());
  new_var.set((kept_var + variance.detach() * (take * stored)).detach());
  return rounded_like(given, centred * rsqrt(variance + options_.eps) * weight + bias);
}

namespace {

/// x [N, positions.., C] as [N, P, groups, C/groups], normalised over axes 1 and 3, and back.
Tensor normalise_groups(const Tensor& x, int64_t groups, double eps) {
  int64_t samples = x.dim(0), width = x.shape().back();
  Tensor parts = x.reshape({samples, -1, groups, width / groups});
  Tensor centred = parts - parts.mean({1, 3}, true);
  Tensor variance = square(centred).mean({1, 3}, true);
  return (centred * rsqrt(variance + eps)).reshape(x.shape());
}

}  // namespace

GroupNorm::GroupNorm(Module& parent, const std::string& name, int64_t groups, int64_t width, double eps)
    : Module(parent, name), groups_(groups), eps_(eps) {
  check_positive("group norm", *this, "its number of groups", groups);
  check_positive("group norm", *this, "its width", width);
  if (width % groups != 0)
    fail("group norm {}: width {} is not divisible by {} groups; choose a divisor of the width", display_name(), width, groups);
  weight = Parameter(*this, "weight", Shape{width}, init::ones());
  bias = Parameter(*this, "bias", Shape{width}, init::zeros());
}

Tensor GroupNorm::forward(const Tensor& x) const {
  check_features("group norm", *this, x, weight.value().size(), 2);
  if (x.dim(0) > 0 && x.size() / x.dim(0) / groups_ < 2)
    fail("group norm {}: input {} has one value a group, whose variance says nothing; use fewer groups", display_name(),
         x.shape().str());
  return rounded_like(x, normalise_groups(in_f32(x), groups_, eps_) * weight + bias);
}

InstanceNorm::InstanceNorm(Module& parent, const std::string& name, int64_t width, double eps, bool affine)
    : Module(parent, name), width_(width), eps_(eps) {
  check_positive("instance norm", *this, "its width", width);
  if (!affine) return;
  weight = Parameter(*this, "weight", Shape{width}, init::ones());
  bias = Parameter(*this, "bias", Shape{width}, init::zeros());
}

Tensor InstanceNorm::forward(const Tensor& x) const {
  check_features("instance norm", *this, x, width_, 3);
  if (x.dim(0) > 0 && x.size() / x.dim(0) / width_ < 2)
    fail("instance norm {}: input {} has one position a feature, whose variance says nothing", display_name(), x.shape().str());
  Tensor y = normalise_groups(in_f32(x), width_, eps_);
  return rounded_like(x, weight.defined() ? y * weight + bias : y);
}

LayerFactory norm_layer(NormKind kind, int64_t width, double eps) {
  return kind == NormKind::layer ? layer<LayerNorm>(width, eps) : layer<RMSNorm>(width, eps);
}

}  // namespace ws
