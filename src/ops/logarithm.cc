// log and log1p. Coefficients: tools/fit_polynomials.py.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// log(1 + f) + e * ln 2 for f in [-1/4, 1/2].
S log_of_parts(ScalarBuilder& b, S f, S exponent) {
  const S q = horner(b, f,
                     {-0x1p-1, 0x1.5555a4p-2, -0x1.00004ap-2, 0x1.99699ep-3, -0x1.54ed96p-3, 0x1.28807ap-3, -0x1.0d98fp-3,
                      0x1.acf4a6p-4, -0x1.71e324p-5});
  const S log_f = b.fma(b.mul(f, f), q, f);
  return b.fma(exponent, f32(b, 0x1.62e43p-1), log_f);
}

// 0 and denormals give -infinity, below that NaN; infinity and NaN stay.
S with_limits(ScalarBuilder& b, S argument, S log) {
  const S infinity = f32(b, HUGE_VAL), zero = f32(b, 0);
  const S finite = b.select(b.lt(argument, infinity), log, argument);
  const S outside = b.select(b.eq(argument, zero), f32(b, -HUGE_VAL), f32(b, NAN));
  return b.select(b.lt(zero, argument), finite, outside);
}

}  // namespace

// x = 2^e * m with m in [3/4, 3/2).
const OpDef& log_op() {
  static const OpDef def = unary({
      .name = "log",
      .traits = kExpensive,
      .flops = 26,
      .reference = [](double x) { return std::log(x); },
      .emit =
          [](ScalarBuilder& b, S x) {
            const S three_quarters = i32(b, 0x3f400000);
            const S shifted = b.sub(b.bitcast(x, DType::i32), three_quarters);
            const S exponent = b.cast(b.shift_right(shifted, 23), DType::f32);
            const S m = b.bitcast(b.add(b.bit_and(shifted, i32(b, 0x007fffff)), three_quarters), DType::f32);
            return with_limits(b, x, log_of_parts(b, b.sub(m, f32(b, 1)), exponent));
          },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.div(g, x); },
      .domain = {.low = 0.1, .high = 8},
  });
  return def;
}

// 1 + x = 2^e * (1 + f); f = x / 2^e + (1 / 2^e - 1), each term exact, so that nothing of a small x is lost.
const OpDef& log1p_op() {
  static const OpDef def = unary({
      .name = "log1p",
      .traits = kExpensive,
      .flops = 30,
      .reference = [](double x) { return std::log1p(x); },
      .emit =
          [](ScalarBuilder& b, S x) {
            const S u = b.add(x, f32(b, 1));
            const S shifted = b.sub(b.bitcast(u, DType::i32), i32(b, 0x3f400000));
            const S exponent_bits = b.bit_and(shifted, i32(b, -0x800000));
            const S scaled = b.bitcast(b.sub(b.bitcast(x, DType::i32), exponent_bits), DType::f32);
            const S four_over_power = b.bitcast(b.sub(i32(b, 0x40800000), exponent_bits), DType::f32);
            const S f = b.add(scaled, b.fma(four_over_power, f32(b, 0.25), f32(b, -1)));
            const S exponent = b.cast(b.shift_right(shifted, 23), DType::f32);
            return with_limits(b, u, log_of_parts(b, f, exponent));
          },
      .vjp = [](Builder& b, Value x, Value, Value g) { return b.div(g, b.add(x, b.constant(b.type_of(x).dtype, 1))); },
      .domain = {.low = -0.8, .high = 4},
  });
  return def;
}

}  // namespace ws::ops
