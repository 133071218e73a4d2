#include "wholestep/schedules.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

double Noam::operator()(const Position& at) const {
  if (!(width > 0) || !(warmup > 0)) fail("noam schedule: width {} and warm-up {} must be above 0", width, warmup);
  double rise = at.epoch * std::pow(warmup, -1.5);
  return scale / std::sqrt(width) * (at.epoch < warmup ? rise : 1 / std::sqrt(at.epoch));
}

double WarmupCosine::operator()(const Position& at) const {
  if (total < 1 || warmup < 0 || warmup > total)
    fail("warm-up cosine: warm-up {} must lie in [0, total] and total {} be at least 1", warmup, total);
  if (at.step < warmup) return start + (peak - start) * static_cast<double>(at.step) / static_cast<double>(warmup);
  if (at.step >= total) return end;  // also where the warm-up is the whole run
  double done = static_cast<double>(at.step - warmup) / static_cast<double>(total - warmup);
  return end + (peak - end) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

double ExponentialLR::operator()(const Position& at) const {
  if (steps < 1 || !(rate > 0))
    fail("exponential schedule: its steps {} must be at least 1 and its rate {} above 0", steps, rate);
  double exponent = static_cast<double>(at.step) / static_cast<double>(steps);
  return lr * std::pow(rate, staircase ? std::floor(exponent) : exponent);
}

double PolynomialLR::operator()(const Position& at) const {
  if (total < 1) fail("polynomial schedule: total {} must be at least 1", total);
  double left = 1 - static_cast<double>(std::min(at.step, total)) / static_cast<double>(total);
  return (start - end) * std::pow(left, power) + end;
}

double OneCycle::operator()(const Position& at) const {
  if (total < 1 || !(rise >= 0 && rise <= 1) || !(div > 0) || !(final_div > 0))
    fail("one cycle: total {} must be at least 1, rise {} lie in [0, 1], div {} and final_div {} be above 0", total, rise, div,
         final_div);
  auto top = static_cast<int64_t>(rise * static_cast<double>(total));
  auto between = [](double from, double to, double share) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * share));
  };
  double low = peak / div, last = low / final_div;
  if (at.step < top) return between(low, peak, static_cast<double>(at.step) / static_cast<double>(top));
  if (at.step >= total) return last;
  return between(peak, last, static_cast<double>(at.step - top) / static_cast<double>(total - top));
}

double ReduceOnPlateau::operator()(const Position& at) const {
  if (patience < 1 || !(factor > 0 && factor < 1))
    fail("reduce on plateau: patience {} must be at least 1 and factor {} lie in (0, 1)", patience, factor);
  double now = lr, best = std::numeric_limits<double>::infinity();
  int waited = 0;
  for (double loss : at.epoch_losses) {
    if (loss < best - min_delta) {  // false for NaN
      best = loss;
      waited = 0;
    } else if (++waited == patience) {
      now = std::max(now * factor, min_lr);
      waited = 0;
    }
  }
  return now;
}

}  // namespace ws
