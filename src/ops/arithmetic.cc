// add, sub, mul, div, neg, square, sqrt, rsqrt, floor: one or two IEEE operations each.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

const OpDef& add_op() {
  static const OpDef def = binary({
      .name = "add",
      .traits = kCommutative,
      .reference = [](double a, double b) { return a + b; },
      .emit = [](ScalarBuilder& b, S x, S y) { return b.add(x, y); },
      .vjp_x = [](Builder&, Value, Value, Value, Value g) { return g; },
      .vjp_y = [](Builder&, Value, Value, Value, Value g) { return g; },
  });
  return def;
}

const OpDef& sub_op() {
  static const OpDef def = binary({
      .name = "sub",
      .reference = [](double a, double b) { return a - b; },
      .emit = [](ScalarBuilder& b, S x, S y) { return b.sub(x, y); },
      .vjp_x = [](Builder&, Value, Value, Value, Value g) { return g; },
      .vjp_y = [](Builder& b, Value, Value, Value, Value g) { return b.neg(g); },
  });
  return def;
}

const OpDef& mul_op() {
  static const OpDef def = binary({
      .name = "mul",
      .traits = kCommutative,
      .reference = [](double a, double b) { return a * b; },
      .emit = [](ScalarBuilder& b, S x, S y) { return b.mul(x, y); },
      .vjp_x = [](Builder& b, Value, Value y, Value, Value g) { return b.mul(g, y); },
      .vjp_y = [](Builder& b, Value x, Value, Value, Value g) { return b.mul(g, x); },
      .wrapping = [](uint32_t a, uint32_t b) { return a * b; },
  });
  return def;
}

const OpDef& div_op() {
  static const OpDef def = binary({
      .name = "div",
      .accepts = kFloats,
      .reference = [](double a, double b) { return a / b; },
      .emit = [](ScalarBuilder& b, S x, S y) { return b.div(x, y); },
      .vjp_x = [](Builder& b, Value, Value y, Value, Value g) { return b.div(g, y); },
      .vjp_y = [](Builder& b, Value, Value y, Value ratio, Value g) { return b.neg(b.mul(b.div(g, y), ratio)); },  // -(x/y)/y
      .domain = {TestDomain{}, TestDomain{.low = 0.5, .high = 3}},
  });
  return def;
}

const OpDef& neg_op() {
  static const OpDef def = unary({
      .name = "neg",
      .accepts = kNumbers,
      .reference = [](double x) { return -x; },
      .emit = [](ScalarBuilder& b, S x) { return b.neg(x); },
      .vjp = [](Builder& b, Value, Value, Value g) { return b.neg(g); },
  });
  return def;
}

const OpDef& square_op() {
  static const OpDef def = unary({
      .name = "square",
      .accepts = kFloats,
      .reference = [](double x) { return x * x; },
      .emit = [](ScalarBuilder& b, S x) { return b.mul(x, x); },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.mul(g, b.add(x, x)); },
  });
  return def;
}

const OpDef& sqrt_op() {
  static const OpDef def = unary({
      .name = "sqrt",
      .accepts = kFloats,
      .traits = kExpensive,
      .reference = [](double x) { return std::sqrt(x); },
      .emit = [](ScalarBuilder& b, S x) { return b.sqrt(x); },
      .vjp = [](Builder& b, Value x, Value y, Value g) { return b.div(b.mul(g, b.constant(b.type_of(x).dtype, 0.5)), y); },
      .domain = {.low = 0.1, .high = 4},
  });
  return def;
}

const OpDef& rsqrt_op() {
  static const OpDef def = unary({
      .name = "rsqrt",
      .accepts = kFloats,
      .traits = kExpensive,
      .flops = 2,
      .reference = [](double x) { return 1 / std::sqrt(x); },
      .emit = [](ScalarBuilder& b, S x) { return b.div(like(b, x, 1), b.sqrt(x)); },
      .vjp =
          [](Builder& b, Value x, Value y, Value g) {  // -y^3 / 2
            const Value half = b.mul(g, b.constant(b.type_of(x).dtype, -0.5));
            return b.mul(half, b.mul(y, b.mul(y, y)));
          },
      .domain = {.low = 0.1, .high = 4},
  });
  return def;
}

const OpDef& floor_op() {
  static const OpDef def = unary({
      .name = "floor",
      .accepts = kFloats,
      .reference = [](double x) { return std::floor(x); },
      .emit = [](ScalarBuilder& b, S x) { return b.floor(x); },
      .vjp = zero_gradient,
      .domain = {.kinks = {-2, -1, 0, 1, 2}},
  });
  return def;
}

}  // namespace ws::ops
