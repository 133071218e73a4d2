#include "wholestep/initializers.h"

#include <algorithm>
#include <cmath>

namespace ws::init {
namespace {

void fill_normal(std::span<float> values, Key key, double stddev) {
  RandomStream stream(key);
  for (float& v : values) v = static_cast<float>(stddev * stream.normal());
}

double inverse_sqrt_fan_in(const Shape& shape) { return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, fan_in(shape)))); }

}  // namespace

int64_t fan_in(const Shape& shape) {
  int64_t n = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) n *= shape[i];
  return n;
}

Initializer constant(double value) {
  return
      [value](std::span<float> values, const Shape&, Key) { std::fill(values.begin(), values.end(), static_cast<float>(value)); };
}

Initializer normal(double stddev) {
  return [stddev](std::span<float> values, const Shape&, Key key) { fill_normal(values, key, stddev); };
}

Initializer he_normal() {
  return [](std::span<float> values, const Shape& shape, Key key) {
    fill_normal(values, key, std::sqrt(2.0) * inverse_sqrt_fan_in(shape));
  };
}

Initializer fan_in_normal() {
  return [](std::span<float> values, const Shape& shape, Key key) { fill_normal(values, key, inverse_sqrt_fan_in(shape)); };
}

Initializer truncated_lecun_normal() {
  return [](std::span<float> values, const Shape& shape, Key key) {
    constexpr double kBelow = 0.022750131948179195;           // normal distribution function at -2
    constexpr double kTruncatedStddev = 0.87962566103423978;  // of a standard normal cut at +-2
    double scale = inverse_sqrt_fan_in(shape) / kTruncatedStddev;
    RandomStream stream(key);
    for (float& v : values) v = static_cast<float>(scale * inverse_normal_cdf(kBelow + (1 - 2 * kBelow) * stream.uniform()));
  };
}

}  // namespace ws::init
