// Goes down the rungs, each inheriting the one before: R0 the loop, R1 the whole step compiled, R2 bf16, R3 a larger batch, R4 block
// checkpointing, R5 data parallel, R6 what lies above. Each is priced and predicted before it runs.
#pragma once
#include <string>
#include <vector>

#include "ladder/measure.h"

namespace ws::cli {

struct LadderOptions {
  TaskOptions task;
  std::vector<std::string> rungs;  // R1 is the yardstick and always runs
  int64_t steps = 300;             // of the final check
  TimingOptions timing;
  int64_t memory_budget_bytes = 0;  // of R4's planner; 0: the step before less 30 % of its temporaries
  std::string out;
};

/// "R0,R1,.." -> names; an Error for unknown or repeated ones.
std::vector<std::string> parse_rungs(const std::string& text);

class Climb {
 public:
  explicit Climb(const LadderOptions& options);
  /// The report: what, machine, roofs, rungs, controls, cells, traps, check. Stopped by Ctrl-C it holds what was done.
  Json run();
  /// Whether the final check failed: the loss did not fall.
  bool failed() const { return failed_; }
  /// The job of the final check, for its checkpoint; null where it did not run.
  Job* final_job() const { return final_; }
  const Task& task() const { return task_; }

 private:
  bool wants(const std::string& rung) const;
  Measured add(const std::string& rung, const std::string& change, const Setup& setup, bool control = false);
  void first_two();
  void bf16();
  void batch();
  void checkpointing();
  void data_parallel();
  void ceiling();
  void traps();
  void check();
  double rate_of_base() const;

  LadderOptions options_;
  Task task_;
  Bench bench_;
  FirstTwo two_;
  Setup setup_;                                // what the rungs so far have changed
  std::unique_ptr<Job> before_checkpointing_;  // R3's, for R4 to be timed against
  std::unique_ptr<Job> checked_;
  Job* final_ = nullptr;
  Json report_, rungs_ = Json::array(), controls_ = Json::array();
  bool failed_ = false;
};

/// Costs of habits that spoil measurements, in R1's configuration: [{trap, cost, how}].
Json measure_traps(const Bench& bench);

}  // namespace ws::cli
