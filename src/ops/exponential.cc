// exp, sigmoid, tanh and erf, all on one reduction of exp. Coefficients: tools/fit_polynomials.py.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// exp(x) = power * (1 + r * q), power = 2^n, r = x - n ln 2 (ln 2 in two fp32 parts).
struct ExpParts {
  S r, q, power;
};

// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; with the exponent's bias in it, a shift makes the power.
constexpr double kShifter = 12582912.0 + 127, kLog2E = 0x1.715476p+0;

ExpParts reduced(ScalarBuilder& b, S x, S shifted, std::initializer_list<double> coefficients) {
  const S n = b.sub(shifted, f32(b, kShifter));
  const S r = b.fma(n, f32(b, 0x1.05c61p-29), b.fma(n, f32(b, -0x1.62e43p-1), x));
  return {r, horner(b, r, coefficients), b.bitcast(b.shift_left(b.bitcast(shifted, DType::i32), 23), DType::f32)};
}

// n = floor(x / ln 2), r in [0, ln 2], for x within [-88, 89] or NaN. Then 1 + r q lies in [1, 2], so the power covers exactly the
// normal results: n = 128 gives infinity, n = -127 zero, and no second scaling step is needed. Rounds x / ln 2 less just under 1/2, so that exp(0) is 1.
ExpParts exp_parts_floor(ScalarBuilder& b, S x) {
  const S shifted = b.add(b.fma(x, f32(b, kLog2E), f32(b, -0x1.fffffep-2)), f32(b, kShifter));
  return reduced(b, x, shifted, {1, 0x1.00001ep-1, 0x1.554b62p-3, 0x1.566228p-5, 0x1.04eb08p-7, 0x1.e7b076p-10});
}

// n nearest to x / ln 2, |r| <= ln 2 / 2, for x within [-88, 88] or NaN: closest where exp(x) is near a power of two.
ExpParts exp_parts_nearest(ScalarBuilder& b, S x) {
  const S shifted = b.fma(x, f32(b, kLog2E), f32(b, kShifter));
  return reduced(b, x, shifted, {1, 0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558aap-5, 0x1.12396ep-7, 0x1.6a525p-10});
}

S at_least(ScalarBuilder& b, S x, double low) { return b.select(b.lt(x, f32(b, low)), f32(b, low), x); }    // NaN passes
S at_most(ScalarBuilder& b, S x, double high) { return b.select(b.lt(f32(b, high), x), f32(b, high), x); }  // NaN passes

S emit_exp(ScalarBuilder& b, S x) {
  const ExpParts e = exp_parts_floor(b, at_most(b, at_least(b, x, -88), 89));
  return b.mul(b.fma(e.r, e.q, f32(b, 1)), e.power);
}

// 1 / (1 + exp(-x)), the sum as (r q 2^n + 1) + 2^n: near a power of two, where a rounding weighs most, r is small and only the last
// one counts. Below -88 the result is under the smallest normal number.
S emit_sigmoid(ScalarBuilder& b, S x) {
  const S one = f32(b, 1);
  const ExpParts e = exp_parts_nearest(b, at_most(b, at_least(b, b.neg(x), -88), 88));
  return b.div(one, b.add(b.fma(b.mul(e.r, e.q), e.power, one), e.power));
}

// |x| + |x|^3 p(x^2) near 0; 1 - 2 / (exp(2|x|) + 1), which reaches 1 by itself, elsewhere.
S emit_tanh(ScalarBuilder& b, S x) {
  const S one = f32(b, 1), magnitude = b.abs(x), u = b.mul(magnitude, magnitude);
  const S p = horner(b, u, {-0x1.55553ep-2, 0x1.1109bep-3, -0x1.b89abap-5, 0x1.54c3c2p-6, -0x1.828776p-8});
  const S near = b.fma(b.mul(magnitude, u), p, magnitude);
  const ExpParts e = exp_parts_nearest(b, at_most(b, b.add(magnitude, magnitude), 40));
  const S far = b.sub(one, b.div(f32(b, 2), b.fma(b.mul(e.r, e.q), e.power, b.add(e.power, one))));
  return b.copysign(b.select(b.lt(magnitude, f32(b, 0.6)), near, far), x);
}

// x + x p(x^2) near 0; 1 - exp(log erfc |x|), the logarithm a polynomial, elsewhere. Beyond 4 the result is 1.
S emit_erf(ScalarBuilder& b, S x) {
  const S u = b.mul(x, x);
  const S p = horner(b, u, {0x1.06eba8p-3, -0x1.812726p-2, 0x1.ce256ap-4, -0x1.b735eap-6, 0x1.4b763p-8, -0x1.4cd86p-11});
  const S near = b.fma(x, p, x);
  const S t = at_most(b, b.abs(x), 4);
  const ExpParts e = exp_parts_floor(b, horner(b, t,
                                               {-0x1.b6654ep-14, -0x1.20c89cp+0, -0x1.45e5cap-1, -0x1.ac2398p-4, 0x1.70f442p-6,
                                                -0x1.98aadcp-9, 0x1.ab257cp-13}));
  const S far = b.fma(b.fma(e.r, e.q, f32(b, 1)), b.neg(e.power), f32(b, 1));
  return b.select(b.lt(t, f32(b, 0.85)), near, b.copysign(far, x));
}

}  // namespace

const OpDef& exp_op() {
  static const OpDef def = unary({
      .name = "exp",
      .traits = kExpensive,
      .flops = 20,
      .reference = [](double x) { return std::exp(x); },
      .emit = emit_exp,
      .vjp = [](Builder& b, Value, Value y, Value g) { return b.mul(g, y); },
  });
  return def;
}

const OpDef& sigmoid_op() {
  static const OpDef def = unary({
      .name = "sigmoid",
      .traits = kExpensive,
      .flops = 23,
      .reference = [](double x) { return 1 / (1 + std::exp(-x)); },
      .emit = emit_sigmoid,
      .vjp = [](Builder& b, Value, Value y, Value g) { return b.mul(b.mul(g, y), b.sub(b.constant(b.type_of(y).dtype, 1), y)); },
  });
  return def;
}

const OpDef& tanh_op() {
  static const OpDef def = unary({
      .name = "tanh",
      .traits = kExpensive,
      .flops = 33,
      .reference = [](double x) { return std::tanh(x); },
      .emit = emit_tanh,
      .vjp = [](Builder& b, Value, Value y, Value g) { return b.mul(g, b.sub(b.constant(b.type_of(y).dtype, 1), b.mul(y, y))); },
  });
  return def;
}

const OpDef& erf_op() {
  static const OpDef def = unary({
      .name = "erf",
      .traits = kExpensive,
      .flops = 46,
      .reference = [](double x) { return std::erf(x); },
      .emit = emit_erf,
      .vjp =
          [](Builder& b, Value x, Value, Value g) {  // 2 / sqrt(pi) * exp(-x^2)
            const Value slope = b.mul(b.op("exp", {b.neg(b.mul(x, x))}), b.constant(b.type_of(x).dtype, 1.1283791670955126));
            return b.mul(g, slope);
          },
  });
  return def;
}

}  // namespace ws::ops
