// What a ladder trains: one model, its data and its loss, the same on every rung; and a job, one training run of it under a setup.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/json.h"
#include "text_data.h"
#include "wholestep/wholestep.h"

namespace ws::cli {

struct TaskOptions {
  std::string model = "gpt";     // gpt, encoder, mlp, or a FILE.json that describes a gpt or an encoder
  std::string preset = "quick";  // sizes of the three: quick or book
  std::string text, vocab = "letters";
  int64_t seq = 128;
  uint64_t seed = 0;
};

/// How a rung trains it.
struct Setup {
  bool compile = true, bf16 = false;
  int64_t batch = 0;
  bool checkpoint = false;          // each block of the model is recomputed in the backward pass
  int64_t memory_budget_bytes = 0;  // 0: none
  models::Parts parts = {};         // replaced parts of each block
  bool muon = false;                // in place of AdamW
  MatmulPrecision matmul_precision = MatmulPrecision::highest;
};

struct Task {
  std::string name, item;  // "gpt"; "tokens" or "samples"
  Json description;        // of the model
  Json config;             // what `generate` needs beside it
  std::string data;        // in words
  int64_t batch = 0;       // of the first rungs
  int64_t items_per_sample = 1;
  bool has_blocks = false;  // parts can be replaced, blocks recomputed
  Loss loss;
  uint64_t seed = 0;
  std::function<Samples(int64_t step, int64_t batch)> draw;    // fresh for each step, from data in memory
  std::function<Samples(int64_t step, int64_t batch)> stream;  // the same, read and encoded anew each time; may be empty
  Samples validation;

  std::unique_ptr<Module> make_model(const Setup& setup) const;
};
Task make_task(const TaskOptions& options);

/// A model with its optimizer, from the task's initial weights.
class Job {
 public:
  Job(const Task& task, const Setup& setup);
  /// One step on a fresh batch, its drawing included.
  void step();
  void step_on(const Samples& batch);
  /// Compiles without running; seconds from trace to machine code.
  double compile();
  Compiled& program() { return trainer_->compiled_step(); }
  double evaluate();
  double items_per_step() const { return static_cast<double>(setup_.batch * task_.items_per_sample); }

  const Task& task() const { return task_; }
  const Setup& setup() const { return setup_; }
  Module& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  Trainer& trainer() { return *trainer_; }
  const std::vector<double>& losses() const { return losses_; }
  int64_t steps() const { return step_; }

 private:
  const Task& task_;
  Setup setup_;
  std::unique_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Trainer> trainer_;
  int64_t step_ = 0;
  std::vector<double> losses_;
};

}  // namespace ws::cli
