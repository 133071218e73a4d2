#include "analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/error.h"

namespace ws {
namespace {

constexpr size_t kMostExact = 60;

// Probability that the sum of the positive ranks 1..n is at most w, each sign equally likely.
double exact_tail(size_t n, double w) {
  std::vector<double> ways(n * (n + 1) / 2 + 1, 0);  // of reaching a sum
  ways[0] = 1;
  size_t reached = 0;
  for (size_t rank = 1; rank <= n; ++rank) {
    reached += rank;
    for (size_t sum = reached; sum >= rank; --sum) ways[sum] += ways[sum - rank];
  }
  double below = 0;
  for (size_t sum = 0; sum < ways.size() && static_cast<double>(sum) <= w; ++sum) below += ways[sum];
  return below / std::exp2(static_cast<double>(n));
}

}  // namespace

Wilcoxon wilcoxon_signed_rank(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail("the signed-rank test needs pairs, not {} and {} values", a.size(), b.size());
  std::vector<std::pair<double, bool>> differences;  // size, whether a is greater
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) differences.emplace_back(std::fabs(a[i] - b[i]), a[i] > b[i]);
  std::sort(differences.begin(), differences.end());
  size_t n = differences.size();
  Wilcoxon result;
  result.pairs = static_cast<int64_t>(n);
  if (n == 0) return result;
  double sums[2] = {0, 0}, tie_term = 0;
  for (size_t begin = 0; begin < n;) {
    size_t end = begin;
    while (end < n && differences[end].first == differences[begin].first) ++end;
    auto tied = static_cast<double>(end - begin);
    double rank = static_cast<double>(begin + end + 1) / 2;
    for (; begin < end; ++begin) sums[differences[begin].second] += rank;
    tie_term += tied * tied * tied - tied;
  }
  result.statistic = std::min(sums[0], sums[1]);
  result.exact = tie_term == 0 && n <= kMostExact;
  if (result.exact) {
    result.p_two_sided = std::min(1.0, 2 * exact_tail(n, result.statistic));
    return result;
  }
  auto count = static_cast<double>(n);
  double mean = count * (count + 1) / 4, variance = count * (count + 1) * (2 * count + 1) / 24 - tie_term / 48;
  double z = std::max(0.0, mean - result.statistic - 0.5) / std::sqrt(variance);
  result.p_two_sided = std::erfc(z / std::sqrt(2.0));
  return result;
}

double a12_effect_size(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) fail("an effect size needs values on both sides");
  double wins = 0;
  for (double x : a)
    for (double y : b) wins += x > y ? 1 : x == y ? 0.5 : 0;
  return wins / (static_cast<double>(a.size()) * static_cast<double>(b.size()));
}

}  // namespace ws
