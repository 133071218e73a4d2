// Position tables added to a sequence, and the mean over positions.
#include <cmath>

#include "api/layer_checks.h"
#include "api/rounding.h"
#include "wholestep/layers.h"

namespace ws {
namespace {

Tensor add_rows(const Module& module, const Tensor& x, const Tensor& table) {
  check_sequence("positions", module, x);
  check_features("positions", module, x, table.dim(1));
  int64_t length = x.dim(1);
  if (length > table.dim(0))
    fail("positions {}: a sequence of {} positions exceeds max_len {}; build the model with a larger max_len",
         module.display_name(), length, table.dim(0));
  return rounded_like(x, in_f32(x) + table.slice(0, 0, length));
}

}  // namespace

SinusoidalPositions::SinusoidalPositions(Module& parent, const std::string& name, int64_t max_len, int64_t width)
    : Module(parent, name) {
  check_positive("positions", *this, "max_len", max_len);
  check_positive("positions", *this, "its width", width);
  std::vector<float> table;
  table.reserve(static_cast<size_t>(max_len * width));
  for (int64_t t = 0; t < max_len; ++t)
    for (int64_t j = 0; j < width; ++j) {
      double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(j - j % 2) / static_cast<double>(width));
      table.push_back(static_cast<float>(j % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  table_ = Tensor::from(std::span<const float>(table), {max_len, width});
}

Tensor SinusoidalPositions::forward(const Tensor& x) const { return add_rows(*this, x, table_); }

LearnedPositions::LearnedPositions(Module& parent, const std::string& name, int64_t max_len, int64_t width,
                                   const Initializer& initializer)
    : Module(parent, name) {
  check_positive("positions", *this, "max_len", max_len);
  check_positive("positions", *this, "its width", width);
  weight = Parameter(*this, "weight", Shape{max_len, width}, initializer);
}

Tensor LearnedPositions::forward(const Tensor& x) const { return add_rows(*this, x, weight); }

Tensor MeanOverTime::forward(const Tensor& x) const {
  check_sequence("mean over time", *this, x);
  return x.mean({1});
}

}  // namespace ws
