// Timing of very short work on a machine with neighbours.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace ws {

inline double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Rounds a second, best of several samples, where body(rounds) does some work `rounds` times. The number of rounds comes from
/// undisturbed runs (the shortest of three), so that a pause of the whole machine cannot leave samples too short to time.
template <class Body>
double best_rounds_per_second(double all_samples_seconds, const Body& body) {
  constexpr int kSamples = 5;
  const double sample_seconds = all_samples_seconds / kSamples;
  double rounds = 1;
  const auto shortest = [&] {
    double best = HUGE_VAL;
    for (int i = 0; i < 3; ++i) best = std::min(best, seconds_of([&] { body(static_cast<int64_t>(rounds)); }));
    return best;
  };
  double took = shortest();
  for (; took < sample_seconds / 4; took = shortest())
    rounds = std::ceil(rounds * std::clamp(sample_seconds / 2 / std::max(took, 1e-9), 1.1, 100.0));
  double best = rounds / took;
  for (int sample = 0; sample < kSamples; ++sample)
    best = std::max(best, rounds / seconds_of([&] { body(static_cast<int64_t>(rounds)); }));
  return best;
}

}  // namespace ws
