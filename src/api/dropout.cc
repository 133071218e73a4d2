#include <algorithm>
#include <cmath>

#include "api/layer_checks.h"
#include "wholestep/layers.h"

namespace ws {
namespace {

void check_probability(const std::string& who, double p) {
  if (!(p >= 0 && p <= 1)) fail("{}: p is {}, but must lie in [0, 1]", who, p);
}

}  // namespace

Tensor dropout(const Tensor& x, double p, Variable key) {
  check_probability("dropout", p);
  if (p == 0) return x;
  Tensor zero = Tensor::full({}, 0, x.dtype());
  if (p == 1) return where(Tensor::full({}, 0, DType::boolean), x, zero);  // 1/(1-p) would be infinite
  double threshold = std::min(std::nearbyint((1 - p) * 0x1p32), 0x1p32 - 1);
  Tensor kept = lt(draw_bits(std::move(key), x.shape()), Tensor::full({}, threshold, DType::u32));
  return where(kept, x * (1 / (1 - p)), zero);
}

Dropout::Dropout(Module& parent, const std::string& name, double p) : Module(parent, name), p_(p) {
  check_probability("dropout " + display_name(), p);
  random_key = Buffer(*this, "random_key", key_tensor(key().bits()));
}

Tensor Dropout::forward(const Tensor& x) const { return training() ? dropout(x, p_, random_key) : x; }

}  // namespace ws
