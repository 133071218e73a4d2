// Initial values of parameters, computed on the host in double precision and rounded once: the same bits everywhere.
#pragma once
#include <functional>
#include <span>

#include "wholestep/random.h"
#include "wholestep/shape.h"

namespace ws {

/// Fills `values` (row-major, of `shape`) from the stream of `key`.
using Initializer = std::function<void(std::span<float> values, const Shape& shape, Key key)>;

namespace init {

/// Number of inputs that feed one output of a weight [.., in, out]: the product of all dims but the last.
int64_t fan_in(const Shape& shape);

Initializer constant(double value);
inline Initializer zeros() { return constant(0); }
inline Initializer ones() { return constant(1); }
/// N(0, stddev^2).
Initializer normal(double stddev);
/// N(0, 2 / fan_in): for layers followed by ReLU (He et al. 2015).
Initializer he_normal();
/// N(0, 1 / fan_in).
Initializer fan_in_normal();
/// Normal cut at two standard deviations and rescaled to variance 1 / fan_in (LeCun et al. 1998; flax's default for Linear).
Initializer truncated_lecun_normal();

}  // namespace init
}  // namespace ws
