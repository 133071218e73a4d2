// Losses: scalars, in fp32, from predictions and targets.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "wholestep/tensor.h"

namespace ws {

/// Any function of (prediction, target) that returns a scalar.
using Loss = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;

/// Mean of (prediction - target)^2 over all elements. The shapes must be the same: (N,1) against (N) is an Error, not a broadcast.
Tensor mse(const Tensor& prediction, const Tensor& target);

struct CrossEntropyOptions {
  /// Rows with this label count for nothing, in the sum, the mean or the smoothing.
  std::optional<int64_t> ignore_index = {};
  /// The target distribution is (1 - smoothing) at the label plus smoothing / C everywhere.
  double smoothing = 0;
};

/// Mean over rows of -log softmax(logits)[label]. logits [.., C]; labels i32 [..]. Computed from differences of logits (the
/// maximum is subtracted first). A label outside [0, C) stops the step before any weight changes. All rows ignored: 0.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});

// The same as values, for Trainer.
struct MSE {
  Tensor operator()(const Tensor& prediction, const Tensor& target) const { return mse(prediction, target); }
};
struct SoftmaxCrossEntropy {
  CrossEntropyOptions options = {};
  Tensor operator()(const Tensor& logits, const Tensor& labels) const { return cross_entropy(logits, labels, options); }
};

}  // namespace ws
