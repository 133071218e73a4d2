// Timing jobs against each other on a machine whose clock and neighbours change: they run in turns, a probe of the clock around each
// turn, and what counts is the median over the rounds of the ratios within a round. Nothing is compared across rounds.
#pragma once
#include <string>
#include <vector>

#include "ladder/task.h"

namespace ws::cli {

struct TimingOptions {
  int rounds = 5;
  double seconds_per_turn = 0.5;  // at least one step
};

struct Timing {
  std::vector<std::vector<double>> seconds;  // by job, by round: of one step
  int disturbed_rounds = 0;                  // in which the probe strayed by more than kSteady, kept only for want of better

  double step_seconds(size_t job) const;
  /// Throughput of `job` over that of `base`, by round. `items`: of one step, by job.
  std::vector<double> ratios(size_t job, size_t base, const std::vector<double>& items) const;
};

/// How far the probes of one round may be apart: 10 %.
constexpr double kSteady = 1.10;
constexpr int kRepeated = 2;  // disturbed rounds, at most

/// The jobs in turn, each turn with fresh batches whose drawing counts. They must have run before: compile and page faults are no part.
/// Disturbed rounds are repeated, at most kRepeated of them. Ends early where interrupted.
Timing time_in_turns(const std::vector<Job*>& jobs, const TimingOptions& options);

struct Spread {
  double middle = 0, low = 0, high = 0;
  /// The rounds do not agree on which side of 1 the ratio lies.
  bool undecided() const { return low < 1 && high > 1; }
};
Spread spread(const std::vector<double>& values);

}  // namespace ws::cli
