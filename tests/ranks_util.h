// Shared by the tests of several ranks: models to train, and a run whose bits can be compared.
#pragma once
#include <functional>
#include <memory>

#include "api_util.h"

namespace ws::testing {

inline Mesh mesh() { return {.data = distributed::size()}; }

using MakeModel = std::function<std::unique_ptr<Module>()>;

/// Weights of many sizes, so that buckets end anywhere.
inline std::unique_ptr<models::Mlp> make_mlp() {
  return std::make_unique<models::Mlp>(std::vector<int64_t>{6, 40, 33, 17, 2}, Key(4));
}

struct MlpRun {
  std::vector<double> losses;
  std::string state;  // of model and optimizer, whole
  std::string program;
  MemoryAnalysis memory = {};
};

/// Trains make_mlp() for 3 epochs of 5 batches, the last one short.
inline MlpRun train_mlp(Optimizer& optimizer, TrainerOptions options, int64_t accumulate = 1) {
  auto model = make_mlp();
  optimizer.attach(model->parameters());
  Trainer trainer(*model, MSE(), optimizer, options);
  History history = trainer.fit(random_floats({18, 6}, 1), random_floats({18, 2}, 2),
                                {.epochs = 3, .batch_size = 4, .key = Key(3), .accumulate = accumulate});
  MlpRun run{history.step_losses, {}, {}};
  if (options.compile)
    run.program = trainer.compiled_step().program_text(), run.memory = trainer.compiled_step().memory_analysis();
  std::vector<Variable> state;
  optimizer.collect_state(state);
  distributed::make_whole(state);
  distributed::check_replicas(state);
  distributed::check_replicas(model->parameters());
  run.state = bytes(*model) + bytes(optimizer);
  return run;
}

}  // namespace ws::testing
