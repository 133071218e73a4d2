#include "wholestep/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "api/batches.h"
#include "support/error.h"
#include "support/log.h"

namespace ws {
namespace {

/// Puts the model into a mode for a while.
class ModeScope {
 public:
  ModeScope(Module& model, bool training) : model_(model), before_(model.training()) {
    if (before_ != training) model_.train(training);
  }
  ~ModeScope() {
    if (model_.training() != before_) model_.train(before_);
  }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  Module& model_;
  bool before_;
};

/// Validation loss so far, and the best weights. They are put back at the end, however it ends.
class EarlyStopping {
 public:
  EarlyStopping(const Module& model, const FitOptions& options) : patience_(options.patience), min_delta_(options.min_delta) {
    if (patience_) model.collect_state(state_);
  }
  ~EarlyStopping() {
    for (size_t i = 0; i < best_values_.size(); ++i) state_[i].set(best_values_[i]);
  }
  EarlyStopping(const EarlyStopping&) = delete;
  EarlyStopping& operator=(const EarlyStopping&) = delete;

  /// Returns whether to stop.
  bool after_epoch(int epoch, double val_loss) {
    if (val_loss < best_ - min_delta_) {  // false for NaN, which is never best
      best_ = val_loss;
      best_epoch_ = epoch;
      waited_ = 0;
      best_values_.clear();
      for (const Variable& v : state_) best_values_.push_back(v.value());  // handles: the next step copies instead of overwriting
    } else {
      ++waited_;
    }
    return patience_ && waited_ >= *patience_;
  }
  std::optional<int> best_epoch() const { return best_epoch_; }

 private:
  std::optional<int> patience_;
  double min_delta_, best_ = std::numeric_limits<double>::infinity();
  std::optional<int> best_epoch_;
  int waited_ = 0;
  std::vector<Variable> state_;
  std::vector<Tensor> best_values_;
};

void check_fit_options(const FitOptions& o) {
  if (o.epochs < 1) fail("fit: epochs is {}, but must be at least 1", o.epochs);
  if (o.batch_size < 1) fail("fit: batch_size is {}, but must be at least 1", o.batch_size);
  if (o.accumulate < 1) fail("fit: accumulate is {}, but must be at least 1", o.accumulate);
  if (o.X_val.defined() != o.y_val.defined()) fail("fit: give both X_val and y_val, or neither");
  if (o.patience && *o.patience < 1) fail("fit: patience is {}, but must be at least 1", *o.patience);
  if (o.patience && !o.X_val.defined()) fail("fit: patience needs a validation set: give X_val and y_val");
  if (!(o.min_delta >= 0)) fail("fit: min_delta is {}, but must be at least 0", o.min_delta);
}

}  // namespace

struct Trainer::Impl {
  Impl(Module& m, Forward f, Loss l, Kept o, const TrainerOptions& opt)
      : model(m), forward(std::move(f)), loss(std::move(l)), owned(std::move(o.owned)), optimizer(*o.used), options(opt) {
    if (options.clip_norm && !(*options.clip_norm > 0))
      fail("trainer: clip_norm {} must be above 0; leave it out to have no clipping", *options.clip_norm);
    if (options.clip_value && !(*options.clip_value > 0))
      fail("trainer: clip_value {} must be above 0; leave it out to have no clipping", *options.clip_value);
    if (!(options.weight_decay >= 0)) fail("trainer: weight_decay {} must be at least 0", options.weight_decay);
    if (!loss) fail("trainer: the loss is empty");
    parameters = model.parameters();
    buffers = model.buffers();
    if (!optimizer.attached()) optimizer.attach(parameters);
    if (!options.groups.empty()) optimizer.set_groups(options.groups);
  }

  Gradients gradients_of(const Tensor& x, const Tensor& y) {
    Tensor value = loss(forward(x), y);
    if (value.rank() != 0) fail("trainer: the loss has shape {}, but must be a scalar; take its mean", value.shape().str());
    return grad(value, parameters);
  }

  /// Clipping, decay and the optimizer. Returns the loss, and the norm where it is recorded.
  std::vector<Tensor> apply(Gradients gradients) {
    Tensor norm;
    if (options.clip_norm) {
      gradients = clip_by_global_norm(gradients, *options.clip_norm, &norm);
    } else if (options.record_grad_norm || options.on_nonfinite == OnNonFinite::skip) {
      NoGrad no_grad;
      norm = check_finite(global_norm(gradients), "gradient norm");
    }
    if (options.clip_value) gradients = clip_by_value(gradients, *options.clip_value);
    if (options.weight_decay > 0) apply_decay(gradients);
    optimizer.update(gradients);
    if (options.record_grad_norm) return {gradients.loss, norm};
    return {gradients.loss};
  }

  /// What a call does with its batch.
  enum class Part : uint8_t {
    update,  // a whole step
    gather,  // adds share * gradient to the accumulators
    finish,  // the same, then the update
  };

  std::vector<Tensor> run_part(Part part, const Tensor& x, const Tensor& y) {
    Gradients gradients = gradients_of(x, y);
    if (part == Part::update) return apply(std::move(gradients));
    {
      NoGrad no_grad;
      Tensor of_window = share;  // samples here / samples in the window
      gradients.loss = loss_sum.value() + gradients.loss * of_window;
      loss_sum.set(part == Part::gather ? gradients.loss : Tensor(0.0));
      for (size_t i = 0; i < gradients.parameters.size(); ++i) {
        Tensor& gradient = gradients.values[i];
        if (!gradient.defined()) continue;
        Variable& sum = accumulators[gradients.parameters[i].slot()];
        gradient = sum.value() + gradient * of_window;
        sum.set(part == Part::gather ? gradient : Tensor::zeros(gradient.shape()));
      }
    }
    if (part == Part::gather) return {gradients.loss};
    return apply(std::move(gradients));
  }

  void make_accumulators() {
    for (const Variable& p : parameters)
      accumulators.try_emplace(p.slot(), "accumulated." + p.name(), Tensor::zeros(p.value().shape()));
  }
  void clear_accumulators() {
    for (auto& [slot, sum] : accumulators) sum.set(Tensor::zeros(sum.value().shape()));
    loss_sum.set(Tensor(0.0));
  }

  void apply_decay(Gradients& gradients) {
    NoGrad no_grad;
    Tensor rate;  // eta * decay
    if (options.decay == Decay::decoupled) rate = Tensor(eta) * options.weight_decay;
    for (size_t i = 0; i < gradients.parameters.size(); ++i) {
      Variable parameter = gradients.parameters[i];
      Tensor& gradient = gradients.values[i];
      const Tensor& w = parameter.value();
      if (!gradient.defined() || w.rank() < 2 || !optimizer.decays(parameter)) continue;
      if (options.decay == Decay::l2)
        gradient = gradient + w * options.weight_decay;
      else
        parameter.set(w - w * rate);
    }
  }

  struct StepResult {
    Tensor loss, grad_norm = {};
    bool skipped = false;
  };

  StepResult step(const Tensor& x, const Tensor& y) {
    return guarded([&] { return result_of(call(Part::update, x, y)); });
  }

  /// One update from batches [first, first + count), weighted by their samples.
  StepResult step(const Batches& batches, int64_t first, int64_t count) {
    double samples = 0;
    for (int64_t i = 0; i < count; ++i) samples += static_cast<double>(batches.num_samples(first + i));
    for (int64_t i = 0;; ++i) {
      auto [x, y] = batches[first + i];
      share.set(static_cast<double>(batches.num_samples(first + i)) / samples);
      bool last = i + 1 == count;
      StepResult result = guarded(
          [&, &x = x, &y = y] { return last ? result_of(call(Part::finish, x, y)) : StepResult{call(Part::gather, x, y)[0]}; });
      if (last || result.skipped) return result;
    }
  }

  StepResult result_of(const std::vector<Tensor>& results) {
    ++steps_done;
    return {results[0], results.size() > 1 ? results[1] : Tensor()};
  }

  template <class F>
  StepResult guarded(F&& body) {
    // A forward pass of the loop has moved buffers before its loss is checked; a compiled step that fails writes nothing back.
    std::vector<Tensor> buffers_before;
    if (!options.compile)
      for (const Variable& b : buffers) buffers_before.push_back(b.value());
    try {
      return body();
    } catch (const RuntimeError& error) {
      for (size_t i = 0; i < buffers_before.size(); ++i) buffers[i].set(buffers_before[i]);
      clear_accumulators();
      const bool not_finite = dynamic_cast<const NonFiniteError*>(&error) != nullptr;
      if (not_finite && options.on_nonfinite == OnNonFinite::skip) {
        Tensor nan(std::numeric_limits<double>::quiet_NaN());
        return {nan, options.record_grad_norm ? nan : Tensor(), true};
      }
      const std::string message = fmt::format("training step {}: {}", steps_done + 1, error.what());
      if (not_finite) throw NonFiniteError(message);
      throw RuntimeError(message);
    }
  }

  std::vector<Tensor> call(Part part, const Tensor& x, const Tensor& y) {
    if (!options.compile) return run_part(part, x, y);
    std::optional<Compiled>& program = programs[static_cast<size_t>(part)];
    if (!program) {
      std::vector<Variable> state;
      model.collect_state(state);
      optimizer.collect_state(state);
      state.push_back(eta.variable());
      if (part != Part::update) {
        state.push_back(share.variable());
        state.push_back(loss_sum);
        for (const Variable& p : parameters) state.push_back(accumulators.at(p.slot()));
      }
      const char* name = part == Part::gather ? "gather_gradients" : "train_step";
      program.emplace([this, part](std::span<const Tensor> in) { return run_part(part, in[0], in[1]); }, std::move(state),
                      JitOptions{.name = name, .num_threads = options.num_threads});
    }
    const Tensor inputs[] = {x, y};
    return (*program)(inputs);
  }

  /// forward, or forward and loss, in evaluation mode: a program of its own.
  Tensor evaluate_batch(const Tensor& x, const Tensor& y) {
    auto function = [this](std::span<const Tensor> in) -> std::vector<Tensor> {
      Tensor prediction = forward(in[0]);
      return {in.size() > 1 ? loss(prediction, in[1]) : prediction};
    };
    NoGrad no_grad;
    const Tensor inputs[] = {x, y};
    std::span<const Tensor> used(inputs, y.defined() ? 2 : 1);
    if (!options.compile) return function(used)[0];
    std::optional<Compiled>& program = y.defined() ? compiled_evaluation : compiled_prediction;
    if (!program) {
      std::vector<Variable> state;
      model.collect_state(state);
      program.emplace(
          function, std::move(state),
          JitOptions{
              .name = y.defined() ? "evaluate" : "predict", .num_threads = options.num_threads, .announce_recompiles = false});
    }
    return (*program)(used)[0];
  }

  /// Traces the model on `x` without running it: what a layer refuses (batch norm: one value a feature) is found before training.
  void try_forward(const Tensor& x) {
    std::vector<Variable> state;
    model.collect_state(state);
    Compiled probe([this](std::span<const Tensor> in) { return std::vector<Tensor>{forward(in[0])}; }, std::move(state),
                   JitOptions{.name = "last_batch", .num_threads = options.num_threads, .announce_recompiles = false});
    probe.prepare({&x, 1});
  }

  void set_rate(const Position& at) {
    if (!options.schedule) return;
    double lr = options.schedule(at);
    if (!std::isfinite(lr) || lr < 0) fail("schedule: learning rate {} at epoch {} must be a number of at least 0", lr, at.epoch);
    if (lr != optimizer.lr()) optimizer.set_lr(lr);
    if (!first_lr) first_lr = lr;
    double ratio = *first_lr != 0 ? lr / *first_lr : 0;
    if (ratio != eta.get()) eta.set(ratio);
  }

  Module& model;
  Forward forward;
  Loss loss;
  std::unique_ptr<Optimizer> owned;
  Optimizer& optimizer;
  TrainerOptions options;
  std::vector<Variable> parameters, buffers;
  Scalar eta{"trainer.eta", 1};
  std::optional<double> first_lr;  // of this fit
  Scalar share{"trainer.share", 1};
  Variable loss_sum{"trainer.loss_sum", Tensor(0.0)};
  std::map<const Variable::Slot*, Variable> accumulators;  // by parameter
  int64_t steps_done = 0;
  std::optional<Compiled> programs[3], compiled_evaluation, compiled_prediction;  // programs: by Part
};

Trainer::Trainer(Module& model, Forward forward, Loss loss, Kept optimizer, const TrainerOptions& options)
    : impl_(std::make_unique<Impl>(model, std::move(forward), std::move(loss), std::move(optimizer), options)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

History Trainer::fit(const Tensor& X, const Tensor& y, const FitOptions& options) {
  check_fit_options(options);
  if (!y.defined()) fail("fit: y is undefined");
  check_samples(X, y, "fit");
  bool validate = options.X_val.defined();
  if (validate) check_samples(options.X_val, options.y_val, "fit's validation set");
  Batches batches(X, y, options.batch_size, options.drop_last);
  if (batches.count() == 0) fail("fit: drop_last leaves nothing of {} samples in batches of {}", X.dim(0), options.batch_size);

  Impl& t = *impl_;
  ModeScope mode(t.model, true);
  EarlyStopping early(t.model, options);
  History history;
  auto position = [&](int epoch, int64_t batch) {
    return Position{epoch + static_cast<double>(batch) / static_cast<double>(batches.count()), t.steps_done,
                    validate ? history.val_loss : history.train_loss};
  };
  t.first_lr.reset();
  if (options.accumulate > 1) t.make_accumulators();
  const int64_t left_over = X.dim(0) % options.batch_size;
  if (left_over == 1 && options.batch_size > 1 && !options.drop_last) t.try_forward(X.slice(0, 0, 1).contiguous());

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    if (options.shuffle) batches.shuffle(options.key.fold(static_cast<uint64_t>(epoch)));
    std::vector<Impl::StepResult> steps;
    std::vector<int64_t> samples;
    for (int64_t b = 0; b < batches.count(); b += options.accumulate) {
      t.set_rate(position(epoch, b));
      if (b == 0) history.lr.push_back(t.optimizer.lr());
      int64_t count = std::min(options.accumulate, batches.count() - b);
      if (options.accumulate == 1) {
        auto [batch_x, batch_y] = batches[b];
        steps.push_back(t.step(batch_x, batch_y));
      } else {
        steps.push_back(t.step(batches, b, count));
      }
      samples.push_back(0);
      for (int64_t i = 0; i < count; ++i) samples.back() += batches.num_samples(b + i);
      const Impl::StepResult& s = steps.back();
      if (options.on_step)
        options.on_step({epoch, b, batches.count(), t.steps_done, samples.back(), s.loss, s.grad_norm, s.skipped});
    }
    double sum = 0, counted = 0;  // read back once an epoch, so that a step never waits for its loss
    for (size_t i = 0; i < steps.size(); ++i) {
      history.step_losses.push_back(steps[i].loss.item());
      if (steps[i].grad_norm.defined()) history.grad_norms.push_back(steps[i].grad_norm.item());
      history.skipped_steps += steps[i].skipped;
      if (steps[i].skipped) continue;
      sum += static_cast<double>(samples[i]) * history.step_losses.back();
      counted += static_cast<double>(samples[i]);
    }
    history.train_loss.push_back(sum / counted);
    history.stopped_epoch = epoch;
    EpochInfo info{epoch, history.train_loss.back(), {}, history.lr.back()};
    bool stop = false;
    if (validate) {
      info.val_loss = evaluate(options.X_val, options.y_val, options.batch_size);
      history.val_loss.push_back(*info.val_loss);
      stop = early.after_epoch(epoch, *info.val_loss);
      history.best_epoch = early.best_epoch();
    }
    if (options.verbose)
      note("epoch {}: train loss {:.6g}{}, lr {:.6g}", epoch, info.train_loss,
           info.val_loss ? fmt::format(", validation loss {:.6g}", *info.val_loss) : "", info.lr);
    if (options.on_epoch) options.on_epoch(info);
    if (stop) break;
  }
  return history;
}

double Trainer::evaluate(const Tensor& X, const Tensor& y, int64_t batch_size) {
  if (!y.defined()) fail("evaluate: y is undefined");
  if (batch_size < 1) fail("evaluate: batch_size is {}, but must be at least 1", batch_size);
  auto num_samples = static_cast<double>(check_samples(X, y, "evaluate"));
  ModeScope mode(impl_->model, false);
  Batches batches(X, y, batch_size, false);
  std::vector<Tensor> losses;
  for (int64_t b = 0; b < batches.count(); ++b) {
    auto [batch_x, batch_y] = batches[b];
    losses.push_back(impl_->evaluate_batch(batch_x, batch_y));
  }
  double sum = 0;
  for (size_t b = 0; b < losses.size(); ++b)
    sum += static_cast<double>(batches.num_samples(static_cast<int64_t>(b))) * losses[b].item();
  return sum / num_samples;
}

Tensor Trainer::predict(const Tensor& X, int64_t batch_size) {
  if (batch_size < 1) fail("predict: batch_size is {}, but must be at least 1", batch_size);
  check_samples(X, Tensor(), "predict");
  ModeScope mode(impl_->model, false);
  NoGrad no_grad;
  Batches batches(X, Tensor(), batch_size, false);
  std::vector<Tensor> parts;
  for (int64_t b = 0; b < batches.count(); ++b) parts.push_back(impl_->evaluate_batch(batches[b].first, Tensor()));
  return parts.size() == 1 ? parts[0] : concatenate(parts, 0);
}

Tensor Trainer::train_step(const Tensor& x, const Tensor& y) {
  ModeScope mode(impl_->model, true);
  return impl_->step(x, y).loss;
}

Optimizer& Trainer::optimizer() { return impl_->optimizer; }
void Trainer::reset_optimizer() { impl_->optimizer.reset(); }
int64_t Trainer::steps_done() const { return impl_->steps_done; }

Compiled& Trainer::compiled_step() {
  if (!impl_->options.compile) fail("trainer: there is no compiled step; construct it with compile = true");
  for (auto part : {Impl::Part::update, Impl::Part::finish})
    if (auto& program = impl_->programs[static_cast<size_t>(part)]) return *program;
  fail("trainer: the step is compiled at the first batch; run one first");
}

}  // namespace ws
