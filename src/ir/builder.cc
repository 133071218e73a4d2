#include "ir/builder.h"

#include <algorithm>

#include "support/error.h"

namespace ws {

namespace {

std::vector<int64_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Sorted, counted from the front, each once.
std::vector<int64_t> normalised_axes(std::string_view who, std::vector<int64_t> axes, const Shape& shape) {
  const int64_t rank = shape.rank();
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) fail("{}: axis {} is outside the shape {}", who, axis, shape.str());
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  const auto twice = std::adjacent_find(axes.begin(), axes.end());
  if (twice != axes.end()) fail("{}: axis {} of the shape {} is named twice", who, *twice, shape.str());
  return axes;
}

// Innermost group first, so that the axes of the groups still to come keep their positions.
Value reduce(Builder& b, std::string_view name, Value a, std::vector<int64_t> axes, bool keepdims) {
  const Shape shape = b.type_of(a).shape;
  axes = normalised_axes(name, std::move(axes), shape);
  for (size_t end = axes.size(); end > 0;) {
    size_t begin = end - 1;
    while (begin > 0 && axes[begin - 1] + 1 == axes[begin]) --begin;
    a = b.op(name, {a}, {{"first_axis", axes[begin]}, {"num_axes", static_cast<int64_t>(end - begin)}});
    end = begin;
  }
  if (!keepdims) return a;
  std::vector<int64_t> kept = dims_of(shape);
  for (int64_t axis : axes) kept[static_cast<size_t>(axis)] = 1;
  return b.reshape(a, Shape(kept));
}

}  // namespace

Value Builder::op(std::string_view name, std::initializer_list<Value> inputs, const Attrs& attrs) {
  const OpDef* def = find_op(name);
  WS_ASSERT(def, "no op is named '{}'", name);
  WS_ASSERT(def->num_results == 1, "{} has {} results", name, def->num_results);
  return apply(*def, std::span<const Value>(inputs.begin(), inputs.size()), attrs).front();
}

Value Builder::constant(DType dtype, double value) { return op("constant", {}, {{"dtype", dtype}, {"value", value}}); }

Value Builder::filled(const Type& type, double value) {
  const Shape shape = type.shape;  // a copy: `type` may live in the graph that grows here
  return broadcast_to(constant(type.dtype, value), shape);
}

Value Builder::binary(std::string_view name, Value a, Value b) {
  const Shape shape = broadcast_shapes(type_of(a).shape, type_of(b).shape);
  const Value x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  return op(name, {x, y});
}

Value Builder::select(Value condition, Value a, Value b) {
  const Shape shape = broadcast_shapes(type_of(condition).shape, broadcast_shapes(type_of(a).shape, type_of(b).shape));
  const Value c = broadcast_to(condition, shape), x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  return op("select", {c, x, y});
}

Value Builder::cast(Value a, DType to) { return type_of(a).dtype == to ? a : op("cast", {a}, {{"dtype", to}}); }

Value Builder::broadcast_to(Value a, const Shape& shape) {
  return type_of(a).shape == shape ? a : op("broadcast", {a}, {{"shape", dims_of(shape)}});
}

Value Builder::reshape(Value a, const Shape& shape) {
  return type_of(a).shape == shape ? a : op("reshape", {a}, {{"shape", dims_of(shape)}});
}

Value Builder::transpose(Value a, std::vector<int64_t> permutation) {
  return op("transpose", {a}, {{"permutation", std::move(permutation)}});
}

Value Builder::sum_to(Value a, const Shape& shape) {
  const Shape from = type_of(a).shape;
  const int extra = from.rank() - shape.rank();
  WS_ASSERT(extra >= 0, "{} does not broadcast to {}", shape.str(), from.str());
  std::vector<int64_t> axes;
  for (int i = 0; i < from.rank(); ++i) {
    const int64_t wanted = i < extra ? 1 : shape[i - extra];
    WS_ASSERT(wanted == from[i] || wanted == 1, "{} does not broadcast to {}", shape.str(), from.str());
    if (from[i] != wanted) axes.push_back(i);
  }
  return reshape(reduce_sum(a, std::move(axes), false), shape);
}

Value Builder::reduce_sum(Value a, std::vector<int64_t> axes, bool keepdims) {
  return reduce(*this, "reduce_sum", a, std::move(axes), keepdims);
}
Value Builder::reduce_max(Value a, std::vector<int64_t> axes, bool keepdims) {
  return reduce(*this, "reduce_max", a, std::move(axes), keepdims);
}

}  // namespace ws
