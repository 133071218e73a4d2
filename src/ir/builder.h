// Builder: what vjps, layers of sugar and passes write graphs against. It runs (the loop) or records (a trace):
// the same vjp serves both.
#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "ir/op_def.h"

namespace ws {

class Builder {
 public:
  virtual ~Builder() = default;
  virtual Type type_of(Value v) const = 0;  // by value: an implementation may not hold Types
  /// The one entry: checks arity and attributes, infers types, runs or records. Returns all results.
  virtual std::vector<Value> apply(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) = 0;

  /// Single-result form by name; InternalError for an unknown op.
  Value op(std::string_view name, std::initializer_list<Value> inputs, const Attrs& attrs = {});

  // Sugar used by vjps; binary ones broadcast by NumPy's rule by inserting explicit broadcasts, never casts.
  Value constant(DType dtype, double value);     // shape []
  Value filled(const Type& type, double value);  // constant broadcast to type.shape
  Value binary(std::string_view name, Value a, Value b);
  Value add(Value a, Value b) { return binary("add", a, b); }
  Value sub(Value a, Value b) { return binary("sub", a, b); }
  Value mul(Value a, Value b) { return binary("mul", a, b); }
  Value div(Value a, Value b) { return binary("div", a, b); }
  Value neg(Value a) { return op("neg", {a}); }
  Value select(Value condition, Value a, Value b);
  Value cast(Value a, DType to);                    // no node where the dtype is already `to`
  Value broadcast_to(Value a, const Shape& shape);  // no node where equal
  Value reshape(Value a, const Shape& shape);       // no node where equal
  Value transpose(Value a, std::vector<int64_t> permutation);
  /// Sums out what broadcasting added, so that the result has `shape`.
  Value sum_to(Value a, const Shape& shape);
  /// Any set of axes (negative count from the end): split into adjacent groups, innermost group first.
  Value reduce_sum(Value a, std::vector<int64_t> axes, bool keepdims);
  Value reduce_max(Value a, std::vector<int64_t> axes, bool keepdims);
};

}  // namespace ws
