#include "ladder/climb.h"

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "command.h"
#include "ladder/parts.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/progress.h"

namespace ws::cli {
namespace {

constexpr int64_t kBatchFactor = 8;  // of R3, as the book: 64 -> 512
constexpr size_t kSmooth = 20;       // steps that the check averages

double mean(std::span<const double> values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? NAN : sum / static_cast<double>(values.size());
}

std::vector<double> smoothed(const std::vector<double>& values) {
  std::vector<double> result;
  for (size_t i = 0; i < values.size(); ++i) {
    size_t begin = i + 1 < kSmooth ? 0 : i + 1 - kSmooth;
    result.push_back(mean(std::span(values).subspan(begin, i + 1 - begin)));
  }
  return result;
}

std::string mib(const Json& json, const char* key) {
  return json.contains(key) ? fmt::format("{:.1f} MiB", json[key].get<double>() / (1 << 20)) : "nothing";
}

void add_receipt(Json& json, const std::string& text) { json["receipts"].push_back(text); }

/// "13 of 13 products compute in bf16; no fp32 leak", or the first leak.
std::string dtypes_line(const Compiled& step) {
  const DTypeReport report = step.dtype_report();
  int products = 0, narrow = 0;
  for (const DTypeReport::Op& op : report.ops) {
    if (op.name != "matmul") continue;
    products += op.count;
    narrow += op.compute == DType::bf16 || (!op.inputs.empty() && op.inputs[0] == DType::bf16) ? op.count : 0;
  }
  return fmt::format("{} of {} matrix products take bf16; {}", narrow, products,
                     report.leaks.empty() ? "no fp32 leak" : "leak: " + report.leaks[0].message);
}

/// Whether the budget was what limits the step at all.
std::string budget_line(const MemoryAnalysis& memory) {
  if (!memory.limited) return "the budget does not limit this step: nothing runs twice";
  return fmt::format("the budget limits this step: {} kernels run twice", memory.num_recomputed);
}

std::string bound_of(const Json& json) {
  return json.contains("classification") ? json["classification"]["bound"].get<std::string>() : "refused by its plan";
}

}  // namespace

std::vector<std::string> parse_rungs(const std::string& text) {
  static const std::vector<std::string> kKnown = {"R0", "R1", "R2", "R3", "R4", "R5", "R6"};
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string name = text.substr(at, comma - at);
    if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end())
      fail(
          "--rungs: unknown rung '{}'; known ones are R0 (loop), R1 (compiled), R2 (bf16), R3 (batch), R4 (checkpointing), R5 "
          "(data "
          "parallel), R6 (what lies above)",
          name);
    if (std::find(names.begin(), names.end(), name) != names.end()) fail("--rungs: {} occurs twice", name);
    names.push_back(name);
    at = comma + 1;
  }
  return names;
}

Climb::Climb(const LadderOptions& options)
    : options_(options), task_(make_task(options.task)), bench_{task_, {}, options.timing, nullptr} {}

bool Climb::wants(const std::string& rung) const {
  return !interrupted() && std::find(options_.rungs.begin(), options_.rungs.end(), rung) != options_.rungs.end();
}

Json Climb::run() {
  InterruptGuard guard;
  bench_.roofs = machine_roofs(configured_threads(), true);  // now: clocks and neighbours change
  first_two();
  report_ = {{"preset", options_.task.preset},
             {"model", options_.task.model},
             {"parameters", bench_.base->model().num_parameters()},
             {"data", task_.data},
             {"item", task_.item},
             {"batch", task_.batch},
             {"seq", task_.items_per_sample},
             {"threads", configured_threads()},
             {"backend", cpu_backend().name()},
             {"cpu", bench_.roofs.cpu},
             {"fp32_flops_per_s", bench_.roofs.fp32_flops_per_s},
             {"bf16_flops_per_s", bench_.roofs.bf16_flops_per_s},
             {"memory_bytes_per_s", bench_.roofs.memory_bytes_per_s},
             {"calibration", bench_.calibration}};
  if (two_.loop) {
    report_["logits_bit_identical"] = two_.logits_identical;
    report_["losses_bit_identical"] = two_.losses_identical;
    report_["common_steps"] = two_.common_steps;
    two_.loop.reset();
  }
  if (wants("R2")) bf16();
  if (wants("R3")) batch();
  if (wants("R4")) checkpointing();
  if (wants("R5")) data_parallel();
  if (wants("R6")) ceiling();
  if (!interrupted()) traps();
  if (!interrupted()) check();
  report_["rungs"] = rungs_;
  report_["controls"] = controls_;
  return report_;
}

Measured Climb::add(const std::string& rung, const std::string& change, const Setup& setup, bool control) {
  Measured measured = measure(bench_, rung, change, setup);
  measured.json["receipts"] = Json::array();
  (control ? controls_ : rungs_).push_back(measured.json);
  return measured;
}

void Climb::first_two() {
  two_ = measure_first_two(bench_, wants("R0"));
  bench_.base = two_.compiled.get();
  if (const Json& json = two_.compiled_json; json["tokens_per_s"].is_number())
    bench_.calibration = json["tokens_per_s"].get<double>() / json["predicted"].get<double>();
  if (two_.loop) {
    two_.loop_json["receipts"] = Json::array({"diagnostic only: what everything else is there to avoid"});
    rungs_.push_back(two_.loop_json);
  }
  two_.compiled_json["receipts"] = Json::array();
  if (two_.loop)
    add_receipt(two_.compiled_json, fmt::format("logits of R0 and R1: {}; losses of {} steps: {}",
                                                two_.logits_identical ? "the same bits" : "DIFFERENT", two_.common_steps,
                                                two_.losses_identical ? "the same bits" : "DIFFERENT"));
  rungs_.push_back(two_.compiled_json);
}

void Climb::bf16() {
  Json fp32 = rungs_.back();
  if (task_.has_blocks) {
    // Storage only: what a cast of the arrays alone gives, since the layers compute in fp32 as before.
    Setup naive = setup_;
    naive.parts = storage_cast_parts(task_);
    Measured cast = add("R2 naive", "activations cast, layers in fp32", naive, true);
    if (cast.job) add_receipt(controls_.back(), "storage changed, arithmetic did not: " + dtypes_line(cast.job->program()));
    Setup leaky = setup_;
    leaky.bf16 = true;
    leaky.parts = leaky_rope_parts(task_);
    if (leaky.parts.attention) {
      Measured leak = add("R2 leak", "bf16, but RoPE leaks fp32", leaky, true);
      if (leak.job) add_receipt(controls_.back(), dtypes_line(leak.job->program()));
    }
  }
  setup_.bf16 = true;
  Measured threaded = add("R2", "bf16 threaded", setup_);
  Json& json = rungs_.back();
  if (!threaded.job) return;
  add_receipt(json, fmt::format("temporaries planned: {} in bf16, {} in fp32", mib(json, "planned_temp_bytes"),
                                mib(fp32, "planned_temp_bytes")));
  add_receipt(json, dtypes_line(threaded.job->program()));
  if (json["ratio"].is_number() && json["ratio"].get<double>() < 1.1)
    add_receipt(json, fmt::format("flat: the wall is {}", bound_of(json)));
}

void Climb::batch() {
  Json small_bf16 = rungs_.back(), small_fp32;
  for (const Json& rung : rungs_)
    if (rung["rung"] == "R1") small_fp32 = rung;
  // The fp32 control first, on a model of its own that is gone before the next one is made.
  Setup control = setup_;
  control.bf16 = false;
  control.batch = task_.batch * kBatchFactor;
  Measured fp32 = add("R3 control", fmt::format("fp32 at batch {}", control.batch), control, true);
  if (!fp32.job) {
    int64_t fits = controls_.back()["fitting_batch"].get<int64_t>();
    if (fits > task_.batch) {
      control.batch = fits;
      add("R3 control", fmt::format("fp32 at batch {}, the largest that fits", fits), control, true);
    }
  }
  Json large_fp32 = controls_.back();
  fp32.job.reset();
  Setup larger = setup_;
  larger.batch = task_.batch * kBatchFactor;
  Measured measured = add("R3", fmt::format("batch {}", larger.batch), larger);
  if (!measured.job) {
    int64_t fits = rungs_.back()["fitting_batch"].get<int64_t>();
    if (fits <= task_.batch) return;
    larger.batch = fits;
    measured = add("R3", fmt::format("batch {}, the largest that fits", fits), larger);
  }
  setup_ = larger;
  if (measured.job && wants("R4")) before_checkpointing_ = std::move(measured.job);
  if (!setup_.bf16 || !rungs_.back().contains("tokens_per_s")) return;
  Json cells = Json::array();
  auto cell = [&](const char* dtype, const Json& json) {
    cells.push_back({{"dtype", dtype},
                     {"batch", json["batch"]},
                     {"tokens_per_s", json.value("tokens_per_s", Json(nullptr))},
                     {"planned_temp_bytes", json.value("planned_temp_bytes", Json(nullptr))},
                     {"wall", bound_of(json)}});
  };
  cell("fp32", small_fp32), cell("fp32", large_fp32), cell("bf16", small_bf16), cell("bf16", rungs_.back());
  report_["cells"] = cells;
  auto speed = [](const Json& json) { return json.value("tokens_per_s", Json(nullptr)); };
  if (speed(large_fp32).is_number() && speed(rungs_.back()).is_number())
    add_receipt(rungs_.back(), fmt::format("at batch {} bf16 pays {:.2f}x, at batch {} {:.2f}x", larger.batch,
                                           speed(rungs_.back()).get<double>() / speed(large_fp32).get<double>(), task_.batch,
                                           speed(small_bf16).get<double>() / speed(small_fp32).get<double>()));
}

void Climb::checkpointing() {
  if (!task_.has_blocks) {
    note("R4 is left out: --model {} has no blocks to recompute", task_.name);
    return;
  }
  Json before = rungs_.back();
  Setup checkpointed = setup_;
  checkpointed.checkpoint = true;
  Measured measured = add("R4", "blocks recomputed in backward", checkpointed);
  if (!measured.job || !before.contains("planned_temp_bytes")) return;
  // Against the rung before it in turns of their own: a ratio of two ratios to R1 would carry the noise of both.
  if (!before_checkpointing_) {
    before_checkpointing_ = std::make_unique<Job>(task_, setup_);
    before_checkpointing_->step();
  }
  auto compare = [&](Json& json, Job& job) {
    double saved = 1 - json["planned_temp_bytes"].get<double>() / before["planned_temp_bytes"].get<double>();
    Timing timing = time_in_turns({before_checkpointing_.get(), &job}, bench_.timing);
    double items = job.items_per_step();
    double slower = 1 / spread(timing.ratios(1, 0, {items, items})).middle - 1;
    json["temporaries_saved"] = saved;
    json["time_added"] = json_number(slower);
    add_receipt(json, fmt::format("temporaries {} against {}: {:.0f} % saved for {:.0f} % more time, timed in turns",
                                  mib(json, "planned_temp_bytes"), mib(before, "planned_temp_bytes"), 100 * saved, 100 * slower));
  };
  compare(rungs_.back(), *measured.job);
  measured.job.reset();
  double peak = before["planned_peak_bytes"].get<double>(), have = static_cast<double>(machine_memory_bytes());
  add_receipt(rungs_.back(), fmt::format("memory {} limiting: the step before needs {:.0f} MiB of {:.0f} MiB",
                                         peak > 0.5 * have ? "was" : "was not", peak / (1 << 20), have / (1 << 20)));
  // Under a byte budget the planner chooses what to run twice.
  Setup budget = setup_;
  budget.memory_budget_bytes = options_.memory_budget_bytes > 0
                                   ? options_.memory_budget_bytes
                                   : static_cast<int64_t>(peak - 0.3 * before["planned_temp_bytes"].get<double>());
  Measured planned = add("R4 budget", "budget " + bytes_text(static_cast<double>(budget.memory_budget_bytes)), budget, true);
  controls_.back()["after"] = true;
  if (planned.job) {
    compare(controls_.back(), *planned.job);
    add_receipt(controls_.back(), budget_line(planned.job->program().memory_analysis()));
  }
  before_checkpointing_.reset();
  setup_ = checkpointed;
}

void Climb::check() {
  if (options_.steps == 0) return;
  // The final configuration; at the first batch, so that steps cost what they cost there.
  Setup setup = setup_;
  setup.batch = task_.batch;
  bool is_first = !setup.bf16 && !setup.checkpoint;
  if (!is_first) checked_ = std::make_unique<Job>(task_, setup);
  final_ = is_first ? bench_.base : checked_.get();
  double items = final_->items_per_step();
  int64_t before = final_->steps(), wanted = std::max<int64_t>(options_.steps - before, 0);
  if (wanted > 0) {
    Progress progress("check", wanted, task_.item, items);
    while (final_->steps() < options_.steps && !interrupted()) {
      final_->step();
      if (progress.due()) progress.update(final_->steps() - before, final_->losses().back());
    }
    progress.update(final_->steps() - before, final_->losses().back());
    progress.finish();
  }
  const std::vector<double>& losses = final_->losses();
  size_t ends = std::min(kSmooth, losses.size() / 2);  // no step belongs to both ends
  double first = mean(std::span(losses).first(ends)), last = mean(std::span(losses).last(ends));
  failed_ = !interrupted() && ends > 0 && !(last < first);
  report_["check"] = {{"configuration", fmt::format("{}{}, batch {}", setup.bf16 ? "bf16" : "fp32",
                                                    setup.checkpoint ? ", checkpointed" : "", setup.batch)},
                      {"steps", losses.size()},
                      {"steps_asked", options_.steps},
                      {"averaged_steps", ends},
                      {"mean_loss_first_20", json_number(first)},
                      {"mean_loss_last_20", json_number(last)},
                      {"ratio", json_number(last / first)},
                      {"falls", last < first}};
  Json list = Json::array(), smooth = Json::array();
  for (double v : losses) list.push_back(json_number(v));
  for (double v : smoothed(losses)) smooth.push_back(json_number(v));
  report_["losses"] = list;
  report_["losses_smoothed"] = smooth;
  if (std::string bytes = final_->program().memory_analysis().map_svg(); !bytes.empty()) report_["memory_map"] = bytes;
}

void Climb::traps() { report_["traps"] = measure_traps(bench_); }

}  // namespace ws::cli
