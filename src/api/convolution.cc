// Convolution and pooling from slices: position k of every window is one strided slice of the input. A convolution puts the slices
// side by side as features and multiplies once by the whole kernel (im2col).
#include <limits>

#include "api/layer_checks.h"
#include "api/rounding.h"
#include "tensor/dispatch.h"
#include "wholestep/layers.h"

namespace ws {
namespace {

struct Window {
  const char* layer;
  int64_t kernel, stride, dilation = 1;
  int64_t extent() const { return dilation * (kernel - 1) + 1; }
};

/// x [N, positions.., C]: for each place in the window, in row-major order, [N, windows.., C].
std::vector<Tensor> window_slices(const Module& module, const Tensor& x, const Window& w) {
  std::vector<Tensor> slices = {x};
  for (int axis = 1; axis + 1 < x.rank(); ++axis) {
    int64_t room = x.dim(axis) - w.extent();
    if (room < 0)
      fail("{} {}: the window of {} positions exceeds dim {} of {}; pad it, or use a smaller window", w.layer,
           module.display_name(), w.extent(), axis, x.shape().str());
    int64_t last = room / w.stride * w.stride;
    std::vector<Tensor> finer;
    for (const Tensor& s : slices)
      for (int64_t k = 0; k < w.kernel; ++k) finer.push_back(s.slice(axis, k * w.dilation, k * w.dilation + last + 1, w.stride));
    slices = std::move(finer);
  }
  return slices;
}

Tensor pad_positions(const Tensor& x, int64_t padding) {
  if (padding == 0) return x;
  std::vector<int64_t> edges(static_cast<size_t>(x.rank()), 0), none = edges;
  for (size_t axis = 1; axis + 1 < edges.size(); ++axis) edges[axis] = padding;
  return apply_op("pad", {&x}, {{"low", edges}, {"high", edges}, {"interior", none}});
}

void check_convolution(const Module& module, int64_t in, int64_t out, int64_t kernel, const ConvOptions& o) {
  check_positive("convolution", module, "its input features", in);
  check_positive("convolution", module, "its output features", out);
  check_positive("convolution", module, "its kernel", kernel);
  check_positive("convolution", module, "its stride", o.stride);
  check_positive("convolution", module, "its dilation", o.dilation);
  check_positive("convolution", module, "its groups", o.groups);
  if (in % o.groups != 0 || out % o.groups != 0)
    fail("convolution {}: {} groups must divide its {} input and {} output features", module.display_name(), o.groups, in, out);
  if (o.padding < 0) fail("convolution {}: its padding is {}, but must be at least 0", module.display_name(), o.padding);
}

/// columns [rows, places, in] times weight [places.., in/groups, out], group by group: a batched product -> [rows, out].
Tensor grouped_product(const Tensor& columns, const Tensor& weight, int64_t groups) {
  int64_t rows = columns.dim(0), places = columns.dim(1), in = columns.dim(2) / groups, out = weight.shape().back() / groups;
  Tensor a = columns.reshape({rows, places, groups, in}).transpose({2, 0, 1, 3}).reshape({groups, rows, places * in});
  Tensor b = weight.reshape({places * in, groups, out}).transpose({1, 0, 2});
  return matmul(a, b).transpose({1, 0, 2}).reshape({rows, groups * out});
}

Tensor convolve(const Module& module, const Tensor& x, const Tensor& weight, const Parameter& bias, const ConvOptions& o) {
  int rank = weight.rank();
  if (x.rank() != rank)
    fail("convolution {}: input {} must have {} dims: batch, positions, features", module.display_name(), x.shape().str(), rank);
  int64_t in = weight.dim(rank - 2) * o.groups, out = weight.dim(rank - 1);
  check_features("convolution", module, x, in);
  Tensor narrow = to_compute_dtype(x);  // before its elements are repeated
  std::vector<Tensor> slices =
      window_slices(module, pad_positions(narrow, o.padding), {"convolution", weight.dim(0), o.stride, o.dilation});
  Tensor columns = slices.size() == 1 ? slices[0] : concatenate(slices, -1);  // [N, windows.., kernel^d * in]
  int64_t features = columns.shape().back();
  std::vector<int64_t> dims(columns.shape().begin(), columns.shape().end());
  dims.back() = out;
  Tensor product = o.groups == 1 ? matmul(columns.reshape({-1, features}), weight.reshape({features, out}))
                                 : grouped_product(columns.reshape({-1, features / in, in}), weight, o.groups);
  Tensor y = product.reshape(Shape(dims));
  return to_compute_dtype(bias.defined() ? y + bias : y);
}

}  // namespace

Conv1D::Conv1D(Module& parent, const std::string& name, int64_t in, int64_t out, int64_t kernel, const ConvOptions& options)
    : Module(parent, name), options_(options) {
  check_convolution(*this, in, out, kernel, options);
  weight = Parameter(*this, "weight", Shape{kernel, in / options.groups, out}, options.weight_init);
  if (options.bias) bias = Parameter(*this, "bias", Shape{out}, init::zeros());
}

Tensor Conv1D::forward(const Tensor& x) const { return convolve(*this, x, weight, bias, options_); }

Conv2D::Conv2D(Module& parent, const std::string& name, int64_t in, int64_t out, int64_t kernel, const ConvOptions& options)
    : Module(parent, name), options_(options) {
  check_convolution(*this, in, out, kernel, options);
  weight = Parameter(*this, "weight", Shape{kernel, kernel, in / options.groups, out}, options.weight_init);
  if (options.bias) bias = Parameter(*this, "bias", Shape{out}, init::zeros());
}

Tensor Conv2D::forward(const Tensor& x) const { return convolve(*this, x, weight, bias, options_); }

template <Pool kind>
PoolLayer<kind>::PoolLayer(Module& parent, const std::string& name, int64_t kernel, int64_t stride, int64_t padding)
    : Module(parent, name), kernel_(kernel), stride_(stride == 0 ? kernel : stride), padding_(padding) {
  check_positive("pooling", *this, "its kernel", kernel);
  check_positive("pooling", *this, "its stride", stride_);
  if (padding < 0 || 2 * padding > kernel)
    fail("pooling {}: its padding is {}, but must lie between 0 and half its kernel of {}", display_name(), padding, kernel);
}

template <Pool kind>
Tensor PoolLayer<kind>::forward(const Tensor& x) const {
  if (x.rank() != 3 && x.rank() != 4)
    fail("pooling {}: input {} must be [batch, one or two dims of positions, features]", display_name(), x.shape().str());
  Tensor padded = pad_positions(x, padding_);
  if (kind == Pool::max && padding_ > 0) {
    std::vector<int64_t> dims(x.shape().begin(), x.shape().end());
    dims.front() = dims.back() = 1;  // where the sample is, and where the padding
    Tensor inside = pad_positions(Tensor::ones(Shape(dims)), padding_);
    Tensor lowest = Tensor::full({}, -std::numeric_limits<double>::infinity(), x.dtype());
    padded = where(ne(inside, 0.0), padded, lowest);
  }
  std::vector<Tensor> slices = window_slices(*this, padded, {"pooling", kernel_, stride_});
  for (Tensor& s : slices) s = s.unsqueeze(0);
  Tensor stacked = concatenate(slices, 0);  // [places, N, windows.., C]
  return kind == Pool::max ? stacked.max({0}) : stacked.mean({0});
}

template class PoolLayer<Pool::max>;
template class PoolLayer<Pool::average>;

}  // namespace ws
