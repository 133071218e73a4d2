// Trainer: fit, evaluate and predict for a model, a loss and an optimizer. compile = false runs each op by itself (the
// loop), compile = true makes forward, loss, backward, clipping, decay and update one compiled call; the bits are the same.
//
//   ws::Trainer trainer(model, ws::MSE(), ws::SGD({.lr = 0.01}), {.compile = true});
//   ws::History history = trainer.fit(X, y, {.epochs = 10, .batch_size = 256, .key = ws::Key(0)});
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "wholestep/losses.h"
#include "wholestep/module.h"
#include "wholestep/optimizers.h"
#include "wholestep/precision.h"
#include "wholestep/schedules.h"

namespace ws {

/// How Trainer's weight decay acts, on parameters of two or more dims that have a gradient.
enum class Decay : uint8_t {
  l2,         ///< gradient += decay * value, after clipping
  decoupled,  ///< value -= eta * decay * value before the update, eta = lr now / lr at the start of fit, 0 if that was 0
};

/// What a step does whose loss, or gradient norm, is not finite. It updates nothing, buffers and random keys included. Of several
/// accumulated batches all gradients are dropped, while the buffers keep what the batches before that one did.
enum class OnNonFinite : uint8_t {
  error,  ///< fit ends with an Error that names the step
  skip,   ///< the step is counted in History::skipped_steps, and training goes on
};

struct TrainerOptions {
  bool compile = false;
  std::optional<double> clip_norm = {};  ///< limit of the gradients' global norm, above 0
  double weight_decay = 0;               ///< 0: none
  Decay decay = Decay::l2;
  Schedule schedule = {};                 ///< empty: the optimizer's own learning rate stays
  int num_threads = 0;                    ///< of the compiled step; 0: the process's setting
  std::optional<double> clip_value = {};  ///< limit of each gradient element, above 0; after clip_norm where both are given
  OnNonFinite on_nonfinite = OnNonFinite::error;
  bool record_grad_norm = false;            ///< the global norm before clipping, in History and StepInfo
  std::vector<ParameterGroup> groups = {};  ///< given to the optimizer
  /// Of products, in training, evaluation and prediction: bf16 for mixed precision (wholestep/precision.h). Parameters and the
  /// optimizer's state are f32 in any case. Empty: as the caller's ComputeDType says, f32 where there is none.
  std::optional<DType> compute_dtype = {};
  /// How f32 products are multiplied (wholestep/precision.h). Empty: as the caller's MatmulPrecisionScope says, highest without one.
  std::optional<MatmulPrecision> matmul_precision = {};
  int64_t memory_budget_bytes = 0;  ///< of the compiled step, see JitOptions; 0: none
  /// More than one data rank: every rank is given the same batches and computes its rows of them (wholestep/distributed.h). A step
  /// means what it means on one process; its sums are taken in another order.
  Mesh mesh = {};
  /// Under a mesh: each rank keeps, and updates by, its rows of the optimizer's moments (ZeRO-1). The bits are the same, and so are checkpoints. An
  /// Error for Muon.
  bool shard_optimizer = false;
};

/// What on_step hears after each update.
struct StepInfo {
  int epoch = 0;
  int64_t batch = 0, batches = 0;  ///< in this epoch; of several accumulated batches the first
  int64_t step = 0;                ///< updates over all fits, this one included
  int64_t num_samples = 0;
  Tensor loss = {};       ///< reading it waits for the step; NaN where the step was skipped
  Tensor grad_norm = {};  ///< f64 [], where record_grad_norm
  bool skipped = false;   ///< not finite, so nothing was updated and `step` did not grow
};

/// What on_epoch hears after each epoch.
struct EpochInfo {
  int epoch = 0;
  double train_loss = 0;
  std::optional<double> val_loss = {};
  double lr = 0;  ///< of the first batch
};

/// What a callback may return; one that returns nothing means go_on.
enum class Then : uint8_t {
  go_on,
  stop,  ///< fit ends here, as after its last epoch
};

/// A function of Info that returns Then or nothing.
template <class Info>
class Callback {
 public:
  Callback() = default;
  template <class F>
  requires std::invocable<F&, const Info&> &&(!std::same_as<std::remove_cvref_t<F>, Callback>)Callback(F f) {  // NOLINT: implicit
    if constexpr (std::is_void_v<std::invoke_result_t<F&, const Info&>>)
      call_ = [f = std::move(f)](const Info& info) mutable { return f(info), Then::go_on; };
    else
      call_ = std::move(f);
  }
  explicit operator bool() const { return call_ != nullptr; }
  Then operator()(const Info& info) const { return call_(info); }

 private:
  std::function<Then(const Info&)> call_;
};

struct FitOptions {
  int epochs = 1;
  int64_t batch_size = 32;
  Key key = Key(0);        ///< of the shuffle
  bool shuffle = true;     ///< a new order each epoch
  bool drop_last = false;  ///< leaves out a short last batch; else it is a second, smaller program
  Tensor X_val = {}, y_val = {};
  std::optional<int> patience = {};  ///< stop after so many epochs without a better validation loss; restores the best weights
  double min_delta = 0;              ///< better means val_loss < best - min_delta
  bool verbose = false;              ///< a line an epoch on stderr
  /// Batches an update is made of: their gradients are averaged by samples (by the labels that count where SoftmaxCrossEntropy ignores or
  /// weighs some), then clipped once, under one reading of the schedule.
  /// What is left at the end of an epoch makes an update of its own. Uses one more copy of the parameters' memory.
  int64_t accumulate = 1;
  Callback<StepInfo> on_step = {};  ///< after each update
  Callback<EpochInfo> on_epoch = {};
  bool prefetch = true;  ///< gathers shuffled batches in a thread of its own; the same bits
  /// A folder that is replaced as a whole by each checkpoint: weights, buffers, optimizer state, counters, and where this fit stands.
  /// Written after each epoch, every `checkpoint_every` updates (0: never within an epoch), and where a callback stops fit.
  std::string checkpoint_dir = {};
  int64_t checkpoint_every = 0;
  /// Goes on from checkpoint_dir, where that holds a checkpoint, to the bits of a fit that never stopped. It must be of the same data
  /// sizes and options; an Error names both values that differ. `epochs` may be larger.
  bool resume = false;
};

/// Per epoch, from 0. An epoch that a callback stopped before its end counts in step_losses only.
struct History {
  std::vector<double> train_loss;       ///< weighted by samples
  std::vector<double> val_loss;         ///< empty without a validation set
  std::vector<double> lr;               ///< of the first batch
  std::vector<double> step_losses;      ///< of every step
  std::optional<int> best_epoch;        ///< of the lowest validation loss
  int stopped_epoch = -1;               ///< the last epoch that ran, if only in part
  std::vector<double> grad_norms = {};  ///< of every step, before clipping; where record_grad_norm
  int64_t skipped_steps = 0;            ///< on_nonfinite = skip: their losses are NaN and left out of train_loss
};

class Trainer {
 public:
  /// `model` is a Module with forward(x), or a class derived from it with operator()(x); it must outlive the trainer.
  /// `loss` is any function of (prediction, target). An optimizer given by value is attached to the model's parameters and
  /// kept; one given as a variable is used where it is.
  template <class Model, class Opt>
  requires std::derived_from<Model, Module> && std::derived_from<std::remove_cvref_t<Opt>, Optimizer> Trainer(
      Model& model, Loss loss, Opt&& optimizer, const TrainerOptions& options = {})
      : Trainer(
            static_cast<Module&>(model), [&model](const Tensor& x) { return Tensor(model(x)); }, std::move(loss),
            keep(std::forward<Opt>(optimizer)), options) {}
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// Trains on X [N, ..] and y [N, ..] of any dtype. A second call continues with the optimizer's state; history and epochs
  /// start anew. Errors: no samples, unequal lengths, epochs or batch_size below 1, patience without a validation set.
  /// A step whose loss is not finite changes nothing and ends fit with an error that names the step.
  History fit(const Tensor& X, const Tensor& y, const FitOptions& options = {});
  /// Mean loss over all samples, in evaluation mode.
  double evaluate(const Tensor& X, const Tensor& y, int64_t batch_size = 256);
  /// Predictions for all samples, in evaluation mode.
  Tensor predict(const Tensor& X, int64_t batch_size = 256);
  /// One update on one batch, as fit makes them; returns the loss before it.
  Tensor train_step(const Tensor& x, const Tensor& y);

  /// Weights, buffers, optimizer state and the number of updates, as a checkpoint folder (safetensors and JSON), put in place as a whole.
  /// Under a mesh the first rank writes; every rank calls it where shard_optimizer is set.
  void save(const std::string& folder) const;
  /// Reads what save() or fit() wrote. An Error names what does not fit the model or the optimizer; then nothing has changed.
  void load(const std::string& folder);

  Optimizer& optimizer();
  /// Forgets moments and counters.
  void reset_optimizer();
  /// Compiles the step for batches like this one without running it: then compiled_step() answers what it will cost. Nothing where
  /// compile = false. MemoryError where its plan does not fit the machine.
  void prepare(const Tensor& x, const Tensor& y);
  /// The compiled step, for its analyses; an Error where compile = false or nothing has run yet.
  Compiled& compiled_step();
  int64_t steps_done() const;

 private:
  struct Impl;
  using Forward = std::function<Tensor(const Tensor&)>;
  /// An optimizer of the trainer's own, or a borrowed one.
  struct Kept {
    std::unique_ptr<Optimizer> owned;
    Optimizer* used;
  };
  template <class Opt>
  static Kept keep(Opt&& optimizer) {
    if constexpr (std::is_lvalue_reference_v<Opt>) {
      return {nullptr, &optimizer};
    } else {
      auto owned = std::make_unique<Opt>(std::forward<Opt>(optimizer));
      Optimizer* used = owned.get();
      return {std::move(owned), used};
    }
  }
  Trainer(Module& model, Forward forward, Loss loss, Kept optimizer, const TrainerOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ws
