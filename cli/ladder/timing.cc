#include "ladder/timing.h"

#include <algorithm>
#include <cmath>

#include "analysis/roof_probes.h"
#include "backend/cpu/isa.h"
#include "command.h"
#include "support/interrupt.h"

namespace ws::cli {
namespace {

// FMAs a second of this thread now: the shortest of a few looks of half a millisecond, so that only a lasting change shows.
double clock_probe() {
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    double begin = now_seconds();
    double operations = fma_probe(cpu::best_isa(), 20'000);
    best = std::max(best, operations / (now_seconds() - begin));
  }
  return best;
}

// One step more than is timed: while others had their turns, the system may have taken caches and idle pages from this job.
double turn(Job& job, double least_seconds) {
  job.step();
  double begin = now_seconds(), elapsed = 0;
  int steps = 0;
  do {
    job.step();
    ++steps;
    elapsed = now_seconds() - begin;
  } while (elapsed < least_seconds && !interrupted());
  return elapsed / steps;
}

}  // namespace

double Timing::step_seconds(size_t job) const { return median(seconds[job]); }

std::vector<double> Timing::ratios(size_t job, size_t base, const std::vector<double>& items) const {
  std::vector<double> list;
  for (size_t round = 0; round < seconds[job].size(); ++round)
    list.push_back(items[job] / seconds[job][round] / (items[base] / seconds[base][round]));
  return list;
}

Timing time_in_turns(const std::vector<Job*>& jobs, const TimingOptions& options) {
  struct Round {
    std::vector<double> seconds;
    double stray = 1;
  };
  std::vector<Round> rounds;
  auto steady = [&] { return std::count_if(rounds.begin(), rounds.end(), [](const Round& r) { return r.stray <= kSteady; }); };
  while (steady() < options.rounds && rounds.size() < static_cast<size_t>(options.rounds + kRepeated)) {
    Round round;
    double slowest = clock_probe(), fastest = slowest;
    for (Job* job : jobs) {
      round.seconds.push_back(turn(*job, options.seconds_per_turn));
      double probe = clock_probe();
      slowest = std::min(slowest, probe), fastest = std::max(fastest, probe);
    }
    round.stray = fastest / slowest;
    if (interrupted() && !rounds.empty()) break;  // a turn that was cut short
    rounds.push_back(std::move(round));
    if (interrupted()) break;
  }
  std::stable_sort(rounds.begin(), rounds.end(), [](const Round& a, const Round& b) { return a.stray < b.stray; });
  rounds.resize(std::min(rounds.size(), static_cast<size_t>(options.rounds)));
  Timing timing;
  timing.seconds.resize(jobs.size());
  for (const Round& round : rounds) {
    for (size_t j = 0; j < jobs.size(); ++j) timing.seconds[j].push_back(round.seconds[j]);
    timing.disturbed_rounds += round.stray > kSteady;
  }
  return timing;
}

Spread spread(const std::vector<double>& values) {
  if (values.empty()) return {NAN, NAN, NAN};
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {median(values), *low, *high};
}

}  // namespace ws::cli
