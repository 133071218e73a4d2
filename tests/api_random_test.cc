// Keys, streams and initialisers: known answers, statistics, independence of order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Random, PhiloxKnownAnswers) {  // published test vectors of Random123
  EXPECT_EQ(philox(Key(0), {0, 0, 0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(Key(~uint64_t{0}), {~0U, ~0U, ~0U, ~0U}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(Key(0x299f31d0a4093822), {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, InverseNormal) {
  for (double x : {-8.0, -5.5, -3.0, -1.0, -0.3, 0.1, 0.9, 2.0, 4.0}) {
    double p = 0.5 * std::erfc(-x / std::sqrt(2.0));
    // Near p = 1 the argument itself holds fewer digits.
    EXPECT_NEAR(inverse_normal_cdf(p), x, 1e-14 * std::fabs(x) + 2e-16 / std::exp(-x * x / 2) + 1e-13) << x;
  }
  EXPECT_EQ(inverse_normal_cdf(0.5), 0);
}

TEST(Random, KeysFoldApart) {
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 100; ++i) {
    seen.insert(Key(0).fold(i).bits());
    seen.insert(Key(0).fold(std::to_string(i)).bits());
    seen.insert(Key(i).fold("w").bits());
  }
  EXPECT_EQ(seen.size(), 300U);
}

TEST(Random, PermutationHasEachOnceAndMoves) {
  auto order = random_permutation(Key(3), 1000);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], static_cast<int64_t>(i));
  EXPECT_NE(order, sorted);
  EXPECT_NE(order, random_permutation(Key(4), 1000));
  EXPECT_EQ(order, random_permutation(Key(3), 1000));
  EXPECT_TRUE(random_permutation(Key(3), 0).empty());
}

TEST(Random, BelowIsUniform) {
  RandomStream stream{Key(5)};
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts[stream.below(7)];
  for (int c : counts) EXPECT_NEAR(c, 10000, 4 * std::sqrt(10000.0));
}

struct Moments {
  double mean = 0, stddev = 0, low = 0, high = 0;
};
Moments moments_of(const Initializer& initializer, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  initializer(values, shape, Key(1));
  Moments m;
  for (float v : values) m.mean += v;
  m.mean /= static_cast<double>(values.size());
  for (float v : values) m.stddev += (v - m.mean) * (v - m.mean);
  m.stddev = std::sqrt(m.stddev / static_cast<double>(values.size()));
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  m.low = *low;
  m.high = *high;
  return m;
}

TEST(Initializers, Statistics) {
  const Shape shape{400, 500};  // 200,000 draws: the mean strays 0.0022, the deviation 0.0016 of itself
  struct Row {
    Initializer initializer;
    double stddev;
  };
  for (const Row& row : {Row{init::he_normal(), std::sqrt(2.0 / 400)}, Row{init::fan_in_normal(), std::sqrt(1.0 / 400)},
                         Row{init::truncated_lecun_normal(), std::sqrt(1.0 / 400)}, Row{init::normal(0.02), 0.02}}) {
    Moments m = moments_of(row.initializer, shape);
    EXPECT_NEAR(m.mean / row.stddev, 0, 0.01);
    EXPECT_NEAR(m.stddev / row.stddev, 1, 0.008);
  }
  // Cut at two deviations of the uncut normal, and nothing else is.
  double cut = 2 * std::sqrt(1.0 / 400) / 0.87962566103423978;
  Moments truncated = moments_of(init::truncated_lecun_normal(), shape), plain = moments_of(init::fan_in_normal(), shape);
  EXPECT_LE(truncated.high, cut * (1 + 1e-6));
  EXPECT_GE(truncated.low, -cut * (1 + 1e-6));
  EXPECT_GT(truncated.high, 0.99 * cut);
  EXPECT_GT(plain.high, cut);
}

// FNV-1a over the bits of 1,000 values: a saved seed must give the same model on every machine and in every version. The
// first value of each was also computed by an independent Philox and inverse normal.
TEST(Initializers, BitsAreFixed) {
  struct Row {
    Initializer initializer;
    uint64_t hash;
    float first;
  };
  for (const Row& row : {Row{init::he_normal(), 0x6debed57f07e8a31, 0x1.9b1f26p-2F},
                         Row{init::truncated_lecun_normal(), 0x1b93d27126e72264, 0x1.2e48bep-2F},
                         Row{init::normal(0.02), 0x853e665c1142a01d, 0x1.d1219p-6F}}) {
    std::vector<float> values(1000);
    row.initializer(values, {25, 40}, Key(42).fold("layers").fold("0").fold("weight"));
    uint64_t hash = 0xcbf29ce484222325;
    for (float v : values) hash = (hash ^ std::bit_cast<uint32_t>(v)) * 0x100000001b3;
    EXPECT_EQ(hash, row.hash);
    EXPECT_EQ(values[0], row.first);
  }
}

}  // namespace
}  // namespace ws::testing
