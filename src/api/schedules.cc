#include "wholestep/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "support/error.h"

namespace ws {

double StepLR::operator()(const Position& at) const {
  if (!(step > 0)) fail("step schedule: its step is {} epochs, but must be above 0", step);
  return lr * std::pow(gamma, std::floor(at.epoch / step));
}

double CosineWarmRestarts::operator()(const Position& at) const {
  if (!(t0 > 0) || !(t_mult >= 1)) fail("cosine warm restarts: t0 {} must be above 0 and t_mult {} at least 1", t0, t_mult);
  double period = t0, into = at.epoch;
  if (t_mult == 1) {
    into = std::fmod(into, period);
  } else {
    while (into >= period) {
      into -= period;
      period *= t_mult;
    }
  }
  return lr_min + 0.5 * (lr_max - lr_min) * (1 + std::cos(std::numbers::pi * into / period));
}

double LinearWarmup::operator()(const Position& at) const {
  if (at.epoch >= warmup) return lr_end;
  return lr_start + (lr_end - lr_start) * at.epoch / warmup;
}

double WarmupCosine::operator()(const Position& at) const {
  if (total < 1 || warmup < 0 || warmup > total)
    fail("warm-up cosine: warm-up {} must lie in [0, total] and total {} be at least 1", warmup, total);
  if (at.step < warmup) return start + (peak - start) * static_cast<double>(at.step) / static_cast<double>(warmup);
  if (at.step >= total) return end;  // also where the warm-up is the whole run
  double done = static_cast<double>(at.step - warmup) / static_cast<double>(total - warmup);
  return end + (peak - end) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace ws
