// What the command line says of a run of `train`: checked, completed by what a run that goes on recorded, and by what is usual.
#pragma once
#include <optional>
#include <string>

#include "choices.h"
#include "ranks.h"
#include "support/json.h"

namespace ws::cli {

constexpr int64_t kUntilTheTimeIsUp = int64_t{1} << 40;  // steps of a run that --minutes ends

/// Strings that are empty, sizes of 0 and empty optionals were not given.
struct TrainOptions {
  std::string model, data, target, out, mode = "compiled", vocab, loss, schedule, dtype, matmul_precision;
  OptimizerOptions optimizer;
  std::optional<double> clip;
  std::optional<uint64_t> seed_given;
  int64_t steps = 0, batch = 0, seq = 0, width = 0, blocks = 0, eval_every = 0, save_every = 0, memory_budget = 0;
  MeshOptions mesh;
  std::optional<double> epochs_given, minutes_given;
  double epochs = 0, minutes = 0;
  int64_t planned_steps = 0;  // the length of the run that --resume continues, as it was; 0 and 0 where it had none
  double planned_epochs = 0;
  bool resume = false, overwrite = false, json = false;
  uint64_t seed() const { return seed_given.value_or(0); }
};

/// An Error for what no data and no run would make right.
void check_options(TrainOptions& options);

/// Options that were not given become those of the run in --out, as its checkpoint has them; given ones must be the same.
void continue_options(TrainOptions& options, const Json& recorded);
/// Reads the planned length of the run in --out, which holds unless another one is given: it may go on for longer than was planned.
void continue_length(TrainOptions& options, const Json& recorded);

/// What was given neither now nor by the run that goes on. `samples`: the data are samples, not a text.
void set_defaults(TrainOptions& options, bool samples);

/// Options that would do nothing: an Error where they contradict the data, a note where a script may pass them all the same.
/// `given` on the command line, now; `options`: completed.
void check_idle_options(const TrainOptions& given, const TrainOptions& options, bool samples);

/// What a checkpoint keeps of them.
Json lasting_options(TrainOptions& options);

}  // namespace ws::cli
