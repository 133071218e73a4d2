// abs, sign, relu, maximum, minimum: piecewise linear, NaN in gives NaN out.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// The larger one; NaN wins, and of two zeros +0. Where both are equal the sign of x decides: of equal numbers only zeros differ in it.
S emit_maximum(ScalarBuilder& b, S x, S y) {
  const S x_is_negative = b.lt(b.copysign(like(b, x, 1), x), like(b, x, 0));
  const S take_y = b.logical_or(b.logical_or(b.lt(x, y), b.ne(y, y)), b.logical_and(b.eq(x, y), x_is_negative));
  return b.select(take_y, y, x);
}

S emit_minimum(ScalarBuilder& b, S x, S y) {
  const S y_is_negative = b.lt(b.copysign(like(b, y, 1), y), like(b, y, 0));
  const S take_y = b.logical_or(b.logical_or(b.lt(y, x), b.ne(y, y)), b.logical_and(b.eq(x, y), y_is_negative));
  return b.select(take_y, y, x);
}

// The gradient where low < high, half of it at ties (as PyTorch and JAX), else 0.
Value gradient_where_less(Builder& b, Value low, Value high, Value g) {
  const DType dtype = b.type_of(g).dtype;
  const Value at_tie = b.select(b.binary("eq", low, high), b.mul(g, b.constant(dtype, 0.5)), b.constant(dtype, 0));
  return b.select(b.binary("lt", low, high), g, at_tie);
}

double reference_max(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::nan("");
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}

double reference_min(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::nan("");
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

}  // namespace

const OpDef& maximum_op() {
  static const OpDef def = binary({
      .name = "maximum",
      .accepts = kFloats,
      .traits = kCommutative,
      .reference = reference_max,
      .emit = emit_maximum,
      .vjp_x = [](Builder& b, Value x, Value y, Value, Value g) { return gradient_where_less(b, y, x, g); },
      .vjp_y = [](Builder& b, Value x, Value y, Value, Value g) { return gradient_where_less(b, x, y, g); },
      .domain = {TestDomain{.low = -2, .high = -0.1}, TestDomain{.low = 0.1, .high = 2}},  // never a tie
  });
  return def;
}

const OpDef& minimum_op() {
  static const OpDef def = binary({
      .name = "minimum",
      .accepts = kFloats,
      .traits = kCommutative,
      .reference = reference_min,
      .emit = emit_minimum,
      .vjp_x = [](Builder& b, Value x, Value y, Value, Value g) { return gradient_where_less(b, x, y, g); },
      .vjp_y = [](Builder& b, Value x, Value y, Value, Value g) { return gradient_where_less(b, y, x, g); },
      .domain = {TestDomain{.low = -2, .high = -0.1}, TestDomain{.low = 0.1, .high = 2}},
  });
  return def;
}

const OpDef& abs_op() {
  static const OpDef def = unary({
      .name = "abs",
      .accepts = kFloats,
      .reference = [](double x) { return std::fabs(x); },
      .emit = [](ScalarBuilder& b, S x) { return b.abs(x); },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.mul(g, b.op("sign", {x})); },
      .domain = {.kinks = {0}},
  });
  return def;
}

// -1, 1, or the zero itself with its sign.
const OpDef& sign_op() {
  static const OpDef def = unary({
      .name = "sign",
      .accepts = kFloats,
      .flops = 2,
      .reference = [](double x) { return x > 0   ? 1.0
                                         : x < 0 ? -1.0
                                                 : x; },
      .emit =
          [](ScalarBuilder& b, S x) {
            const S zero = like(b, x, 0);
            const S zero_or_nan = b.mul(x, zero);
            return b.select(b.lt(zero, x), like(b, x, 1), b.select(b.lt(x, zero), like(b, x, -1), zero_or_nan));
          },
      .vjp = zero_gradient,
      .domain = {.kinks = {0}},
  });
  return def;
}

// x where x is not below 0, so NaN stays NaN and relu(-0) is -0. The gradient at 0 is 0.
const OpDef& relu_op() {
  static const OpDef def = unary({
      .name = "relu",
      .accepts = kFloats,
      .reference = [](double x) { return x < 0 ? 0.0 : x; },
      .emit = [](ScalarBuilder& b, S x) { return b.select(b.lt(x, like(b, x, 0)), like(b, x, 0), x); },
      .vjp =
          [](Builder& b, Value, Value y, Value g) {  // from the result, so that x need not be kept
            const Value zero = b.constant(b.type_of(g).dtype, 0);
            return b.select(b.binary("lt", zero, y), g, zero);
          },
      .domain = {.kinks = {0}},
  });
  return def;
}

}  // namespace ws::ops
