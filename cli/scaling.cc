// scaling: what a data parallel step would cost on many machines, by the formulas of a ring and by following its messages.
#include <fmt/core.h>

#include "analysis/communication.h"
#include "command.h"
#include "support/error.h"
#include "support/text_table.h"

namespace ws::cli {
namespace {

struct ScalingOptions {
  double parameters = 0, step_ms = 0, tokens = 0, bucket_mb = 25;
  std::vector<std::string> links = {"1GB/s", "10GB/s", "25GB/s", "100GB/s"};
  std::string latency = "5us";
  std::vector<int> ranks = {8, 16, 32, 64, 128, 256, 512, 1024};
  bool json = false;
};

constexpr double kMostBuckets = 1e4;
constexpr int kMostSimulated = 256;  // ranks: the simulation takes ranks^2 events a bucket

// Beyond these the columns would be hundreds of digits wide.
void check_range(const char* option, double value, double low, double high) {
  if (!(value >= low && value <= high)) fail("{} must be from {:g} to {:g}, not {}", option, low, high, value);
}

int scaling(const ScalingOptions& o) {
  check_range("--params", o.parameters, 1, 1e15);
  check_range("--step-ms, the time of one rank's step,", o.step_ms, 1e-6, 1e9);
  check_range("--tokens, those of one rank's step,", o.tokens, 1e-6, 1e15);
  check_range("--bucket-mb", o.bucket_mb, 1e-3, 1e6);
  if (const double buckets = 4e-6 * o.parameters / o.bucket_mb; buckets > kMostBuckets)
    fail("--bucket-mb {}: these are {:.0f} buckets a step, at most {:.0f} are simulated", o.bucket_mb, buckets, kMostBuckets);
  RingStep step;
  step.compute_s = o.step_ms * 1e-3;
  step.gradient_bytes = 4 * o.parameters;
  step.bucket_bytes = o.bucket_mb * 1e6;
  step.link.latency_s = parse_duration(o.latency);
  check_range("--latency, in seconds,", step.link.latency_s, 0, 1e3);
  Json rows = Json::array();
  TextTable table({"link", "ranks", "all-reduce, ms", "step, ms", "tokens/s", "efficiency", "overlapped", "simulated"});
  for (const std::string& link : o.links) {
    step.link.bytes_per_s = parse_bandwidth(link);
    check_range("--link, in bytes a second,", step.link.bytes_per_s, 1, 1e18);
    for (int k : o.ranks) {
      if (k < 2 || k > 1'000'000) fail("--ranks {} must lie between 2 and 1000000", k);
      step.ranks = k;
      const double reduce_s = ring_all_reduce_s(step.gradient_bytes, k, step.link), plain_s = step.compute_s + reduce_s;
      const double overlapped_s = predict_ring_step_s(step);
      const double simulated_s = k <= kMostSimulated ? simulate_ring_step_s(step) : NAN;
      rows.push_back({{"link", link},
                      {"ranks", k},
                      {"all_reduce_s", reduce_s},
                      {"step_s", plain_s},
                      {"tokens_per_s", k * o.tokens / plain_s},
                      {"efficiency", step.compute_s / plain_s},
                      {"overlapped_step_s", overlapped_s},
                      {"overlapped_efficiency", step.compute_s / overlapped_s},
                      {"simulated_step_s", json_number(simulated_s)}});
      const auto percent = [&](double seconds) { return fmt::format("{:.1f} %", 100 * step.compute_s / seconds); };
      table.add({link, std::to_string(k), fmt::format("{:.3f}", reduce_s * 1e3), fmt::format("{:.3f}", plain_s * 1e3),
                 fmt::format("{:.4g}", k * o.tokens / plain_s), percent(plain_s), percent(overlapped_s),
                 std::isnan(simulated_s) ? "-" : percent(simulated_s)});
    }
  }
  if (o.json)
    print_json({{"parameters", o.parameters}, {"step_s", step.compute_s}, {"latency_s", step.link.latency_s}, {"rows", rows}});
  else
    fmt::print("{}", table.str());
  return 0;
}

}  // namespace

void add_scaling(CLI::App& app, Action& action) {
  auto o = std::make_shared<ScalingOptions>();
  CLI::App* command = add_command(app, "scaling", "predicts data parallel steps on many ranks and given links");
  add_real(command, "--params", o->parameters, "parameters of the model (19e6)")->required();
  add_real(command, "--step-ms", o->step_ms, "measured time of one rank's step")->required();
  add_real(command, "--tokens", o->tokens, "tokens, or samples, of one rank's step")->required();
  command->add_option("--link", o->links, "speeds of the links of the ring: 25GB/s, 100Gbit/s")->delimiter(',');
  command->add_option("--latency", o->latency, "of one message (5us)");
  command->add_option("--ranks", o->ranks, "numbers of ranks")->delimiter(',');
  add_real(command, "--bucket-mb", o->bucket_mb, "gradients sent together, in megabytes");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return scaling(*o); }; });
}

}  // namespace ws::cli
