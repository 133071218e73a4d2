#include "analysis/statistics.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/error.h"

namespace ws {
namespace {

TEST(Statistics, SignedRanksOfAKnownSample) {
  // Heights of Darwin's plants (cross- against self-fertilised), the textbook example: W 24, p 0.0413.
  std::vector<double> differences = {6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75}, zeros(15, 0);
  Wilcoxon w = wilcoxon_signed_rank(differences, zeros);
  EXPECT_TRUE(w.exact);
  EXPECT_EQ(w.statistic, 24);
  EXPECT_DOUBLE_EQ(w.p_two_sided, 0.041259765625);
}

TEST(Statistics, FewPairsProveLittle) {
  std::vector<double> slow = {3, 4, 5}, fast = {1, 1.5, 2};
  EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(slow, fast).p_two_sided, 0.25);  // 2 / 2^3
  EXPECT_EQ(wilcoxon_signed_rank(slow, slow).p_two_sided, 1);
  EXPECT_EQ(wilcoxon_signed_rank(slow, slow).pairs, 0);
  EXPECT_THROW(wilcoxon_signed_rank(slow, std::vector<double>{1}), Error);
}

TEST(Statistics, TiesGoByTheNormalApproximation) {
  std::vector<double> a(20, 1), b(20, 0);
  Wilcoxon w = wilcoxon_signed_rank(a, b);
  EXPECT_FALSE(w.exact);
  EXPECT_EQ(w.statistic, 0);
  // mean 105, variance 717.5 - (8000 - 20)/48 = 551.25: z = 104.5 / 23.479 = 4.451
  EXPECT_NEAR(w.p_two_sided, 8.55e-6, 2e-7);
}

TEST(Statistics, EffectSize) {
  EXPECT_EQ(a12_effect_size(std::vector<double>{3, 4}, std::vector<double>{1, 2}), 1);
  EXPECT_EQ(a12_effect_size(std::vector<double>{1, 2}, std::vector<double>{1, 2}), 0.5);
  EXPECT_EQ(a12_effect_size(std::vector<double>{0}, std::vector<double>{1, 2}), 0);
}

}  // namespace
}  // namespace ws
