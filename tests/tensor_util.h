// What the tests of tensors share.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wholestep/error.h"
#include "wholestep/tensor.h"

namespace ws {

/// Numbers from -1 to 1, by seed.
inline Tensor random_floats(const Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) * 2 - 1;
  }
  return Tensor::from(std::span<const float>(values), shape);
}

/// Of the Error that f throws.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "(nothing was thrown)";
}

}  // namespace ws
