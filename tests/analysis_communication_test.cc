// Predictions of what ranks cost, against a ring followed message by message.
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/communication.h"
#include "wholestep/error.h"

namespace ws {
namespace {

TEST(Communication, PredictionIsComputePlusTwoTransfers) {
  AllReduceCost cost{.ranks = 2, .alpha_s = 1e-5, .beta_bytes_per_s = 2e9};
  const DataParallelPrediction p = predict_data_parallel(cost, 19e6, 0.2, 8192, 10);
  EXPECT_NEAR(p.communication_s, 1e-4 + 2 * 4 * 19e6 / 2e9, 1e-12);
  EXPECT_NEAR(p.tokens_per_s, 2 * 8192 / (0.2 + p.communication_s), 1e-6);
  EXPECT_EQ(p.overlapped_s, 0.2);
  EXPECT_EQ(predict_data_parallel({}, 19e6, 0.2, 8192).step_s, 0.2);
}

TEST(Communication, OneRankCostsNothing) {
  Communicator alone;
  const AllReduceCost cost = measure_all_reduce(alone);
  EXPECT_EQ(cost.ranks, 1);
  EXPECT_EQ(cost.seconds(1e9), 0);
}

// Formulas and simulation share no code: within a part in fifty over links, ranks and buckets.
TEST(Communication, RingFormulaIsTheSimulatedRing) {
  for (int ranks : {2, 3, 8, 64, 128})
    for (double speed : {1e9, 25e9})
      for (double bucket : {1e6, 25e6, 1e9}) {
        RingStep step{.compute_s = 0.05, .gradient_bytes = 76e6, .bucket_bytes = bucket, .ranks = ranks, .link = {speed, 5e-6}};
        const double formula = predict_ring_step_s(step), simulated = simulate_ring_step_s(step);
        EXPECT_NEAR(formula, simulated, 0.02 * simulated) << ranks << " ranks, " << speed << " B/s, buckets of " << bucket;
      }
  RingStep whole{.compute_s = 0, .gradient_bytes = 64e6, .bucket_bytes = 64e6, .ranks = 8, .link = {10e9, 1e-6}};
  EXPECT_NEAR(simulate_ring_step_s(whole), 2 * 7 * (1e-6 + 8e6 / 10e9), 1e-9);
  EXPECT_NEAR(ring_all_reduce_s(64e6, 8, whole.link), 2 * 7 * (1e-6 + 8e6 / 10e9), 1e-12);
}

TEST(Communication, Units) {
  EXPECT_EQ(parse_bandwidth("25GB/s"), 25e9);
  EXPECT_EQ(parse_bandwidth("100Gbit/s"), 12.5e9);
  EXPECT_NEAR(parse_duration("5us"), 5e-6, 1e-18);
  for (const char* bad : {"", "GB/s", "25", "25GB", "-1GB/s", "0GB/s", "1e999GB/s"})
    EXPECT_THROW(parse_bandwidth(bad), Error) << bad;
  EXPECT_THROW(parse_duration("5"), Error);
}

}  // namespace
}  // namespace ws
