// Linear, Embedding, Flatten and the activations.
#include <array>

#include "api/layer_checks.h"
#include "api/rounding.h"
#include "wholestep/layers.h"

namespace ws {
namespace {

struct ActivationRow {
  Activation kind;
  std::string_view name;
  Tensor (*function)(const Tensor&);
};
constexpr std::array kActivations = {
    ActivationRow{Activation::relu, "relu", [](const Tensor& x) { return relu(x); }},
    ActivationRow{Activation::tanh, "tanh", [](const Tensor& x) { return tanh(x); }},
    ActivationRow{Activation::sigmoid, "sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    ActivationRow{Activation::gelu, "gelu", [](const Tensor& x) { return gelu(x); }},
    ActivationRow{Activation::gelu_tanh, "gelu_tanh", [](const Tensor& x) { return gelu_tanh(x); }},
    ActivationRow{Activation::silu, "silu", [](const Tensor& x) { return silu(x); }},
};

}  // namespace

Tensor activate(Activation kind, const Tensor& x) { return kActivations[static_cast<size_t>(kind)].function(x); }

std::string_view name_of(Activation kind) { return kActivations[static_cast<size_t>(kind)].name; }

Activation activation_from_name(std::string_view name) {
  std::string known;
  for (const ActivationRow& row : kActivations) {
    if (row.name == name) return row.kind;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail("unknown activation '{}'; there are {}", name, known);
}

LeakyReLU::LeakyReLU(Module& parent, const std::string& name, double slope) : Module(parent, name), slope_(slope) {}

Tensor LeakyReLU::forward(const Tensor& x) const { return where(lt(Tensor::full({}, 0, x.dtype()), x), x, x * slope_); }

Tensor Softplus::forward(const Tensor& x) const {
  Tensor wide = in_f32(x);
  Tensor y =
      maximum(wide, Tensor::full({}, 0, wide.dtype())) + log1p(exp(-abs(wide)));  // at 0 the maximum's half gradient is right
  return rounded_like(x, y);
}

Tensor Flatten::forward(const Tensor& x) const {
  if (x.rank() < 1) fail("flatten {}: input {} has no dims", display_name(), x.shape().str());
  int64_t rest = 1;
  for (int axis = 1; axis < x.rank(); ++axis) rest *= x.dim(axis);
  return x.reshape(Shape{x.dim(0), rest});
}

Linear::Linear(Module& parent, const std::string& name, int64_t in, int64_t out, const LinearOptions& options)
    : Module(parent, name) {
  check_positive("dense layer", *this, "its input size", in);
  check_positive("dense layer", *this, "its output size", out);
  weight = Parameter(*this, "weight", Shape{in, out}, options.weight_init);
  if (options.bias) bias = Parameter(*this, "bias", Shape{out}, init::zeros());
}

Tensor Linear::forward(const Tensor& x) const { return to_compute_dtype(forward_unrounded(x)); }

Tensor Linear::forward_unrounded(const Tensor& x) const {
  check_features("dense layer", *this, x, weight.value().dim(0), 2);
  Tensor y = matmul(x, weight);
  return bias.defined() ? y + bias : y;
}

Embedding::Embedding(Module& parent, const std::string& name, int64_t count, int64_t width, const Initializer& initializer)
    : Module(parent, name) {
  check_positive("embedding", *this, "its number of rows", count);
  check_positive("embedding", *this, "its width", width);
  weight = Parameter(*this, "weight", Shape{count, width}, initializer);
}

Tensor Embedding::forward(const Tensor& ids) const {
  if (ids.dtype() != DType::i32) fail("embedding {}: ids are {}, but must be i32", display_name(), name_of(ids.dtype()));
  // Rounding and picking rows exchange; the smaller side is rounded.
  Tensor table = weight.value().size() <= ids.size() * weight.value().dim(1) ? to_compute_dtype(weight) : weight.value();
  return to_compute_dtype(gather(table, ids, "id of embedding " + display_name()));
}

}  // namespace ws
