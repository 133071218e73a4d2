// The elementary functions within 2 ulp of the double reference: over all of fp32 by a stride, and densely where they turn.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ir/op_def.h"
#include "ops/eval_scalar_builder.h"

namespace ws {
namespace {

constexpr double kSmallestNormal = 0x1p-126;

/// Error in units of the last place of the true value. A result under the smallest normal number may be a zero or that number.
double error_in_ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : HUGE_VAL;
  const auto rounded = static_cast<float>(want);
  if (std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  if (std::fabs(want) < kSmallestNormal) return std::fabs(static_cast<double>(got)) <= kSmallestNormal ? 0 : HUGE_VAL;
  if (!std::isfinite(got)) return HUGE_VAL;
  int exponent = 0;
  std::frexp(want, &exponent);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 24);
}

struct Function {
  const char* name;
  double (*reference)(double);
  double limit;  // |x| up to here
};

class Elementary : public testing::TestWithParam<Function> {
 protected:
  void check(uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    if (std::fabs(x) > GetParam().limit) return;
    builder_.clear();
    const ScalarBuilder::S in = builder_.load_bits(bits);
    const auto got = static_cast<float>(builder_.value(op_.emit(builder_, {&in, 1}, {})));
    const double seen = std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : static_cast<double>(x);
    const double error = error_in_ulps(got, GetParam().reference(seen));
    if (error > worst_) worst_ = error, worst_at_ = x;
  }
  void expect_within(double ulps) const { EXPECT_LE(worst_, ulps) << GetParam().name << " at " << worst_at_; }

 private:
  const OpDef& op_ = *find_op(GetParam().name);
  ops::EvalScalarBuilder builder_;
  double worst_ = 0;
  float worst_at_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, Elementary,
                         testing::Values(Function{"exp", std::exp, HUGE_VAL}, Function{"log", std::log, HUGE_VAL},
                                         Function{"log1p", std::log1p, HUGE_VAL}, Function{"tanh", std::tanh, HUGE_VAL},
                                         Function{"erf", std::erf, HUGE_VAL}, Function{"sin", std::sin, 1e5},
                                         Function{"cos", std::cos, 1e5},
                                         Function{"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, HUGE_VAL},
                                         Function{"rsqrt", [](double x) { return 1 / std::sqrt(x); }, HUGE_VAL},
                                         Function{"sqrt", std::sqrt, HUGE_VAL}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Elementary, WithinTwoUlpsOverAllNumbers) {
  constexpr uint64_t kStride = 9973;  // prime, so that all low bits occur
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStride) check(static_cast<uint32_t>(bits));
  expect_within(2);
}

TEST_P(Elementary, WithinTwoUlpsWhereItMatters) {
  for (float sign : {1.0f, -1.0f})
    for (float start : {0.25f, 0.6f, 0.85f, 1.0f, 1.5f, 3.9f, 8.3f, 16.6f, 44.0f, 87.0f, 88.0f, 1000.0f, 70000.0f}) {
      const uint32_t first = std::bit_cast<uint32_t>(sign * start) - 5000;
      for (uint32_t i = 0; i < 10000; ++i) check(first + i);
    }
  for (double x = -110; x < 110; x += 0.00137) check(std::bit_cast<uint32_t>(static_cast<float>(x)));
  for (double x = -1.2; x < 1.2; x += 0.000017) check(std::bit_cast<uint32_t>(static_cast<float>(x)));
  expect_within(2);
}

// Multiples of pi/2 cancel most in the reduction.
TEST_P(Elementary, WithinTwoUlpsNearMultiplesOfHalfPi) {
  const double half_pi = std::acos(0.0);
  for (int n = 1; n < 63000; n += 7) {
    const uint32_t nearest = std::bit_cast<uint32_t>(static_cast<float>(n * half_pi));
    for (uint32_t i = 0; i < 3; ++i) check(nearest + i - 1);
  }
  expect_within(2);
}

}  // namespace
}  // namespace ws
