// What ranks cost: all-reduce measured between the ranks of this job, the step that it predicts, and the same for many ranks on links
// of given speed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "support/communicator.h"
#include "support/json.h"

namespace ws {

/// time(bytes) = alpha + 2 * bytes / beta: beta is the speed of one direction of a link that each byte crosses twice.
struct AllReduceCost {
  int ranks = 1;
  double alpha_s = 0;
  double beta_bytes_per_s = 0;
  struct Sample {
    int64_t bytes = 0;
    double seconds = 0;
  };
  std::vector<Sample> samples = {};  // the best of several

  double seconds(double bytes) const { return ranks == 1 ? 0 : alpha_s + 2 * bytes / beta_bytes_per_s; }
};

/// Every rank calls it, and gets the numbers of the slowest. About `budget_s` seconds. One rank: zero cost.
AllReduceCost measure_all_reduce(Communicator& ranks, double budget_s = 0.3, int64_t largest_bytes = int64_t{16} << 20);

/// Gradients worth a message of their own: so many that alpha is a twentieth of their time, between 256 KiB and 32 MiB.
int64_t best_bucket_bytes(const AllReduceCost& cost);

/// A data parallel step whose parts follow each other: the floor of what overlapping can reach from.
struct DataParallelPrediction {
  int ranks = 1;
  double compute_s = 0;        // of one rank's share of the batch, given
  double communication_s = 0;  // num_collectives * alpha + 2 * 4 * num_parameters / beta
  double step_s = 0;           // their sum
  double overlapped_s = 0;     // the larger of both: no overlap can do better
  double tokens_per_s = 0;     // ranks * tokens_per_rank / step_s
  double efficiency = 0;       // compute_s / step_s
};
DataParallelPrediction predict_data_parallel(const AllReduceCost& cost, double num_parameters, double compute_s,
                                             double tokens_per_rank, double num_collectives = 1);

/// A prediction and what was measured after it, for reports.
struct DataParallelRun {
  AllReduceCost cost = {};
  DataParallelPrediction predicted = {};
  double measured_step_s = 0, measured_tokens_per_s = 0;
};
Json to_json(const AllReduceCost& cost);
Json to_json(const DataParallelPrediction& prediction);
Json to_json(const DataParallelRun& run);

/// A link from each rank to the next of a ring, sending and receiving at once.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
};
/// "25GB/s", "100Gbit/s" (G is 1e9; also k, M, T). Throws ws::Error.
double parse_bandwidth(const std::string& text);
/// "5us" (s, ms, us, ns). Throws ws::Error.
double parse_duration(const std::string& text);

/// Ring all-reduce: 2 (k-1) rounds, in each of which every rank passes 1/k of the bytes on: 2 (k-1) (latency + bytes / k / speed).
double ring_all_reduce_s(double bytes, int ranks, const Link& link);

/// The step of `ranks` processes on a ring, gradients of `bucket_bytes` sent as the backward pass makes them.
struct RingStep {
  double compute_s = 0;             // forward and backward
  double backward_share = 2.0 / 3;  // of it
  double gradient_bytes = 0;
  double bucket_bytes = 25e6;
  int ranks = 1;
  Link link = {};
};
/// By formulas: backward and sending go on side by side, the last bucket's sending remains.
double predict_ring_step_s(const RingStep& step);
/// By following every message of every rank from event to event; whole numbers of gradients in each part. Slow: ranks^2 events.
double simulate_ring_step_s(const RingStep& step);

}  // namespace ws
