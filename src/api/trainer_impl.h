// Trainer's inside: what one step does with its batch, and the programs that do it. fit.cc makes epochs of it.
#pragma once
#include <cmath>
#include <limits>
#include <map>

#include "api/batches.h"
#include "support/error.h"
#include "wholestep/distributed.h"
#include "wholestep/precision.h"
#include "wholestep/trainer.h"

namespace ws {

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

struct Trainer::Impl {
  Impl(Module& m, Forward f, Loss l, Kept o, const TrainerOptions& opt)
      : model(m), forward(std::move(f)), loss(std::move(l)), owned(std::move(o.owned)), optimizer(*o.used), options(opt) {
    if (options.clip_norm && !(*options.clip_norm > 0))
      fail("trainer: clip_norm {} must be above 0; leave it out to have no clipping", *options.clip_norm);
    if (options.clip_value && !(*options.clip_value > 0))
      fail("trainer: clip_value {} must be above 0; leave it out to have no clipping", *options.clip_value);
    if (options.memory_budget_bytes < 0)
      fail("trainer: memory_budget_bytes {} must not be negative", options.memory_budget_bytes);
    if (options.memory_budget_bytes > 0 && !options.compile)
      fail("trainer: a memory budget is for the compiled step; set compile = true, or use checkpoint() in the model");
    if (!(options.weight_decay >= 0)) fail("trainer: weight_decay {} must be at least 0", options.weight_decay);
    if (!loss) fail("trainer: the loss is empty");
    parameters = model.parameters();
    buffers = model.buffers();
    if (!optimizer.attached()) optimizer.attach(parameters);
    if (!options.groups.empty()) optimizer.set_groups(options.groups);
    if (options.shard_optimizer) sharded = optimizer.rowwise_state();
  }

  /// Every rank calls it; the first writes, with all of the optimizer's state.
  template <class Write>
  void on_first_rank(const Write& write) const {
    distributed::make_whole(sharded);
    if (distributed::rank() == 0) write();
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

  /// What a batch's mean loss is a mean over.
  double weight_of(const Tensor& x, const Tensor& y) const {
    if (const auto* cross_entropy = loss.target<SoftmaxCrossEntropy>()) return cross_entropy->weight_of(y);
    return static_cast<double>(x.dim(0));
  }

  /// One update from the next `count` batches, by their weights.
  StepResult step(BatchStream& stream, int64_t count) {
    std::vector<Batches::Pair> window;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      window.push_back(stream.next());
      weights.push_back(weight_of(window.back().first, window.back().second));
      sum += weights.back();
    }
    for (int64_t i = 0;; ++i) {
      const auto& [x, y] = window[static_cast<size_t>(i)];
      share.set(sum > 0 ? weights[static_cast<size_t>(i)] / sum : 0);
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

  /// What products compute in, for the calls of a scope.
  struct Precision {
    explicit Precision(const TrainerOptions& o)
        : dtype(o.compute_dtype.value_or(ws::compute_dtype())), products(o.matmul_precision.value_or(ws::matmul_precision())) {}
    ComputeDType dtype;
    MatmulPrecisionScope products;
  };

  /// The loop of one process. With several ranks even that is a program: what they exchange is put into a graph.
  bool runs_op_by_op() const { return !options.compile && options.mesh.data == 1; }
  JitOptions jit_options(const char* name) const {
    return {.name = name,
            .num_threads = options.num_threads,
            .compute_dtype = options.compute_dtype,
            .matmul_precision = options.matmul_precision,
            .memory_budget_bytes = options.memory_budget_bytes,
            .mesh = options.mesh,
            .sharded_state = sharded,
            .compile = options.compile};
  }

  Compiled& program_of(Part part) {
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
                      jit_options(name));
    }
    return *program;
  }

  std::vector<Tensor> call(Part part, const Tensor& x, const Tensor& y) {
    Precision precision(options);
    if (runs_op_by_op()) return run_part(part, x, y);
    const Tensor inputs[] = {x, y};
    return program_of(part)(inputs);
  }

  /// forward, or forward and loss, in evaluation mode: a program of its own.
  Tensor evaluate_batch(const Tensor& x, const Tensor& y) {
    auto function = [this](std::span<const Tensor> in) -> std::vector<Tensor> {
      Tensor prediction = forward(in[0]);
      return {in.size() > 1 ? loss(prediction, in[1]) : prediction};
    };
    NoGrad no_grad;
    Precision precision(options);
    const Tensor inputs[] = {x, y};
    std::span<const Tensor> used(inputs, y.defined() ? 2 : 1);
    if (runs_op_by_op()) return function(used)[0];
    std::optional<Compiled>& program = y.defined() ? compiled_evaluation : compiled_prediction;
    if (!program) {
      std::vector<Variable> state;
      model.collect_state(state);
      JitOptions how = jit_options(y.defined() ? "evaluate" : "predict");
      how.announce_recompiles = false;
      how.memory_budget_bytes = 0;  // nothing to recompute
      program.emplace(function, std::move(state), how);
    }
    return (*program)(used)[0];
  }

  /// Traces the model on `x` without running it: what a layer refuses (batch norm: one value a feature) is found before training.
  void try_forward(const Tensor& x) {
    Precision precision(options);
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
  std::vector<Variable> parameters, buffers, sharded;  // sharded: of the optimizer's state
  Scalar eta{"trainer.eta", 1};
  std::optional<double> first_lr;  // of this fit
  Scalar share{"trainer.share", 1};
  Variable loss_sum{"trainer.loss_sum", Tensor(0.0)};
  std::map<const Variable::Slot*, Variable> accumulators;  // by parameter
  int64_t steps_done = 0;
  std::optional<Compiled> programs[3], compiled_evaluation, compiled_prediction;  // programs: by Part
};

}  // namespace ws
