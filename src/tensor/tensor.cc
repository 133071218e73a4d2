// Making and reading tensors, and their views.
#include <algorithm>
#include <type_traits>

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/eager.h"
#include "tensor/scalar_bits.h"
#include "tensor/tape.h"
#include "tensor/tracer.h"
#include "tensor/views.h"

namespace ws {
namespace {

const TensorImpl& checked(const Tensor& t, std::string_view what) {
  if (!t.defined()) fail("{}{} of an undefined Tensor", path_prefix(), what);
  return *t.impl();
}

const TensorImpl& readable(const Tensor& t, std::string_view what) {
  const TensorImpl& impl = checked(t, what);
  if (impl.traced()) Tracer::fail_reading(impl, what);
  return impl;
}

Tensor copy_of(const void* data, int64_t count, DType dtype, const Shape& shape) {
  if (count != shape.num_elements())
    fail("Tensor::from: {} values do not fill the shape {} ({} elements)", count, shape.str(), shape.num_elements());
  auto impl = new_dense({dtype, shape});
  if (impl->num_bytes() > 0) std::memcpy(impl->storage->data, data, static_cast<size_t>(impl->num_bytes()));
  return Tensor(std::move(impl));
}

std::vector<int64_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

int normalised_axis(const Tensor& x, int64_t axis, std::string_view who) {
  int64_t rank = x.rank();
  if (axis < -rank || axis >= rank) fail("{}{}: axis {} is outside the shape {}", path_prefix(), who, axis, x.shape().str());
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

// A view op of `x`: straight to strides where nothing is recorded, so that the loop's views make no attributes.
template <class View, class MakeAttrs>
Tensor view_op(const OpDef& op, const Tensor& x, View&& view, MakeAttrs&& make_attrs) {
  TensorImpl* operand[] = {x.impl().get()};
  if (!x.impl()->traced() && !context().tracer && !wants_gradient(op, operand)) {
    std::optional<TensorData> data = view(*x.impl());
    if (data) return Tensor(alias_of(*data));
  }
  return apply_single(op, operand, make_attrs());
}

}  // namespace

Tensor::Tensor(double value) {
  static const OpDef& constant = op_named("constant");
  if (Tracer* tracer = context().tracer)
    *this = tracer->record(constant, {}, {{"dtype", DType::f32}, {"value", value}})[0];
  else
    impl_ = filled({DType::f32, {}}, value);
}

Tensor Tensor::from(std::span<const float> values, const Shape& shape) {
  return copy_of(values.data(), static_cast<int64_t>(values.size()), DType::f32, shape);
}
Tensor Tensor::from(std::span<const int32_t> values, const Shape& shape) {
  return copy_of(values.data(), static_cast<int64_t>(values.size()), DType::i32, shape);
}
Tensor Tensor::from_bytes(const void* data, DType dtype, const Shape& shape) {
  return copy_of(data, shape.num_elements(), dtype, shape);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) { return full(shape, 0, dtype); }
Tensor Tensor::ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  static const OpDef& constant = op_named("constant");
  if (Tracer* tracer = context().tracer)
    return tracer->record(constant, {}, {{"dtype", dtype}, {"value", value}})[0].broadcast_to(shape);
  return Tensor(filled({dtype, shape}, value));
}

Tensor Tensor::arange(int64_t count, DType dtype) {
  if (count < 0) fail("Tensor::arange: the count is {}", count);
  return apply_op("iota", {}, {{"dtype", dtype}, {"shape", std::vector<int64_t>{count}}, {"axis", int64_t{0}}});
}

const Shape& Tensor::shape() const { return checked(*this, "shape()").shape; }
DType Tensor::dtype() const { return checked(*this, "dtype()").dtype; }

double Tensor::item() const {
  const TensorImpl& impl = readable(*this, "item()");
  if (impl.shape.num_elements() != 1) fail("{}item() needs a tensor of one element, not {}", path_prefix(), describe(impl));
  return load_element(impl.pointer(), impl.dtype);
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  readable(*this, "to_vector()");
  auto impl = dense_copy_if_needed(impl_);
  std::vector<T> values(static_cast<size_t>(impl->shape.num_elements()));
  const auto* bytes = static_cast<const char*>(impl->pointer());
  constexpr DType kSame = std::is_same_v<T, float>     ? DType::f32
                          : std::is_same_v<T, double>  ? DType::f64
                          : std::is_same_v<T, int32_t> ? DType::i32
                                                       : DType::u32;
  if (impl->dtype == kSame) {
    if (!values.empty()) std::memcpy(values.data(), bytes, static_cast<size_t>(impl->num_bytes()));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>(load_element(bytes + i * size_of(impl->dtype), impl->dtype));
  return values;
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<uint32_t> Tensor::to_vector() const;

const void* Tensor::data() const {
  readable(*this, "data()");
  // The same values in another place: nobody who shares the handle can tell.
  if (!impl_->dense) static_cast<TensorData&>(*impl_) = *dense_copy(*impl_);
  return impl_->pointer();
}

Tensor Tensor::reshape(const Shape& wanted) const { return reshape(std::span<const int64_t>(wanted.dims())); }

Tensor Tensor::reshape(std::span<const int64_t> wanted) const {
  static const OpDef& op = op_named("reshape");
  const Shape& from = shape();
  std::vector<int64_t> dims(wanted.begin(), wanted.end());
  int64_t known = 1;
  int64_t* unknown = nullptr;
  for (int64_t& dim : dims) {
    if (dim == -1 && unknown) fail("{}reshape: only one dim may be -1", path_prefix());
    if (dim == -1)
      unknown = &dim;
    else
      known *= dim;
  }
  if (unknown) {
    if (known <= 0 || from.num_elements() % known != 0)
      fail("{}reshape: {} elements of {} do not divide into groups of {}", path_prefix(), from.num_elements(), from.str(), known);
    *unknown = from.num_elements() / known;
  }
  Shape to(dims);
  if (to == from) return *this;
  if (to.num_elements() != from.num_elements())
    fail("{}reshape: {} has {} elements, {} has {}", path_prefix(), from.str(), from.num_elements(), to.str(), to.num_elements());
  return view_op(
      op, *this, [&](const TensorData& x) { return view_reshape(x, to); },
      [&] {
        return Attrs{{"shape", dims}};
      });
}

Tensor Tensor::transpose(std::vector<int64_t> permutation) const {
  static const OpDef& op = op_named("transpose");
  const Shape& from = shape();
  std::vector<bool> seen(static_cast<size_t>(from.rank()));
  for (int64_t& axis : permutation) axis = normalised_axis(*this, axis, "transpose");
  for (int64_t axis : permutation) seen[static_cast<size_t>(axis)] = true;
  if (permutation.size() != seen.size() || std::find(seen.begin(), seen.end(), false) != seen.end())
    fail("{}transpose: the permutation must name each axis of {} once", path_prefix(), from.str());
  return view_op(
      op, *this, [&](const TensorData& x) { return std::optional(view_transpose(x, permutation)); },
      [&] {
        return Attrs{{"permutation", permutation}};
      });
}

Tensor Tensor::t() const {
  int rank = this->rank();
  if (rank < 2) fail("{}t(): needs at least two axes, not {}", path_prefix(), shape().str());
  std::vector<int64_t> permutation(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) permutation[static_cast<size_t>(i)] = i;
  std::swap(permutation[permutation.size() - 1], permutation[permutation.size() - 2]);
  return transpose(std::move(permutation));
}

Tensor Tensor::broadcast_to(const Shape& to) const {
  static const OpDef& op = op_named("broadcast");
  const Shape& from = shape();
  if (from == to) return *this;
  int extra = to.rank() - from.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) fits = from[i] == 1 || from[i] == to[i + extra];
  if (!fits) fail("{}broadcast_to: {} does not broadcast to {}", path_prefix(), from.str(), to.str());
  return view_op(
      op, *this, [&](const TensorData& x) { return std::optional(view_broadcast(x, to)); },
      [&] {
        return Attrs{{"shape", dims_of(to)}};
      });
}

Tensor Tensor::slice(int axis, int64_t start, int64_t stop, int64_t step) const {
  static const OpDef& op = op_named("slice");
  const Shape& from = shape();
  auto at = static_cast<size_t>(normalised_axis(*this, axis, "slice"));
  int64_t dim = from[static_cast<int>(at)];
  if (start < 0 || stop < start || stop > dim || step < 1)
    fail("{}slice: [{}, {}) in steps of {} does not fit axis {} of {}", path_prefix(), start, stop, step, at, from.str());
  std::vector<int64_t> starts(static_cast<size_t>(from.rank()), 0), stops = dims_of(from), steps(starts.size(), 1);
  starts[at] = start;
  stops[at] = stop;
  steps[at] = step;
  return view_op(
      op, *this, [&](const TensorData& x) { return std::optional(view_slice(x, starts, stops, steps)); },
      [&] {
        return Attrs{{"starts", starts}, {"stops", stops}, {"steps", steps}};
      });
}

Tensor Tensor::squeeze(int axis) const {
  int at = normalised_axis(*this, axis, "squeeze");
  std::vector<int64_t> dims = dims_of(shape());
  if (dims[static_cast<size_t>(at)] != 1) fail("{}squeeze: axis {} of {} is not of size 1", path_prefix(), at, shape().str());
  dims.erase(dims.begin() + at);
  return reshape(Shape(dims));
}

Tensor Tensor::unsqueeze(int axis) const {
  int64_t places = rank() + 1;
  if (axis < -places || axis >= places)
    fail("{}unsqueeze: axis {} is outside the {} places of {}", path_prefix(), axis, places, shape().str());
  std::vector<int64_t> dims = dims_of(shape());
  dims.insert(dims.begin() + (axis < 0 ? axis + places : axis), 1);
  return reshape(Shape(dims));
}

Tensor Tensor::contiguous() const {
  checked(*this, "contiguous()");
  if (impl_->traced() || impl_->dense) return *this;
  // History goes on through the copy as through a reshape.
  static const OpDef& op = op_named("reshape");
  TensorImpl* operand[] = {impl_.get()};
  auto copy = dense_copy(*impl_);
  if (wants_gradient(op, operand)) record_on_tape(op, operand, {{"shape", dims_of(shape())}}, {&copy, 1});
  return Tensor(std::move(copy));
}

Tensor Tensor::cast(DType to) const {
  static const OpDef& op = op_named("cast");
  if (dtype() == to) return *this;
  TensorImpl* operand[] = {impl_.get()};
  return apply_single(op, operand, {{"dtype", to}});
}

Tensor Tensor::detach() const {
  static const OpDef& op = op_named("stop_gradient");
  checked(*this, "detach()");
  TensorImpl* operand[] = {impl_.get()};
  return apply_single(op, operand, {});
}

}  // namespace ws
