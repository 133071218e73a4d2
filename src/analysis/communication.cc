#include "analysis/communication.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "support/error.h"

namespace ws {
namespace {

using Clock = std::chrono::steady_clock;

// The best of `repeats` after one to warm up, by the slowest rank.
double time_all_reduce(Communicator& ranks, std::vector<float>& data, int64_t count, int repeats) {
  const auto run = [&] { ranks.all_reduce(data.data(), data.data(), count, DType::f32, Communicator::Reduction::sum); };
  double best = HUGE_VAL;
  for (int i = 0; i <= repeats; ++i) {
    ranks.barrier();
    const auto begin = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 0) best = std::min(best, seconds);
  }
  ranks.all_reduce(&best, &best, 1, DType::f64, Communicator::Reduction::maximum);
  return best;
}

struct Unit {
  const char* name;
  double scale;
};

double parse_quantity(const std::string& text, std::span<const Unit> units, const char* what) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem == std::errc() && number >= 0 && std::isfinite(number))
    for (const Unit& unit : units)
      if (std::string_view(end, static_cast<size_t>(text.data() + text.size() - end)) == unit.name) return number * unit.scale;
  std::vector<std::string> names;
  for (const Unit& unit : units) names.emplace_back(unit.name);
  fail("{} must be a number with one of the units {}, not '{}'", what, fmt::join(names, ", "), text);
}

}  // namespace

AllReduceCost measure_all_reduce(Communicator& ranks, double budget_s, int64_t largest_bytes) {
  AllReduceCost cost;
  cost.ranks = ranks.num_ranks();
  if (cost.ranks == 1) return cost;
  const int64_t small = 1, large = largest_bytes / 4;  // floats
  std::vector<float> data(static_cast<size_t>(large), 0.0f);
  const auto measure = [&](int64_t count, double share) {
    const double once = time_all_reduce(ranks, data, count, 1);
    const int repeats = std::clamp(static_cast<int>(share * budget_s / std::max(once, 1e-7)), 3, 1000);
    cost.samples.push_back({4 * count, time_all_reduce(ranks, data, count, repeats)});
    return cost.samples.back().seconds;
  };
  cost.alpha_s = measure(small, 0.1);
  for (int64_t count = int64_t{1} << 14; count < large; count *= 4) measure(count, 0.1);
  const double seconds = measure(large, 0.5);
  cost.beta_bytes_per_s = 2 * 4.0 * static_cast<double>(large) / std::max(seconds - cost.alpha_s, 1e-9);
  return cost;
}

int64_t best_bucket_bytes(const AllReduceCost& cost) {
  const double bytes = 20 * cost.alpha_s * cost.beta_bytes_per_s / 2;
  return static_cast<int64_t>(std::clamp(bytes, 256.0 * 1024, 32.0 * 1024 * 1024));
}

DataParallelPrediction predict_data_parallel(const AllReduceCost& cost, double num_parameters, double compute_s,
                                             double tokens_per_rank, double num_collectives) {
  DataParallelPrediction p;
  p.ranks = cost.ranks;
  p.compute_s = compute_s;
  if (cost.ranks > 1) p.communication_s = num_collectives * cost.alpha_s + 2 * 4 * num_parameters / cost.beta_bytes_per_s;
  p.step_s = p.compute_s + p.communication_s;
  p.overlapped_s = std::max(p.compute_s, p.communication_s);
  p.tokens_per_s = p.step_s > 0 ? cost.ranks * tokens_per_rank / p.step_s : 0;
  p.efficiency = p.step_s > 0 ? p.compute_s / p.step_s : 0;
  return p;
}

Json to_json(const AllReduceCost& cost) {
  Json samples = Json::array();
  for (const auto& s : cost.samples) samples.push_back({{"bytes", s.bytes}, {"seconds", s.seconds}});
  return {{"ranks", cost.ranks}, {"alpha_s", cost.alpha_s}, {"beta_bytes_per_s", cost.beta_bytes_per_s}, {"samples", samples}};
}

Json to_json(const DataParallelPrediction& p) {
  return {{"ranks", p.ranks},          {"compute_s", p.compute_s},       {"communication_s", p.communication_s},
          {"step_s", p.step_s},        {"overlapped_s", p.overlapped_s}, {"tokens_per_s", p.tokens_per_s},
          {"efficiency", p.efficiency}};
}

Json to_json(const DataParallelRun& run) {
  return {{"all_reduce", to_json(run.cost)},
          {"predicted", to_json(run.predicted)},
          {"measured", {{"step_s", run.measured_step_s}, {"tokens_per_s", run.measured_tokens_per_s}}}};
}

double parse_bandwidth(const std::string& text) {
  static constexpr Unit kUnits[] = {{"TB/s", 1e12},       {"GB/s", 1e9},       {"MB/s", 1e6},       {"kB/s", 1e3},
                                    {"Tbit/s", 1e12 / 8}, {"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"kbit/s", 1e3 / 8}};
  const double speed = parse_quantity(text, kUnits, "a link's speed");
  if (speed <= 0) fail("a link's speed must be above 0, not '{}'", text);
  return speed;
}

double parse_duration(const std::string& text) {
  static constexpr Unit kUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  return parse_quantity(text, kUnits, "a duration");
}

double ring_all_reduce_s(double bytes, int ranks, const Link& link) {
  return 2.0 * (ranks - 1) * (link.latency_s + bytes / ranks / link.bytes_per_s);
}

namespace {

/// Buckets in the order of the backward pass: when each is complete, and its bytes.
struct Bucket {
  double ready_s = 0, bytes = 0;
};

std::vector<Bucket> buckets_of(const RingStep& step) {
  std::vector<Bucket> buckets;
  const double backward = step.compute_s * step.backward_share, forward = step.compute_s - backward;
  for (double done = 0; done < step.gradient_bytes;) {
    const double bytes = std::min(step.bucket_bytes, step.gradient_bytes - done);
    done += bytes;
    buckets.push_back({forward + backward * done / step.gradient_bytes, bytes});
  }
  return buckets;
}

}  // namespace

double predict_ring_step_s(const RingStep& step) {
  if (step.ranks == 1) return step.compute_s;
  double free_s = 0;  // the links, again
  for (const Bucket& b : buckets_of(step))
    free_s = std::max(free_s, b.ready_s) + ring_all_reduce_s(b.bytes, step.ranks, step.link);
  return std::max(step.compute_s, free_s);
}

double simulate_ring_step_s(const RingStep& step) {
  const auto k = static_cast<size_t>(step.ranks);
  if (k == 1) return step.compute_s;
  std::vector<double> link_free(k, 0), arrived(k), next(k);  // by rank: its outgoing link; what it may pass on
  double finished = step.compute_s;
  for (const Bucket& bucket : buckets_of(step)) {
    const auto gradients = static_cast<int64_t>(bucket.bytes / 4);
    std::fill(arrived.begin(), arrived.end(), bucket.ready_s);
    for (size_t round = 0; round < 2 * (k - 1); ++round) {
      for (size_t r = 0; r < k; ++r) {
        const auto part = static_cast<int>((r + 2 * k - round % k) % k);  // what rank r passes on in this round
        const auto [begin, end] = rows_of_rank(gradients, step.ranks, part);
        const double start = std::max(arrived[r], link_free[r]);
        link_free[r] = start + 4.0 * static_cast<double>(end - begin) / step.link.bytes_per_s;
        next[(r + 1) % k] = link_free[r] + step.link.latency_s;
      }
      std::swap(arrived, next);
    }
    finished = std::max(finished, *std::max_element(arrived.begin(), arrived.end()));
  }
  return finished;
}

}  // namespace ws
