// Learning-rate schedules: numbers computed outside the compiled step and passed in, so that changing them never recompiles.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

namespace ws {

/// Where training stands.
struct Position {
  double epoch = 0;  ///< fractional: epoch + batch / batches, from 0
  int64_t step = 0;  ///< updates done before this one, over all fits
  /// Of the epochs that this fit has finished: the validation loss where there is one, else the training loss. Valid during the call.
  std::span<const double> epoch_losses = {};
};

/// The learning rate at a position. Any function will do.
using Schedule = std::function<double(const Position&)>;

struct ConstantLR {
  double lr;
  double operator()(const Position&) const { return lr; }
};

/// lr * gamma^floor(epoch / step).
struct StepLR {
  double lr, step, gamma;
  double operator()(const Position& at) const;
};

/// Cosine from lr_max to lr_min over t0 epochs, then again over t0 * t_mult, and so on (Loshchilov and Hutter 2017).
struct CosineWarmRestarts {
  double lr_max, lr_min = 0, t0 = 10, t_mult = 1;
  double operator()(const Position& at) const;
};

/// Linear from lr_start to lr_end over `warmup` epochs, then flat.
struct LinearWarmup {
  double lr_start, lr_end, warmup;
  double operator()(const Position& at) const;
};

/// scale * width^-0.5 * min(epoch^-0.5, epoch * warmup^-1.5) (Vaswani et al. 2017, in epochs): a linear rise from 0 over `warmup`
/// epochs, then a fall with the root.
struct Noam {
  double width, warmup, scale = 1;
  double operator()(const Position& at) const;
};

/// By step, as optax: linear from `start` to `peak` over `warmup` steps, cosine down to `end` at step `total`, then flat.
/// `total` includes the warm-up and is at least 1.
struct WarmupCosine {
  double peak;
  int64_t warmup, total;
  double start = 0, end = 0;
  double operator()(const Position& at) const;
};

/// By step, as optax: lr * rate^(step / steps); with staircase the exponent is rounded down.
struct ExponentialLR {
  double lr, rate;
  int64_t steps = 1;
  bool staircase = false;
  double operator()(const Position& at) const;
};

/// By step, as optax: (start - end) * (1 - step/total)^power + end, flat after `total`.
struct PolynomialLR {
  double start, end;
  int64_t total;
  double power = 1;
  double operator()(const Position& at) const;
};

/// One cycle (Smith and Topin 2018) by step, with cosines: from peak/div up to `peak` over the first `rise` of `total` steps, then
/// down to peak/(div*final_div), then flat.
struct OneCycle {
  double peak;
  int64_t total;
  double rise = 0.3, div = 25, final_div = 1e4;
  double operator()(const Position& at) const;
};

/// lr, times `factor` after every `patience` epochs in a row without a loss below best - min_delta, but never under min_lr. Reads
/// Position::epoch_losses, so that it keeps no state: a fit begins at lr.
struct ReduceOnPlateau {
  double lr;
  double factor = 0.1;
  int patience = 10;
  double min_delta = 0, min_lr = 0;
  double operator()(const Position& at) const;
};

}  // namespace ws
