// Optimizers: rules that turn gradients into new parameter values, written in tensor ops, so that they run in the loop and
// compile into the step alike. A rule of one's own derives from Optimizer (examples/lion.cc):
//
//   ws::AdamW optimizer(model.parameters(), {.lr = 1e-3});
//   optimizer.update(ws::grad(loss, model.parameters()));
#pragma once
#include <concepts>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {

/// std::vector<Variable>, deduced: so that SGD({.lr = 0.1}) can only mean options.
template <class List>
concept ParameterList = std::same_as<List, std::vector<Variable>>;

/// Parameters that train otherwise than the rest.
struct ParameterGroup {
  std::function<bool(const Variable&)> contains;  ///< by name, shape..
  double lr_scale = 1;                            ///< times the optimizer's learning rate, schedules included; 0 holds them still
  bool decay = true;                              ///< false: neither AdamW's, Muon's nor Trainer's weight decay
};
/// Two or more dims: the weights of linear layers and tables, not norms and biases. {.contains = std::not_fn(is_matrix), .decay = false}
/// is the group that leaves norms and biases without decay.
bool is_matrix(const Variable& parameter);

class Optimizer : public Stateful {
 public:
  ~Optimizer() override = default;
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;
  Optimizer(const Optimizer&) = delete;  // two optimizers would share one state
  Optimizer& operator=(const Optimizer&) = delete;

  /// Names the parameters and makes their state. Once; the constructors that take parameters, and Trainer, do it.
  void attach(const std::vector<Variable>& parameters);
  bool attached() const { return attached_; }
  /// Applies one step. A parameter without gradient (the loss does not depend on it) stays as it is, state too, and is
  /// named once in a warning. An Error for a parameter that was not attached.
  void update(const Gradients& gradients);
  /// Never recompiles.
  void set_lr(double lr);
  /// As set, not as rounded to fp32.
  double lr() const;
  /// Forgets moments and counters.
  void reset();
  const std::vector<Variable>& parameters() const { return parameters_; }
  /// A parameter belongs to the first group that contains it, or to none. Before the first step; a compiled one keeps what it saw.
  void set_groups(std::vector<ParameterGroup> groups);
  /// Whether weight decay is for this parameter, as its group says.
  bool decays(const Variable& parameter) const;
  /// Moments, counters and the learning rate; an Error before attach.
  void collect_state(std::vector<Variable>& into) const override;
  /// What may be kept in part, row by row, by ranks that update those rows: the moments. An Error where step() mixes rows.
  virtual std::vector<Variable> rowwise_state() const;

 protected:
  /// One tensor kept per parameter, of its shape, named "FAMILY.NAME.PARAMETER".
  struct Moment {
    std::string name;
    double initial = 0;
  };
  /// `family` prefixes the names of state ("adam").
  Optimizer(std::string family, double lr, std::vector<Moment> moments = {});
  /// A number of the whole optimizer kept between steps, in f64: running products stay exact enough to replay.
  Variable add_counter(const std::string& name, double initial);
  /// Whether `moment` (by position) is kept for this parameter. Where not, step() gets an undefined Variable.
  virtual bool keeps(const Variable& parameter, size_t moment) const;
  /// Before the parameters of a step: advance counters.
  virtual void begin_step() {}
  /// The new value of one parameter. `moments` are in the order given to the constructor; replace them by set().
  virtual Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) = 0;

 private:
  struct Entry {
    std::vector<Variable> moments;  // undefined where keeps() says no
    double lr_scale = 1;
    bool decays = true, warned = false;
  };
  void assign_groups();
  std::string family_;
  Scalar lr_;
  double exact_lr_;
  std::vector<Moment> moments_;
  std::vector<ParameterGroup> groups_;
  std::vector<Variable> parameters_, counters_;
  std::vector<double> counter_starts_;
  std::vector<Entry> entries_;  // by position in parameters_
  std::map<const Variable::Slot*, size_t> positions_;
  bool attached_ = false;
};

struct SGDOptions {
  double lr = 0.01;
  double momentum = 0;
  bool nesterov = false;
  /// u = mu*u + lr*g; w -= u (dense_armor, Ruder): differs from the default only where lr changes.
  bool lr_in_velocity = false;
};

/// w -= lr*g; with momentum buf = mu*buf + g, w -= lr*buf; Nesterov w -= lr*(g + mu*buf).
class SGD final : public Optimizer {
 public:
  explicit SGD(const SGDOptions& options = {});
  template <ParameterList List>
  explicit SGD(const List& parameters, const SGDOptions& options = {}) : SGD(options) {
    attach(parameters);
  }

 protected:
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;

 private:
  SGDOptions options_;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
};

/// Kingma and Ba 2015. m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g^2; w -= lr * mhat / (sqrt(vhat) + eps), where
/// mhat = m * (1/(1-beta1^t)), vhat likewise; the reciprocals are computed in double and rounded once.
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {}) : Adam("adam", options) {}
  template <ParameterList List>
  explicit Adam(const List& parameters, const AdamOptions& options = {}) : Adam(options) {
    attach(parameters);
  }

 protected:
  /// Rules that build on Adam's may keep `more` moments behind its two.
  Adam(std::string family, const AdamOptions& options, const std::vector<Moment>& more = {});
  void begin_step() override;
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;
  /// mhat / (sqrt(vhat) + eps), moments advanced.
  Tensor direction(const Tensor& gradient, std::span<Variable> moments) const;

 private:
  AdamOptions options_;
  Variable beta1_power_, beta2_power_;  // f64 []: beta^t
  Tensor correction1_, correction2_;    // f32 []: 1/(1-beta^t), within a step
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// Which parameters decay; all where empty.
  std::function<bool(const Variable&)> decays = {};
};

/// Adam with decoupled decay (Loshchilov and Hutter 2019): w*(1 - lr*decay) - lr*direction, from the old weight, computed as
/// w - lr*(direction + decay*w): the factor 1 - lr*decay itself would lose most of a small lr*decay to rounding.
class AdamW final : public Adam {
 public:
  explicit AdamW(const AdamWOptions& options = {});
  template <ParameterList List>
  explicit AdamW(const List& parameters, const AdamWOptions& options = {}) : AdamW(options) {
    attach(parameters);
  }

 protected:
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;

 private:
  double weight_decay_;
  std::function<bool(const Variable&)> decays_;
};

struct MuonOptions {
  double lr = 0.02;  ///< of the matrices; above 0
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0;  ///< of the matrices, decoupled
  /// For all other parameters. Its rate follows the schedule too: it stays in proportion to the matrices' rate.
  AdamWOptions rest = {.lr = 3e-4};
  /// Which parameters are matrices of the body. Where empty: those of two dims, but for tables ("embedding" in the name) and for
  /// what is named "head" or "output". Always of two dims, whatever this says.
  std::function<bool(const Variable&)> is_body = {};
};

/// Muon (Jordan et al. 2024): buf = mu*buf + g; u = g + mu*buf, or buf without Nesterov;
/// w -= lr * (sqrt(max(1, outputs/inputs)) * orthogonalize(u) + decay*w), for w [inputs, outputs]. A zero gradient moves nothing.
class Muon final : public Adam {
 public:
  explicit Muon(const MuonOptions& options = {});
  template <ParameterList List>
  explicit Muon(const List& parameters, const MuonOptions& options = {}) : Muon(options) {
    attach(parameters);
  }

  /// An Error: matrices are orthogonalized whole.
  std::vector<Variable> rowwise_state() const override;

 protected:
  bool keeps(const Variable& parameter, size_t moment) const override;
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;

 private:
  bool in_body(const Variable& parameter) const;
  MuonOptions options_;
};

/// Nearly the orthogonal factor of g [m, n]: five rounds x = a*x + (b*A + c*A^2) x, A = x x^T, with a = 3.4445, b = -4.7750,
/// c = 2.0315, from x = g / (norm + 1e-7), which push each singular value towards 1. The shorter side is multiplied out. fp32; the
/// norm in double.
Tensor orthogonalize(const Tensor& g);

struct RMSPropOptions {
  double lr = 1e-3;
  double rho = 0.9;
  double eps = 1e-8;
  bool eps_inside_root = true;
};

/// v = rho*v + (1-rho)*g^2; w -= lr * g / sqrt(v + eps), or lr * g / (sqrt(v) + eps).
class RMSProp final : public Optimizer {
 public:
  explicit RMSProp(const RMSPropOptions& options = {});
  template <ParameterList List>
  explicit RMSProp(const List& parameters, const RMSPropOptions& options = {}) : RMSProp(options) {
    attach(parameters);
  }

 protected:
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;

 private:
  RMSPropOptions options_;
};

struct AdaGradOptions {
  double lr = 0.01;
  double eps = 1e-8;
  double initial_accumulator = 0;
};

/// s += g^2; w -= lr * g / (sqrt(s) + eps) (Duchi et al. 2011).
class AdaGrad final : public Optimizer {
 public:
  explicit AdaGrad(const AdaGradOptions& options = {});
  template <ParameterList List>
  explicit AdaGrad(const List& parameters, const AdaGradOptions& options = {}) : AdaGrad(options) {
    attach(parameters);
  }

 protected:
  Tensor step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) override;

 private:
  AdaGradOptions options_;
};

/// Euclidean norm of all gradients together, f64 []: squares and sums in double precision, so it cannot overflow.
Tensor global_norm(const Gradients& gradients);
/// Every gradient times limit/norm where norm >= limit, else unchanged bit for bit. limit <= 0 is an Error; a norm that is
/// not finite stops the step. `norm`, where given, receives the norm before clipping.
Gradients clip_by_global_norm(const Gradients& gradients, double limit, Tensor* norm = nullptr);
/// Every element of every gradient cut to [-limit, limit]; NaN stays NaN. limit <= 0 is an Error.
Gradients clip_by_value(const Gradients& gradients, double limit);

}  // namespace ws
