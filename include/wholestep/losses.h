// Losses: scalars, in fp32, from predictions and targets.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "wholestep/tensor.h"

namespace ws {

/// Any function of (prediction, target) that returns a scalar.
using Loss = std::function<Tensor(const Tensor& prediction, const Tensor& target)>;

/// Mean of (prediction - target)^2 over all elements. The shapes must be the same: (N,1) against (N) is an Error, not a broadcast.
Tensor mse(const Tensor& prediction, const Tensor& target);

/// Mean of |prediction - target|. Shapes as mse. The gradient at equality is 0.
Tensor mae(const Tensor& prediction, const Tensor& target);

/// Mean over all elements of d^2/2 where |d| <= delta, else delta*(|d| - delta/2), with d = prediction - target (Huber 1964).
/// Shapes as mse; delta above 0.
Tensor huber(const Tensor& prediction, const Tensor& target, double delta = 1);

/// Mean binary cross-entropy of logits x against targets y in [0, 1], as max(x, 0) - x*y + log(1 + exp(-|x|)), which neither
/// overflows nor loses small values. Shapes as mse.
Tensor bce_with_logits(const Tensor& logits, const Tensor& target);

struct CrossEntropyOptions {
  /// Rows with this label count for nothing, in the sum, the mean or the smoothing.
  std::optional<int64_t> ignore_index = {};
  /// The target distribution is (1 - smoothing) at the label plus smoothing / C everywhere.
  double smoothing = 0;
  /// One weight a class, at least 0. A row counts by the weight of its label, in the sum and in the mean's divisor. Empty: all 1.
  std::vector<double> class_weights = {};
};

/// Mean over rows of -log softmax(logits)[label]. logits [.., C]; labels i32 [..]. Computed from differences of logits (the
/// maximum is subtracted first). With class weights: the sum of weight * loss over the sum of weights. A label outside [0, C) stops the step before any weight changes. All rows ignored, or of
/// weight 0: loss 0 with zero gradient.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options = {});

// The same as values, for Trainer.
struct MSE {
  Tensor operator()(const Tensor& prediction, const Tensor& target) const { return mse(prediction, target); }
};
struct MAE {
  Tensor operator()(const Tensor& prediction, const Tensor& target) const { return mae(prediction, target); }
};
struct Huber {
  double delta = 1;
  Tensor operator()(const Tensor& prediction, const Tensor& target) const { return huber(prediction, target, delta); }
};
struct BCEWithLogits {
  Tensor operator()(const Tensor& logits, const Tensor& target) const { return bce_with_logits(logits, target); }
};
struct SoftmaxCrossEntropy {
  CrossEntropyOptions options = {};
  /// The divisor of the mean over these labels: how many are not ignored, or the sum of their class weights.
  double weight_of(const Tensor& labels) const;
  Tensor operator()(const Tensor& logits, const Tensor& labels) const { return cross_entropy(logits, labels, options); }
};

}  // namespace ws
