// Statistics of paired measurements: is one side faster, and how surely.
#pragma once
#include <cstdint>
#include <span>

namespace ws {

struct Wilcoxon {
  int64_t pairs = 0;       // without those of no difference
  double statistic = 0;    // the smaller of the two sums of ranks
  double p_two_sided = 1;  // 1 where no pair differs
  bool exact = false;      // else by the normal approximation, corrected for ties and continuity
};

/// Wilcoxon's signed-rank test of paired samples (Wilcoxon 1945): zero differences are left out, ties share their mean rank. Exact for
/// up to 60 pairs without ties.
Wilcoxon wilcoxon_signed_rank(std::span<const double> a, std::span<const double> b);

/// Vargha and Delaney's A12 (2000): how often a value of `a` is greater than one of `b`, ties counted half. 0.5 is no effect, 1 always.
double a12_effect_size(std::span<const double> a, std::span<const double> b);

}  // namespace ws
