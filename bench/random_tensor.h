// Inputs of the benchmarks that run compiled tensors.
#pragma once
#include <random>
#include <vector>

#include "wholestep/tensor.h"

namespace ws::bench {

/// Uniform in [-1, 1).
inline Tensor random_tensor(const Shape& shape, unsigned seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  std::mt19937 random(seed);
  for (float& x : values) x = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  return Tensor::from(std::span<const float>(values), shape);
}

}  // namespace ws::bench
