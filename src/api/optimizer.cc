// The base of all optimizers, and clipping.
#include <cmath>

#include "support/error.h"
#include "support/log.h"
#include "wholestep/optimizers.h"
#include "wholestep/precision.h"

namespace ws {
namespace {

Tensor scalar_f64(double value) { return Tensor::full({}, value, DType::f64); }

void check_lr(double lr) {
  if (!std::isfinite(lr) || lr < 0) fail("learning rate {} must be a number of at least 0", lr);
}

}  // namespace

Optimizer::Optimizer(std::string family, double lr, std::vector<Moment> moments)
    : family_(std::move(family)), lr_(family_ + ".lr", lr), exact_lr_(lr), moments_(std::move(moments)) {
  check_lr(lr);
}

Variable Optimizer::add_counter(const std::string& name, double initial) {
  counters_.emplace_back(family_ + "." + name, scalar_f64(initial));
  counter_starts_.push_back(initial);
  return counters_.back();
}

void Optimizer::attach(const std::vector<Variable>& parameters) {
  if (attached_) fail("this {} optimizer is attached to its parameters already; make one optimizer for each model", family_);
  for (const Variable& p : parameters) {
    if (!positions_.emplace(p.slot(), parameters_.size()).second) continue;  // tied: one parameter
    Entry entry;
    for (size_t k = 0; k < moments_.size(); ++k) {
      const Moment& m = moments_[k];
      entry.moments.push_back(keeps(p, k)
                                  ? Variable(family_ + "." + m.name + "." + p.name(), Tensor::full(p.value().shape(), m.initial))
                                  : Variable());
    }
    parameters_.push_back(p);
    entries_.push_back(std::move(entry));
  }
  attached_ = true;
  assign_groups();
}

bool Optimizer::keeps(const Variable&, size_t) const { return true; }

void Optimizer::set_groups(std::vector<ParameterGroup> groups) {
  for (const ParameterGroup& g : groups) {
    if (!g.contains) fail("parameter group: `contains` is empty; give a function of a Variable");
    if (!(g.lr_scale >= 0 && std::isfinite(g.lr_scale)))
      fail("parameter group: lr_scale {} must be a number of at least 0", g.lr_scale);
  }
  groups_ = std::move(groups);
  if (attached_) assign_groups();
}

void Optimizer::assign_groups() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    static const ParameterGroup none{};
    const ParameterGroup* group = &none;
    for (const ParameterGroup& g : groups_)
      if (g.contains(parameters_[i])) {
        group = &g;
        break;
      }
    entries_[i].lr_scale = group->lr_scale;
    entries_[i].decays = group->decay;
  }
}

bool Optimizer::decays(const Variable& parameter) const {
  auto found = positions_.find(parameter.slot());
  return found == positions_.end() || entries_[found->second].decays;
}

bool is_matrix(const Variable& parameter) { return parameter.value().rank() >= 2; }

void Optimizer::update(const Gradients& gradients) {
  if (!attached_)
    fail("this {} optimizer has no parameters yet; construct it with model.parameters(), or give it to a Trainer", family_);
  NoGrad no_grad;  // an update is not part of any loss
  ComputeDType full_precision(DType::f32);
  MatmulPrecisionScope full_products(MatmulPrecision::highest);
  begin_step();
  Tensor lr = lr_;
  for (size_t i = 0; i < gradients.parameters.size(); ++i) {
    Variable parameter = gradients.parameters[i];
    auto found = positions_.find(parameter.slot());
    if (found == positions_.end()) fail("parameter '{}' was not given to this {} optimizer", parameter.name(), family_);
    Entry& entry = entries_[found->second];
    if (!gradients.values[i].defined()) {
      if (!entry.warned)
        note("parameter '{}' has no gradient: the loss does not depend on it, and it stays as it is", parameter.name());
      entry.warned = true;
      continue;
    }
    Tensor own_lr = entry.lr_scale == 1 ? lr : lr * entry.lr_scale;
    parameter.set(step(parameter, gradients.values[i], own_lr, entry.moments));
  }
}

void Optimizer::set_lr(double lr) {
  check_lr(lr);
  lr_.set(lr);
  exact_lr_ = lr;
}

double Optimizer::lr() const {
  double rounded = lr_.get();  // the truth where a checkpoint has set it
  return static_cast<float>(exact_lr_) == static_cast<float>(rounded) ? exact_lr_ : rounded;
}

void Optimizer::reset() {
  for (size_t i = 0; i < counters_.size(); ++i) counters_[i].set(scalar_f64(counter_starts_[i]));
  for (Entry& entry : entries_)
    for (size_t k = 0; k < moments_.size(); ++k) {
      Variable& moment = entry.moments[k];
      if (moment.defined()) moment.set(Tensor::full(moment.value().shape(), moments_[k].initial));
    }
}

void Optimizer::collect_state(std::vector<Variable>& into) const {
  if (!attached_) fail("this {} optimizer has no parameters yet; construct it with model.parameters()", family_);
  into.push_back(lr_.variable());
  into.insert(into.end(), counters_.begin(), counters_.end());
  for (const Entry& entry : entries_)
    for (const Variable& moment : entry.moments)
      if (moment.defined()) into.push_back(moment);
}

std::vector<Variable> Optimizer::rowwise_state() const {
  std::vector<Variable> moments;
  for (const Entry& entry : entries_)
    for (const Variable& moment : entry.moments)
      if (moment.defined()) moments.push_back(moment);
  return moments;
}

Tensor global_norm(const Gradients& gradients) {
  Tensor total;
  for (const Tensor& g : gradients.values) {
    if (!g.defined()) continue;
    Tensor squares = square(g.cast(DType::f64)).sum();
    total = total.defined() ? total + squares : squares;
  }
  if (!total.defined()) fail("global norm: no parameter has a gradient; the loss does not depend on any of them");
  return sqrt(total);
}

Gradients clip_by_global_norm(const Gradients& gradients, double limit, Tensor* norm) {
  if (!(limit > 0)) fail("clipping: the limit {} must be above 0; leave clipping out to have none", limit);
  NoGrad no_grad;
  Tensor measured = check_finite(global_norm(gradients), "gradient norm");
  if (norm) *norm = measured;
  Tensor limit_f64 = scalar_f64(limit);
  Tensor clipped = le(limit_f64, measured);                                            // bool []
  Tensor factor = (limit_f64 / where(clipped, measured, limit_f64)).cast(DType::f32);  // 1 where unused: never 1/0
  Gradients result = gradients;
  for (Tensor& g : result.values)
    if (g.defined()) g = where(clipped, g * factor, g);
  return result;
}

Gradients clip_by_value(const Gradients& gradients, double limit) {
  if (!(limit > 0)) fail("clipping: the limit {} must be above 0; leave clipping out to have none", limit);
  NoGrad no_grad;
  Gradients result = gradients;
  for (Tensor& g : result.values)
    if (g.defined()) g = minimum(maximum(g, Tensor::full({}, -limit, g.dtype())), Tensor::full({}, limit, g.dtype()));
  return result;
}

}  // namespace ws
