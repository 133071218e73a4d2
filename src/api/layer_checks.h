// Input checks shared by the layers.
#pragma once
#include <cstdint>

#include "support/error.h"
#include "wholestep/module.h"

namespace ws {

/// Sizes given to a layer's constructor.
inline void check_positive(const char* layer, const Module& module, const char* what, int64_t value) {
  if (value < 1) fail("{} {}: {} is {}, but must be at least 1", layer, module.display_name(), what, value);
}

/// x [.., features].
inline void check_features(const char* layer, const Module& module, const Tensor& x, int64_t features, int min_rank = 1) {
  if (x.rank() < min_rank)
    fail("{} {}: input {} has {} dims, but needs at least {}", layer, module.display_name(), x.shape().str(), x.rank(), min_rank);
  if (x.shape().back() != features)
    fail("{} {}: input {} has {} features in its last dim, but the layer was built for {}", layer, module.display_name(),
         x.shape().str(), x.shape().back(), features);
}

/// x [B,T,C].
inline void check_sequence(const char* layer, const Module& module, const Tensor& x) {
  if (x.rank() != 3) fail("{} {}: input {} must be [batch, positions, features]", layer, module.display_name(), x.shape().str());
}

}  // namespace ws
