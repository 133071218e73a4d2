// Where a fit stands: epoch, batch, history, early stopping. What a checkpoint keeps of it beside weights and optimizer, so that a fit
// that goes on from there ends in the bits of one that never stopped.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "io/tensors.h"
#include "wholestep/trainer.h"

namespace ws {

/// Validation loss so far, and the best weights. They are put back at the end, however it ends.
class EarlyStopping {
 public:
  EarlyStopping(const Module& model, const FitOptions& options);
  ~EarlyStopping();
  EarlyStopping(const EarlyStopping&) = delete;
  EarlyStopping& operator=(const EarlyStopping&) = delete;

  void after_epoch(int epoch, double val_loss);
  bool exhausted() const { return patience_ && waited_ >= *patience_; }
  std::optional<int> best_epoch() const { return best_epoch_; }

  void save(NamedTensors& into) const;
  void restore(const NamedTensors& from, const std::string& where);

 private:
  std::optional<int> patience_;
  double min_delta_, best_ = std::numeric_limits<double>::infinity();
  std::optional<int> best_epoch_;
  int waited_ = 0;
  std::vector<Variable> state_;
  std::vector<Tensor> best_values_;
};

/// The sizes and options that decide which samples a step sees.
struct FitPlan {
  int64_t num_samples = 0, batch_size = 0, accumulate = 1;
  bool drop_last = false, shuffle = true;
  uint64_t key = 0;
};

struct FitProgress {
  int epoch = 0;
  int64_t batch = 0;               // of the epoch: the next one
  size_t first_step_of_epoch = 0;  // in history.step_losses
  int64_t steps_done = 0;          // over all fits
  std::optional<double> first_lr;
  History history;
};

/// Writes a checkpoint of the whole.
void save_fit(const std::string& folder, const Module& model, const Optimizer& optimizer, const FitPlan& plan,
              const FitProgress& progress, const EarlyStopping& early);
/// Reads it back. An Error names what contradicts `plan`, the model or the optimizer; then nothing has changed.
FitProgress load_fit(const std::string& folder, const Module& model, const Optimizer& optimizer, const FitPlan& plan,
                     EarlyStopping& early);
bool holds_checkpoint(const std::string& folder);

}  // namespace ws
