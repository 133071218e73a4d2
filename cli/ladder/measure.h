// One rung: priced, predicted, run, timed beside the yardstick, explained. The result is JSON, which is also what the table, the charts
// and the page are made from.
#pragma once
#include <memory>
#include <string>

#include "ladder/task.h"
#include "ladder/timing.h"

namespace ws::cli {

struct Measured {
  std::unique_ptr<Job> job;  // null where the plan was refused
  Json json;
};

/// What all rungs share.
struct Bench {
  const Task& task;
  Roofs roofs;
  TimingOptions timing;
  Job* base = nullptr;     // R1, the yardstick of all ratios; null before it
  double calibration = 1;  // what R1 reached of its prediction: the clock and the neighbours of now, for all later predictions
};

/// Keys of the JSON: rung, change, dtype, batch; predicted (items/s), tokens_per_s, step_ms, ratio (to R1) with ratio_low and
/// ratio_high, too_noisy, first_call_s, compile_s, planned_temp_bytes, measured_temp_bytes, planned_peak_bytes, gflops_achieved,
/// share_of_roof, classification, receipts. A plan that does not fit the machine gives `refused`, and `fitting_batch`.
Measured measure(const Bench& bench, const std::string& rung, const std::string& change, const Setup& setup);

/// R0 and R1 are measured in one go: in turn, and R1 becomes the yardstick.
struct FirstTwo {
  std::unique_ptr<Job> loop, compiled;
  Json loop_json, compiled_json;
  bool logits_identical = false, losses_identical = false;
  size_t common_steps = 0;
};
FirstTwo measure_first_two(const Bench& bench, bool with_loop);

}  // namespace ws::cli
