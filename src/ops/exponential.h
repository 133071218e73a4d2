// exp as two factors, for ops built on it.
#pragma once
#include "ops/op_helpers.h"

namespace ws::ops {

/// exp(x) = fraction * power for f32 x; fraction in [1, 2] (NaN for NaN), power = 2^n with 0 and infinity at the ends.
struct ExpParts {
  S fraction, power;
};
ExpParts exp_parts(ScalarBuilder& b, S x);

}  // namespace ws::ops
