#include "support/spelling.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace ws {

// Optimal string alignment: a row of the table for each letter of `a`, of which the last two are kept.
int num_slips(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1), before, before_that;
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    before_that = std::exchange(before, row);
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({row[j] + 1, before[j + 1] + 1, before[j] + (a[i] == b[j] ? 0 : 1)});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) row[j + 1] = std::min(row[j + 1], before_that[j - 1] + 1);
    }
  }
  return row.back();
}

std::string spelling_hint(std::string_view name, std::span<const std::string> known, std::string_view prefix) {
  constexpr size_t kLettersASlip = 3;
  const auto slips = [name](const std::string& candidate) { return num_slips(name, candidate); };
  const auto nearest = std::ranges::min_element(known, {}, slips);
  if (nearest == known.end()) return "";
  const bool is_near = static_cast<size_t>(slips(*nearest)) * kLettersASlip <= name.size();
  return is_near ? fmt::format(" (is {}{} meant?)", prefix, *nearest) : "";
}

}  // namespace ws
