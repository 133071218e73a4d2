// bench-trainer: the compiled Trainer against the loop, by the protocol of the published benchmark of dense_armor: sessions of 20 steps
// from seed 0, the clock stopped when loss and parameters are ready; whole steps and fit, first call, parity at steps 1, 10, 50, 200.
// Writes all of it as JSON and judges the three published claims.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "analysis/statistics.h"
#include "api/json_config.h"
#include "choices.h"
#include "command.h"
#include "io/file.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/machine.h"
#include "support/text_table.h"
#include "workload.h"

namespace ws::cli {
namespace {

constexpr double kLargestDifference = 1e-4;  // claim 1
constexpr double kCpuSpeedUp = 1.5;          // claim 3

struct BenchTrainerOptions {
  std::string models = "mlp,encoder", out = "benchmarks/compiled_step_cpu.json";
  WorkloadOptions sizes;  // of all models
  int64_t sessions = 3, steps = 20, parity_steps = 200;
  bool json = false;
};

/// Rates of one mode.
struct Rates {
  std::vector<double> step_seconds;            // of every step of every session
  std::vector<double> steps_per_s, fit_per_s;  // by session
  double first_call_s = 0, compile_s = NAN;    // of the first session, nothing cached
};

struct Training {
  Workload workload;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Trainer> trainer;
  Training(const WorkloadOptions& sizes, bool compile)
      : workload(make_workload(sizes)),
        optimizer(make_optimizer({workload.default_optimizer}, workload.default_lr, workload.default_weight_decay)),
        trainer(std::make_unique<Trainer>(*workload.model, workload.loss, *optimizer,
                                          TrainerOptions{.compile = compile, .num_threads = configured_threads()})) {}
};

void check_interrupt() {
  if (interrupted()) throw Stopped("stopped; nothing was written");
}

/// One training of a session with its fixed batch.
struct Session {
  Key key;
  Training training;
  Samples batch;
  Session(const WorkloadOptions& sizes, bool compile)
      : key(Key(sizes.seed).fold("data")), training(sizes, compile), batch(training.workload.draw(key, training.workload.batch)) {
  }

  double timed_step() {
    check_interrupt();
    double begin = now_seconds();
    training.trainer->train_step(batch.X, batch.y).item();  // the loss is read, and the parameters are written before it can be
    return now_seconds() - begin;
  }

  double timed_fit(int64_t steps) {
    Samples data = training.workload.draw(key.fold("fit"), training.workload.batch * steps);
    FitOptions fit{.batch_size = training.workload.batch, .key = key};
    fit.on_step = [](const StepInfo&) { check_interrupt(); };
    training.trainer->fit(data.X, data.y, fit);  // the warm-up epoch
    double begin = now_seconds();
    training.trainer->fit(data.X, data.y, fit);
    return static_cast<double>(steps) / (now_seconds() - begin);
  }
};

/// Steps of both modes in turn, so that both see the same neighbours.
void run_session(const BenchTrainerOptions& o, const WorkloadOptions& sizes, Rates& loop, Rates& compiled) {
  Session sessions[] = {{sizes, false}, {sizes, true}};
  Rates* rates[] = {&loop, &compiled};
  double total[] = {0, 0};
  for (size_t mode : {0, 1}) {
    double first = sessions[mode].timed_step();
    if (rates[mode]->steps_per_s.empty()) rates[mode]->first_call_s = first;
  }
  if (compiled.steps_per_s.empty()) compiled.compile_s = sessions[1].training.trainer->compiled_step().compile_seconds();
  for (int64_t i = 0; i < o.steps; ++i)
    for (size_t mode : {0, 1}) {
      rates[mode]->step_seconds.push_back(sessions[mode].timed_step());
      total[mode] += rates[mode]->step_seconds.back();
    }
  for (size_t mode : {0, 1}) {
    rates[mode]->steps_per_s.push_back(static_cast<double>(o.steps) / total[mode]);
    rates[mode]->fit_per_s.push_back(sessions[mode].timed_fit(o.steps));
  }
}

/// Of step i of the loop over step i of the compiled step.
double median_of_ratios(const Rates& loop, const Rates& compiled) {
  std::vector<double> ratios;
  for (size_t i = 0; i < loop.step_seconds.size(); ++i) ratios.push_back(loop.step_seconds[i] / compiled.step_seconds[i]);
  return median(ratios);
}

/// Sessions of one mode that differ by more than this factor say that something else had the machine.
constexpr double kQuiet = 1.3;
/// null where one session cannot tell.
Json is_noisy(const Json& measured) {
  if (measured["loop"]["sessions"].size() < 2) return nullptr;
  for (const char* mode : {"loop", "compiled"})
    if (measured[mode]["max"].get<double>() > kQuiet * measured[mode]["min"].get<double>()) return true;
  return false;
}

Json summary(const std::vector<double>& per_session) {
  auto [low, high] = std::minmax_element(per_session.begin(), per_session.end());
  return {{"sessions", per_session}, {"median", median(per_session)}, {"min", *low}, {"max", *high}};
}

/// Both modes from the same weights on the same ten batches.
Json compare_modes(const BenchTrainerOptions& o, const WorkloadOptions& sizes) {
  constexpr int64_t kBatches = 10;
  std::vector<double> losses[2];
  std::string state[2];
  for (bool compile : {false, true}) {
    Training t(sizes, compile);
    std::vector<Samples> batches;
    for (int64_t i = 0; i < kBatches; ++i)
      batches.push_back(t.workload.draw(Key(sizes.seed).fold("parity").fold(static_cast<uint64_t>(i)), t.workload.batch));
    for (int64_t i = 0; i < o.parity_steps; ++i) {
      check_interrupt();
      const Samples& b = batches[static_cast<size_t>(i % kBatches)];
      losses[compile].push_back(t.trainer->train_step(b.X, b.y).item());
    }
    std::vector<Variable> variables;
    t.workload.model->collect_state(variables);
    t.optimizer->collect_state(variables);
    for (const Variable& v : variables)
      state[compile].append(static_cast<const char*>(v.value().data()),
                            static_cast<size_t>(v.value().size()) * size_of(v.value().dtype()));
  }
  Json by_step = Json::object();
  double largest = 0;
  for (size_t step : {1, 10, 50, 200}) {
    if (step > losses[0].size()) continue;
    double loop = losses[0][step - 1], compiled = losses[1][step - 1];
    double difference = loop == compiled ? 0 : std::fabs(loop - compiled) / std::max(std::fabs(loop), 1e-300);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
    by_step[std::to_string(step)] = {{"loop", loop}, {"compiled", compiled}, {"relative_difference", json_number(difference)}};
  }
  return {{"steps", o.parity_steps},
          {"losses", by_step},
          {"largest_relative_difference", json_number(largest)},
          {"losses_bit_identical", losses[0] == losses[1]},
          {"parameters_and_state_bit_identical", state[0] == state[1]}};
}

Json bench_model(const BenchTrainerOptions& o, const std::string& model) {
  WorkloadOptions sizes = o.sizes;
  sizes.model = model;
  Workload w = make_workload(sizes);
  Rates loop, compiled;
  for (int64_t s = 0; s < o.sessions; ++s) {
    note("{}: session {} of {}", model, s + 1, o.sessions);
    run_session(o, sizes, loop, compiled);
  }
  note("{}: parity over {} steps", model, o.parity_steps);
  Wilcoxon test = wilcoxon_signed_rank(loop.step_seconds, compiled.step_seconds);
  double step_ratio = median(compiled.steps_per_s) / median(loop.steps_per_s);
  double fit_ratio = median(compiled.fit_per_s) / median(loop.fit_per_s);
  Json result = {{"model", model}, {"batch", w.batch}};
  if (w.tokens_per_step) result["seq"] = sizes.seq;
  result["parameters"] = w.model->num_parameters();
  result["step"] = {{"unit", "steps/s"},
                    {"loop", summary(loop.steps_per_s)},
                    {"compiled", summary(compiled.steps_per_s)},
                    {"ratio_of_medians", step_ratio},
                    {"median_of_paired_ratios", median_of_ratios(loop, compiled)},
                    {"wilcoxon",
                     {{"of", "seconds of step i of each session, loop against compiled"},
                      {"pairs", test.pairs},
                      {"statistic", test.statistic},
                      {"p_two_sided", test.p_two_sided},
                      {"exact", test.exact}}},
                    {"a12",
                     {{"of", "a step of the loop takes longer than one of the compiled step"},
                      {"value", a12_effect_size(loop.step_seconds, compiled.step_seconds)}}}};
  result["step"]["noisy"] = is_noisy(result["step"]);
  result["fit"] = {{"unit", "steps/s"},
                   {"loop", summary(loop.fit_per_s)},
                   {"compiled", summary(compiled.fit_per_s)},
                   {"ratio_of_medians", fit_ratio}};
  result["fit"]["noisy"] = is_noisy(result["fit"]);
  result["first_call_s"] = {{"loop", loop.first_call_s}, {"compiled", compiled.first_call_s}, {"compile", compiled.compile_s}};
  result["parity"] = compare_modes(o, sizes);
  return result;
}

Json claim(const std::string& text, const std::string& verdict, const std::string& evidence) {
  return {{"claim", text}, {"verdict", verdict}, {"evidence", evidence}};
}

const char* verdict(bool holds) { return holds ? "holds" : "does not hold"; }

Json judge(const Json& models, int64_t parity_steps, bool published_sizes) {
  bool close = true, fast = true, noisy = false, unknown = false;
  std::string differences, ratios;
  for (const Json& m : models) {
    const Json& largest = m["parity"]["largest_relative_difference"];
    close = close && largest.is_number() && largest.get<double>() <= kLargestDifference;
    double ratio = m["step"]["median_of_paired_ratios"].get<double>();
    noisy = noisy || m["step"]["noisy"] == Json(true);
    unknown = unknown || m["step"]["noisy"].is_null();
    fast = fast && ratio >= kCpuSpeedUp;
    differences += fmt::format("{}{} {}", differences.empty() ? "" : ", ", m["model"].get<std::string>(), largest.dump());
    ratios += fmt::format("{}{} {:.2f}", ratios.empty() ? "" : ", ", m["model"].get<std::string>(), ratio);
  }
  std::string run = parity_steps >= 200 ? "" : fmt::format(" (only {} steps were run)", parity_steps);
  bool both = models.size() == 2;
  std::string missing = both ? "" : "; of one model only";
  if (!published_sizes) missing += "; at other sizes than the published ones";
  std::string doubt = noisy     ? fmt::format("; sessions of one mode differ by more than a factor of {}", kQuiet)
                      : unknown ? "; one session cannot tell how noisy the machine is: see --sessions"
                                : "";
  return Json::array(
      {claim("the compiled loss is within 1e-4 of the loop's at steps 1, 10, 50 and 200 on both models",
             close && parity_steps < 200 ? "not measured in full" : verdict(close), "largest: " + differences + run + missing),
       claim("on a GPU the compiled step makes at least 3.0 times the steps of the loop", "not measured",
             "there is no GPU backend"),
       claim("on a CPU the compiled step makes at least 1.5 times the steps of the loop",
             noisy ? "too noisy for a verdict" : verdict(fast), ratios + missing + doubt)});
}

void print_report(const Json& report) {
  TextTable table({"model", "", "loop, steps/s", "compiled, steps/s", "ratio", "first call (compile)"});
  auto rate = [](const Json& r) {
    return fmt::format("{:.4g} ({:.4g} to {:.4g})", r["median"].get<double>(), r["min"].get<double>(), r["max"].get<double>());
  };
  for (const Json& m : report["models"])
    for (const char* what : {"step", "fit"}) {
      bool step = std::strcmp(what, "step") == 0;
      table.add({m["model"], what, rate(m[what]["loop"]), rate(m[what]["compiled"]),
                 fmt::format("{:.2f}{}", m[what][step ? "median_of_paired_ratios" : "ratio_of_medians"].get<double>(),
                             m[what]["noisy"] == Json(true) ? " (noisy)" : ""),
                 step ? fmt::format("{:.3f} s ({:.3f} s)", m["first_call_s"]["compiled"].get<double>(),
                                    m["first_call_s"]["compile"].get<double>())
                      : ""});
    }
  fmt::print("{}", table.str());
  for (const Json& m : report["models"]) {
    fmt::print("{}: ", m["model"].get<std::string>());
    for (const auto& [step, loss] : m["parity"]["losses"].items())
      fmt::print("step {} {}, ", step, loss["relative_difference"].dump());
    fmt::print("parameters and state bit-identical: {}; Wilcoxon p {:.2g} of {} pairs, A12 {:.3f}\n",
               m["parity"]["parameters_and_state_bit_identical"].get<bool>() ? "yes" : "no",
               m["step"]["wilcoxon"]["p_two_sided"].get<double>(), m["step"]["wilcoxon"]["pairs"].get<int64_t>(),
               m["step"]["a12"]["value"].get<double>());
  }
  for (const Json& c : report["claims"])
    fmt::print("{}: {} ({})\n", c["verdict"].get<std::string>(), c["claim"].get<std::string>(), c["evidence"].get<std::string>());
  for (const Json& missing : report["not_measured"]) fmt::print("not measured: {}\n", missing.get<std::string>());
}

int bench_trainer(const BenchTrainerOptions& o) {
  std::vector<std::string> models;
  for (size_t at = 0; at <= o.models.size();) {
    size_t comma = std::min(o.models.find(',', at), o.models.size());
    models.push_back(o.models.substr(at, comma - at));
    if (models.back() != "mlp" && models.back() != "encoder")
      fail("--models names mlp, encoder or both, not '{}'", models.back());
    at = comma + 1;
  }
  if (!o.out.empty()) check_can_write(o.out);
  InterruptGuard guard;
  set_flag("cache", "0", "bench-trainer");  // the first call compiles
  Json report = {{"benchmark", "compiled_step"},
                 {"device", {{"kind", "cpu"}, {"name", cpu_model()}, {"isa", isa_name()}, {"threads", configured_threads()}}},
                 {"versions", {{"wholestep", WS_VERSION}, {"compiler", __VERSION__}, {"llvm", WS_LLVM_VERSION}}},
                 {"protocol",
                  {{"sessions", o.sessions},
                   {"steps", o.steps},
                   {"seed", o.sizes.seed},
                   {"dtype", "fp32"},
                   {"order", "a step of the loop and one of the compiled step in turn, then fit of each"},
                   {"clock", "stops when the loss and the parameters are ready"},
                   {"fit", "an epoch of as many batches, after one epoch of warm-up"}}},
                 {"models", Json::array()}};
  for (const std::string& model : models) report["models"].push_back(bench_model(o, model));
  report["claims"] =
      judge(report["models"], o.parity_steps,
            o.sizes.batch == 0 && o.sizes.width == 0 && o.sizes.blocks < 0 && o.sizes.seq == WorkloadOptions().seq);
  report["not_measured"] = {"a GPU", "bf16 (wholestep bench --dtype)", "other machines: the rates are of this one, as it was"};
  if (!o.out.empty()) {
    write_file(o.out, report.dump(1) + "\n");
    note("wrote {}", o.out);
  }
  o.json ? print_json(report) : print_report(report);
  return 0;
}

}  // namespace

void add_bench_trainer(CLI::App& app, Action& action) {
  auto o = std::make_shared<BenchTrainerOptions>();
  CLI::App* command = add_command(app, "bench-trainer", "the compiled Trainer against the loop: rates, parity, claims");
  command->add_option("--models", o->models, "mlp,encoder");
  add_number(command, "--sessions", o->sessions, 1, 1000, "sessions of each mode");
  add_number(command, "--steps", o->steps, 1, kMaxMeasuredSteps, "timed steps a session");
  add_number(command, "--parity-steps", o->parity_steps, 1, kMaxMeasuredSteps, "steps of the comparison of losses");
  add_number(command, "--batch", o->sizes.batch, 1, kMaxBatch, "samples a step");
  add_number(command, "--seq", o->sizes.seq, 1, kMaxSeq, "positions a sample (encoder)");
  add_number(command, "--width", o->sizes.width, 1, kMaxWidth, kWidthHelp);
  add_number(command, "--blocks", o->sizes.blocks, 1, kMaxBlocks, "blocks, or layers of an mlp");
  add_seed(command, o->sizes.seed, "of weights and data");
  command->add_option("--out", o->out, "the file to write; '' for none");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return bench_trainer(*o); }; });
}

}  // namespace ws::cli
