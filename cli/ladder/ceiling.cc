// R6: what lies above the ladder: fused attention against separate ops at two lengths, Muon against AdamW by time to a loss, products
// in bf16 parts, fp8.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "command.h"
#include "ladder/climb.h"
#include "ladder/parts.h"
#include "support/interrupt.h"
#include "support/log.h"

namespace ws::cli {
namespace {

Json line(const std::string& what, const std::string& result, Json figures) {
  write_stderr(fmt::format("R6 {}: {}\n", what, result));
  Json json = {{"what", what}, {"result", result}};
  json.update(figures);
  return json;
}

Json attention_at(const LadderOptions& options, const Bench& bench, int64_t length) {
  TaskOptions longer = options.task;
  longer.seq = length;
  Task task = make_task(longer);
  task.description["max_len"] = length;  // a file's model may be built for shorter ones
  Setup fused, composed;
  fused.batch = composed.batch = std::max<int64_t>(1, bench.task.batch * bench.task.items_per_sample / length);
  composed.parts = composed_attention_parts(task);
  Job a(task, fused), b(task, composed);
  for (Job* job : {&a, &b}) job->step();
  Timing timing = time_in_turns({&a, &b}, bench.timing);
  Spread ratio = spread(timing.ratios(0, 1, {a.items_per_step(), b.items_per_step()}));
  double mib = 1 << 20, of_a = static_cast<double>(a.program().memory_analysis().temporary_bytes) / mib,
         of_b = static_cast<double>(b.program().memory_analysis().temporary_bytes) / mib;
  return line(
      fmt::format("attention, length {}", length),
      fmt::format(
          "fused {:.2f}x the speed of product, mask, softmax, product ({:.2f} to {:.2f}); temporaries {:.1f} against {:.1f} MiB",
          ratio.middle, ratio.low, ratio.high, of_a, of_b),
      {{"length", length}, {"ratio", json_number(ratio.middle)}, {"fused_temp_mib", of_a}, {"composed_temp_mib", of_b}});
}

struct Trained {
  std::vector<double> seconds, losses;  // at each validation; its own time does not count
};

Trained train(Job& job, int64_t steps, int64_t every) {
  Trained t;
  job.step();  // the first call compiles
  double spent = 0;
  for (int64_t i = 1; i < steps && !interrupted(); ++i) {
    double begin = now_seconds();
    job.step();
    spent += now_seconds() - begin;
    if ((i + 1) % every == 0) t.seconds.push_back(spent), t.losses.push_back(job.evaluate());
  }
  return t;
}

Json muon_against_adamw(const LadderOptions& options, const Bench& bench) {
  Setup setup, muon;
  muon.muon = true;
  Job a(bench.task, setup), b(bench.task, muon);
  int64_t steps = std::max<int64_t>(options.steps, 20), every = std::max<int64_t>(steps / 15, 1);
  Trained adamw = train(a, steps, every), other = train(b, steps, every);
  if (adamw.losses.empty()) return line("Muon against AdamW", "stopped before its first validation", Json::object());
  double target = *std::min_element(adamw.losses.begin(), adamw.losses.end());
  auto reached = [&](const Trained& t) {
    for (size_t i = 0; i < t.losses.size(); ++i)
      if (t.losses[i] <= target) return t.seconds[i];
    return static_cast<double>(NAN);
  };
  double slow = reached(adamw), fast = reached(other);
  std::string result =
      std::isfinite(fast)
          ? fmt::format("validation loss {:.4f} after {:.1f} s with Muon, {:.1f} s with AdamW", target, fast, slow)
          : fmt::format("Muon does not reach AdamW's validation loss of {:.4f} in {} steps; it ends at {:.4f}", target, steps,
                        other.losses.empty() ? NAN : other.losses.back());
  return line("Muon against AdamW", result,
              {{"target", json_number(target)}, {"muon_s", json_number(fast)}, {"adamw_s", json_number(slow)}});
}

Json products_in_parts(const LadderOptions& options, const Bench& bench) {
  Setup high;
  high.matmul_precision = MatmulPrecision::high;
  Job plain(bench.task, Setup{}), parts(bench.task, high);
  for (Job* job : {&plain, &parts}) job->step();
  const double begin = std::fabs(parts.losses().back() - plain.losses().back()) / std::fabs(plain.losses().back());
  Timing timing = time_in_turns({&parts, &plain}, bench.timing);
  Spread ratio = spread(timing.ratios(0, 1, {parts.items_per_step(), plain.items_per_step()}));
  int64_t steps = std::clamp<int64_t>(options.steps / 3, 1, 100);
  while (plain.steps() < steps && !interrupted()) plain.step();
  while (parts.steps() < steps && !interrupted()) parts.step();
  const int64_t both = std::min(plain.steps(), parts.steps());
  const double a = plain.losses()[static_cast<size_t>(both - 1)], b = parts.losses()[static_cast<size_t>(both - 1)];
  return line(
      "matmul_precision = high",
      fmt::format("three bf16 products in place of each of fp32: {:.2f}x the speed on this machine ({}; {:.2f} to {:.2f}); the "
                  "first loss differs by {:.1e}, loss {:.4f} after {} steps, {:.4f} in fp32",
                  ratio.middle, isa_name(), ratio.low, ratio.high, begin, b, both, a),
      {{"ratio", json_number(ratio.middle)},
       {"relative_difference_of_first_loss", json_number(begin)},
       {"steps", both},
       {"loss_high", json_number(b)},
       {"loss_highest", json_number(a)}});
}

Json emulated_fp8(const LadderOptions& options, const Bench& bench) {
  Setup fp8;
  fp8.parts = fp8_parts(bench.task);
  Job plain(bench.task, Setup{}), rounded(bench.task, fp8);
  int64_t steps = std::clamp<int64_t>(options.steps / 3, 1, 100);
  for (int64_t i = 0; i < steps && !interrupted(); ++i) plain.step(), rounded.step();
  double a = plain.losses().back(), b = rounded.losses().back();
  return line("fp8 e4m3, emulated",
              fmt::format("feed-forward operands rounded to fp8 in fp32 arithmetic (no speed is gained here): loss {:.4f} "
                          "after {} steps, {:.4f} without",
                          b, steps, a),
              {{"emulated", true}, {"steps", steps}, {"loss_fp8", json_number(b)}, {"loss_fp32", json_number(a)}});
}

}  // namespace

void Climb::ceiling() {
  Json list = Json::array();
  if (task_.has_blocks)
    for (int64_t length : {128, 1024})
      if (!interrupted()) list.push_back(attention_at(options_, bench_, length));
  if (task_.validation.X.defined() && !interrupted()) list.push_back(muon_against_adamw(options_, bench_));
  if (!interrupted()) list.push_back(products_in_parts(options_, bench_));
  if (task_.has_blocks && !interrupted()) list.push_back(emulated_fp8(options_, bench_));
  report_["ceiling"] = list;
}

}  // namespace ws::cli
