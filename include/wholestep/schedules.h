// Learning-rate schedules: numbers computed outside the compiled step and passed in, so that changing them never recompiles.
#pragma once
#include <cstdint>
#include <functional>

namespace ws {

/// Where training stands.
struct Position {
  double epoch = 0;  ///< fractional: epoch + batch / batches, from 0
  int64_t step = 0;  ///< updates done before this one, over all fits
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

/// By step, as optax: linear from `start` to `peak` over `warmup` steps, cosine down to `end` at step `total`, then flat.
/// `total` includes the warm-up and is at least 1.
struct WarmupCosine {
  double peak;
  int64_t warmup, total;
  double start = 0, end = 0;
  double operator()(const Position& at) const;
};

}  // namespace ws
