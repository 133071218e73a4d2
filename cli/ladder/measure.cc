#include "ladder/measure.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "analysis/reports.h"
#include "command.h"
#include "ir/graph.h"
#include "memory/plan.h"
#include "schedule/program.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "support/progress.h"

namespace ws::cli {
namespace {

constexpr int kWarmSteps = 2;  // after the first: page faults are over, caches hold what they will hold

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

int64_t status_bytes(const char* key) {
  std::string text = [] {
    std::string content(8192, '\0');
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, content.data(), content.size());
    if (fd >= 0) close(fd);
    content.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return content;
  }();
  size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::strtoll(text.c_str() + at + std::strlen(key), nullptr, 10) * 1024;
}

/// Memory that becomes resident while it lives, at its highest. 0 where the system does not tell.
class ResidentMemory {
 public:
  ResidentMemory() {
    malloc_trim(0);
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);  // "5": the peak starts again from now
    resets_ = fd >= 0 && write(fd, "5", 1) == 1;
    if (fd >= 0) close(fd);
    before_ = status_bytes("VmRSS:");
  }
  int64_t peak_bytes() const { return resets_ ? status_bytes("VmHWM:") - before_ : 0; }

 private:
  bool resets_ = false;
  int64_t before_ = 0;
};

/// The loop runs each op by itself: the same graph with one kernel a node, by the same rates.
double predict_loop(Compiled& compiled, const Roofs& roofs) {
  Graph graph = parse(compiled.as_text());
  Program program = schedule(graph, {.fuse = false, .input_layouts = {}});
  return predict_time(program, plan_memory(program), roofs).seconds;
}

void add_plan(Json& json, Job& job, const Prediction& prediction, double calibration) {
  MemoryAnalysis memory = job.program().memory_analysis();
  CostAnalysis cost = job.program().cost_analysis();
  json["predicted"] = calibration * job.items_per_step() / prediction.seconds;
  json["predicted_ms"] = prediction.seconds / calibration * 1e3;
  json["flops"] = cost.flops;
  json["bytes"] = cost.bytes;
  json["kernels"] = cost.num_kernels;
  json["planned_temp_bytes"] = memory.temporary_bytes;
  json["planned_peak_bytes"] = memory.peak_bytes;
  if (memory.num_recomputed > 0) json["recomputed_kernels"] = memory.num_recomputed;
  if (cost.recomputed_flops > 0) json["recomputed_flops"] = cost.recomputed_flops;
}

/// The first step and the warming ones; what memory they took beyond what was there.
void first_steps(Json& json, Job& job) {
  ResidentMemory memory;
  double begin = now_seconds();
  job.step();
  json["first_call_s"] = now_seconds() - begin;
  for (int i = 0; i < kWarmSteps; ++i) job.step();
  if (int64_t peak = memory.peak_bytes(); peak > 0 && job.setup().compile) json["measured_temp_bytes"] = peak;
}

void add_time(Json& json, Job& job, double seconds) {
  json["step_ms"] = json_number(seconds * 1e3);
  json["tokens_per_s"] = json_number(job.items_per_step() / seconds);
  if (json.contains("predicted"))
    json["prediction_error"] = json_number(json["predicted"].get<double>() / (job.items_per_step() / seconds) - 1);
}

void add_ratio(Json& json, const std::vector<double>& ratios, const Timing& timing) {
  Spread s = spread(ratios);
  json["ratio"] = json_number(s.middle);
  json["ratio_low"] = json_number(s.low);
  json["ratio_high"] = json_number(s.high);
  json["rounds"] = ratios.size();
  json["too_noisy"] = s.undecided() && s.high / s.low > kSteady;
  json["disturbed_rounds"] = timing.disturbed_rounds;
}

void add_walls(Json& json, Job& job, const Roofs& roofs, double seconds) {
  Classification c = job.program().classify(roofs, seconds);
  double peak = job.setup().bf16 && roofs.bf16_flops_per_s > 0 ? roofs.bf16_flops_per_s : roofs.fp32_flops_per_s;
  CostAnalysis cost = job.program().cost_analysis();
  json["gflops_achieved"] = cost.flops / seconds / 1e9;
  json["share_of_peak"] = cost.flops / seconds / peak;
  json["share_of_bandwidth"] = cost.bytes / seconds / roofs.memory_bytes_per_s;
  // The least time that either roof allows, over the time taken.
  json["share_of_roof"] = std::max(cost.flops / peak, cost.bytes / roofs.memory_bytes_per_s) / seconds;
  json["classification"] = parse_json(c.json(), "classification");
}

Json describe(const std::string& rung, const std::string& change, const Job& job) {
  return {{"rung", rung},
          {"change", change},
          {"mode", job.setup().compile ? "compiled" : "loop"},
          {"dtype", job.setup().bf16 ? "bf16" : "fp32"},
          {"batch", job.setup().batch}};
}

void announce(const Json& json, const std::string& item) {
  std::string plan = json.contains("planned_temp_bytes") ? fmt::format(", {:.1f} MiB of temporaries planned",
                                                                       json["planned_temp_bytes"].get<double>() / (1 << 20))
                                                         : "";
  say("{} {}: predicted {} {}/s{}", json["rung"].get<std::string>(), json["change"].get<std::string>(),
      human(json["predicted"].get<double>()), item, plan);
}

void announce_result(const Json& json, const std::string& item) {
  say("{} {}: measured {} {}/s", json["rung"].get<std::string>(), json["change"].get<std::string>(),
      human(json["tokens_per_s"].is_number() ? json["tokens_per_s"].get<double>() : NAN), item);
}

}  // namespace

Measured measure(const Bench& bench, const std::string& rung, const std::string& change, const Setup& setup) {
  Measured result{std::make_unique<Job>(bench.task, setup), {}};
  Job& job = *result.job;
  result.json = describe(rung, change, job);
  Json& json = result.json;
  try {
    json["compile_s"] = job.compile();
  } catch (const MemoryError& e) {
    json["refused"] = e.what();
    json["fitting_batch"] = e.fitting_batch;
    say("{} {}: refused before it starts: {}", rung, change, e.what());
    result.job.reset();
    return result;
  }
  add_plan(json, job, job.program().predict(bench.roofs), bench.calibration);
  announce(json, bench.task.item);
  first_steps(json, job);
  Timing timing = time_in_turns({bench.base, &job}, bench.timing);
  double seconds = timing.step_seconds(1);
  add_time(json, job, seconds);
  add_ratio(json, timing.ratios(1, 0, {bench.base->items_per_step(), job.items_per_step()}), timing);
  add_walls(json, job, bench.roofs, seconds);
  announce_result(json, bench.task.item);
  return result;
}

FirstTwo measure_first_two(const Bench& bench, bool with_loop) {
  FirstTwo two;
  two.compiled = std::make_unique<Job>(bench.task, Setup{});
  Job& compiled = *two.compiled;
  Json& json = two.compiled_json;
  json = describe("R1", "whole step compiled", compiled);
  json["compile_s"] = compiled.compile();
  add_plan(json, compiled, compiled.program().predict(bench.roofs), 1);
  if (with_loop) {
    two.loop = std::make_unique<Job>(bench.task, Setup{.compile = false});
    two.loop_json = describe("R0", "step-by-step loop", *two.loop);
    two.loop_json["diagnostic"] = true;
    double predicted = predict_loop(compiled.program(), bench.roofs);
    two.loop_json["predicted"] = two.loop->items_per_step() / predicted;
    two.loop_json["predicted_ms"] = predicted * 1e3;
    // The book allows 1e-2 between the logits of the two; ours have the same bits.
    Samples s = bench.task.draw(0, std::min<int64_t>(compiled.setup().batch, 4));
    std::vector<float> a = two.loop->trainer().predict(s.X).to_vector<float>(),
                       b = compiled.trainer().predict(s.X).to_vector<float>();
    two.logits_identical = a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    announce(two.loop_json, bench.task.item);
  }
  announce(json, bench.task.item);
  first_steps(json, compiled);
  std::vector<Job*> jobs{&compiled};
  if (two.loop) {
    first_steps(two.loop_json, *two.loop);
    jobs.push_back(two.loop.get());
  }
  Timing timing = time_in_turns(jobs, bench.timing);
  add_time(json, compiled, timing.step_seconds(0));
  json["ratio"] = 1.0;
  json["disturbed_rounds"] = timing.disturbed_rounds;
  add_walls(json, compiled, bench.roofs, timing.step_seconds(0));
  if (two.loop) {
    add_time(two.loop_json, *two.loop, timing.step_seconds(1));
    double items = compiled.items_per_step();
    add_ratio(two.loop_json, timing.ratios(1, 0, {items, items}), timing);
    json["speedup"] = json_number(spread(timing.ratios(0, 1, {items, items})).middle);  // over the loop
    const auto &slow = two.loop->losses(), &fast = compiled.losses();
    two.common_steps = std::min(slow.size(), fast.size());
    two.losses_identical = std::memcmp(slow.data(), fast.data(), two.common_steps * sizeof(double)) == 0;
    announce_result(two.loop_json, bench.task.item);
  }
  announce_result(json, bench.task.item);
  return two;
}

}  // namespace ws::cli
