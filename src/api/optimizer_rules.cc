// The update rules. Each line of arithmetic is in the order that its header documents; that order is part of the result's bits.
#include "support/error.h"
#include "wholestep/optimizers.h"

namespace ws {
namespace {

void check_unit(const char* what, double value) {
  if (!(value >= 0 && value < 1)) fail("{} is {}, but must lie in [0, 1)", what, value);
}

void check_not_negative(const char* what, double value) {
  if (!(value >= 0)) fail("{} is {}, but must be at least 0", what, value);
}

/// decay*old + (1 - decay)*value
Tensor running_average(const Tensor& old, const Tensor& value, double decay) {
  Tensor kept = old * decay;
  return kept + value * (1 - decay);
}

}  // namespace

SGD::SGD(const SGDOptions& options)
    : Optimizer("sgd", options.lr, options.momentum != 0 ? std::vector<Moment>{{"velocity"}} : std::vector<Moment>{}),
      options_(options) {
  check_unit("SGD's momentum", options.momentum);
  if (options.nesterov && options.momentum == 0) fail("SGD: Nesterov needs a momentum above 0");
}

Tensor SGD::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  const Tensor& w = parameter;
  if (options_.momentum == 0) return w - gradient * lr;
  double mu = options_.momentum;
  Variable& velocity = moments[0];
  Tensor push = options_.lr_in_velocity ? gradient * lr : gradient;
  Tensor moved = velocity.value() * mu + push;
  velocity.set(moved);
  if (options_.nesterov) moved = moved * mu + push;
  return options_.lr_in_velocity ? w - moved : w - moved * lr;
}

namespace {

template <class Moment>
std::vector<Moment> adam_moments(const std::vector<Moment>& more) {
  std::vector<Moment> all = {{"m"}, {"v"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

Adam::Adam(std::string family, const AdamOptions& options, const std::vector<Moment>& more)
    : Optimizer(std::move(family), options.lr, adam_moments(more)), options_(options),
      beta1_power_(add_counter("beta1_power", 1)), beta2_power_(add_counter("beta2_power", 1)) {
  check_unit("Adam's beta1", options.beta1);
  check_unit("Adam's beta2", options.beta2);
  check_not_negative("Adam's eps", options.eps);
}

void Adam::begin_step() {
  auto advance = [](Variable& power, double beta) {
    Tensor next = power.value() * beta;  // f64 []
    power.set(next);
    return (1.0 / (1.0 - next)).cast(DType::f32);
  };
  correction1_ = advance(beta1_power_, options_.beta1);
  correction2_ = advance(beta2_power_, options_.beta2);
}

Tensor Adam::direction(const Tensor& gradient, std::span<Variable> moments) const {
  Tensor m = running_average(moments[0], gradient, options_.beta1);
  Tensor v = running_average(moments[1], square(gradient), options_.beta2);
  moments[0].set(m);
  moments[1].set(v);
  Tensor m_hat = m * correction1_;
  return m_hat / (sqrt(v * correction2_) + options_.eps);
}

Tensor Adam::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  return parameter.value() - direction(gradient, moments) * lr;
}

AdamW::AdamW(const AdamWOptions& options)
    : Adam("adamw", {.lr = options.lr, .beta1 = options.beta1, .beta2 = options.beta2, .eps = options.eps}),
      weight_decay_(options.weight_decay), decays_(options.decays) {
  check_not_negative("AdamW's weight decay", options.weight_decay);
}

Tensor AdamW::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  const Tensor& w = parameter;
  Tensor move = direction(gradient, moments);
  if (weight_decay_ != 0 && decays(parameter) && (!decays_ || decays_(parameter))) move = move + w * weight_decay_;
  return w - move * lr;
}

RMSProp::RMSProp(const RMSPropOptions& options) : Optimizer("rmsprop", options.lr, {{"v"}}), options_(options) {
  check_unit("RMSProp's rho", options.rho);
  check_not_negative("RMSProp's eps", options.eps);
}

Tensor RMSProp::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  Tensor v = running_average(moments[0], square(gradient), options_.rho);
  moments[0].set(v);
  Tensor scale = options_.eps_inside_root ? sqrt(v + options_.eps) : sqrt(v) + options_.eps;
  return parameter.value() - gradient / scale * lr;
}

AdaGrad::AdaGrad(const AdaGradOptions& options)
    : Optimizer("adagrad", options.lr, {{"sum", options.initial_accumulator}}), options_(options) {
  check_not_negative("AdaGrad's eps", options.eps);
  check_not_negative("AdaGrad's initial accumulator", options.initial_accumulator);
}

Tensor AdaGrad::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  Tensor sum = moments[0].value() + square(gradient);
  moments[0].set(sum);
  return parameter.value() - gradient / (sqrt(sum) + options_.eps) * lr;
}

}  // namespace ws
