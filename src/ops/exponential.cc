// exp and sigmoid. Coefficients: tools/fit_polynomials.py.
#include "ops/exponential.h"
#include "ops/op_list.h"

namespace ws::ops {

// exp(x) = 2^n * exp(r), n = floor(x / ln 2), r in [0, ln 2]. With floor the polynomial lies in [1, 2], so 2^n covers exactly
// the normal results: n = 128 gives the factor infinity, n = -127 the factor 0, and no second scaling step is needed.
ExpParts exp_parts(ScalarBuilder& b, S x) {
  x = b.select(b.lt(x, f32(b, -88)), f32(b, -88), x);  // NaN passes both
  x = b.select(b.lt(f32(b, 89), x), f32(b, 89), x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it, here with the exponent's bias, in the low bits. Just below 1/2, so that exp(0) is 1 exactly.
  const S shifter = f32(b, 12582912.0 + 127);
  const S shifted = b.add(b.fma(x, f32(b, 0x1.715476p+0), f32(b, -0x1.fffffep-2)), shifter);
  const S n = b.sub(shifted, shifter);
  const S r = b.fma(n, f32(b, 0x1.05c61p-29), b.fma(n, f32(b, -0x1.62e43p-1), x));
  const S fraction = horner(b, r, {1, 0x1.fffffap-1, 0x1.0000bap-1, 0x1.553884p-3, 0x1.5755d2p-5, 0x1.fef9bcp-8, 0x1.fe553cp-10});
  const S power = b.bitcast(b.shift_left(b.bitcast(shifted, DType::i32), 23), DType::f32);
  return {fraction, power};
}

const OpDef& exp_op() {
  static const OpDef def = unary({
      .name = "exp",
      .traits = kExpensive,
      .flops = 20,
      .reference = [](double x) { return std::exp(x); },
      .emit = [](ScalarBuilder& b, S x) {
        const ExpParts e = exp_parts(b, x);
        return b.mul(e.fraction, e.power);
      },
      .vjp = [](Builder& b, Value, Value y, Value g) { return b.mul(g, y); },
  });
  return def;
}

// 1 / (1 + exp(-x)): right in both tails, since exp(-x) is infinity where the result underflows.
const OpDef& sigmoid_op() {
  static const OpDef def = unary({
      .name = "sigmoid",
      .traits = kExpensive,
      .flops = 22,
      .reference = [](double x) { return 1 / (1 + std::exp(-x)); },
      .emit = [](ScalarBuilder& b, S x) {
        const ExpParts e = exp_parts(b, b.neg(x));
        return b.div(f32(b, 1), b.fma(e.fraction, e.power, f32(b, 1)));
      },
      .vjp = [](Builder& b, Value, Value y, Value g) {
        return b.mul(b.mul(g, y), b.sub(b.constant(b.type_of(y).dtype, 1), y));
      },
  });
  return def;
}

}  // namespace ws::ops
