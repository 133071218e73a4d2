// tanh and erf: odd functions that reach 1 in fp32, as x * P(x^2) / Q(x^2). Coefficients: tools/fit_polynomials.py.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// ratio(x) for |x| < limit, beyond it exactly 1 with x's sign. NaN stays NaN.
S saturating(ScalarBuilder& b, S x, double limit, std::initializer_list<double> numerator, std::initializer_list<double> denominator) {
  const S one = f32(b, 1), u = b.mul(x, x);
  const S ratio = b.div(b.mul(x, horner(b, u, numerator)), horner(b, u, denominator));
  const S saturated = b.lt(f32(b, limit), b.abs(x));
  return b.select(saturated, b.copysign(one, x), ratio);
}

}  // namespace

const OpDef& tanh_op() {
  static const OpDef def = unary({
      .name = "tanh",
      .traits = kExpensive,
      .flops = 22,
      .reference = [](double x) { return std::tanh(x); },
      .emit = [](ScalarBuilder& b, S x) {
        return saturating(b, x, 9.02, {1, 0x1.1a5306p-3, 0x1.06b3a6p-8, 0x1.08fd28p-15, 0x1.b40b62p-25},
                          {1, 0x1.e27ed8p-2, 0x1.c67398p-6, 0x1.b92ddap-12, 0x1.b2310ep-20, 0x1.956a86p-31});
      },
      .vjp = [](Builder& b, Value, Value y, Value g) {
        return b.mul(g, b.sub(b.constant(b.type_of(y).dtype, 1), b.mul(y, y)));
      },
  });
  return def;
}

const OpDef& erf_op() {
  static const OpDef def = unary({
      .name = "erf",
      .traits = kExpensive,
      .flops = 24,
      .reference = [](double x) { return std::erf(x); },
      .emit = [](ScalarBuilder& b, S x) {
        return saturating(b, x, 3.93, {0x1.20dd74p+0, 0x1.86ba1p-3, 0x1.b074dep-5, 0x1.ef696ep-9, 0x1.2aa324p-12, 0x1.121848p-19},
                          {1, 0x1.013cp-1, 0x1.d3ffe4p-4, 0x1.eb6ff4p-7, 0x1.317466p-10, 0x1.3ecd12p-15});
      },
      .vjp = [](Builder& b, Value x, Value, Value g) {  // 2 / sqrt(pi) * exp(-x^2)
        const Value slope = b.mul(b.op("exp", {b.neg(b.mul(x, x))}), b.constant(b.type_of(x).dtype, 1.1283791670955126));
        return b.mul(g, slope);
      },
  });
  return def;
}

}  // namespace ws::ops
