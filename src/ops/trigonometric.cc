// sin and cos. Coefficients: tools/fit_polynomials.py.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// x = n * pi/2 + r with r in [-pi/4, pi/4], pi/2 in three fp32 parts (Cody and Waite). Good to 2 ulp for |x| <= 1e5; beyond 6e6 n no longer
// fits and the result is some number in [-1, 1]. Infinity gives NaN. `quarter_turns` 0: sin, 1: cos.
S emit_sine(ScalarBuilder& b, S x, int quarter_turns) {
  const S shifter = f32(b, 12582912.0);  // 1.5 * 2^23: the sum rounds to an integer and holds it in its low bits
  const S shifted = b.fma(x, f32(b, 0x1.45f306p-1), shifter);
  const S n = b.sub(shifted, shifter);
  S r = b.fma(n, f32(b, -0x1.921fb6p+0), x);
  r = b.fma(n, f32(b, 0x1.777a5cp-25), r);
  r = b.fma(n, f32(b, 0x1.ee59dap-50), r);
  const S limit = f32(b, 0.8);
  r = b.select(b.lt(limit, r), limit, b.select(b.lt(r, b.neg(limit)), b.neg(limit), r));
  const S s = b.mul(r, r);
  const S sine = b.fma(b.mul(r, s), horner(b, s, {-0x1.555546p-3, 0x1.110778p-7, -0x1.995404p-13}), r);
  const S cosine = horner(b, s, {1, -0.5, 0x1.55554ap-5, -0x1.6c0c28p-10, 0x1.99e80cp-16});
  S quadrant = b.bitcast(shifted, DType::i32);
  if (quarter_turns != 0) quadrant = b.add(quadrant, i32(b, quarter_turns));
  const S use_sine = b.eq(b.bit_and(quadrant, i32(b, 1)), i32(b, 0));
  const S value = b.bitcast(b.select(use_sine, sine, cosine), DType::i32);
  const S sign = b.shift_left(b.bit_and(quadrant, i32(b, 2)), 30);
  return b.bitcast(b.bit_xor(value, sign), DType::f32);
}

}  // namespace

const OpDef& sin_op() {
  static const OpDef def = unary({
      .name = "sin",
      .traits = kExpensive,
      .flops = 30,
      .reference = [](double x) { return std::sin(x); },
      .emit = [](ScalarBuilder& b, S x) { return emit_sine(b, x, 0); },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.mul(g, b.op("cos", {x})); },
  });
  return def;
}

const OpDef& cos_op() {
  static const OpDef def = unary({
      .name = "cos",
      .traits = kExpensive,
      .flops = 31,
      .reference = [](double x) { return std::cos(x); },
      .emit = [](ScalarBuilder& b, S x) { return emit_sine(b, x, 1); },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.neg(b.mul(g, b.op("sin", {x}))); },
  });
  return def;
}

}  // namespace ws::ops
