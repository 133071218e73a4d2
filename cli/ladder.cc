// ladder: the optimization ladder of the book d2l on this machine: the same training step, first as the step-by-step loop (R0), then
// as one compiled call (R1), timed end to end with the drawing of batches, with counted FLOPs and bytes and a check that it trains.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "analysis/roofs.h"
#include "api/json_config.h"
#include "api/model_from_json.h"
#include "api/training_state.h"
#include "backend/backend.h"
#include "command.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/progress.h"
#include "text_data.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct LadderOptions {
  std::string preset = "quick", text, vocab = "letters", rungs = "R0,R1", model = "gpt", out;
  int64_t steps = 300, seq = 128, rounds = 5;
  uint64_t seed = 0;
  bool json = false;
};

constexpr double kSecondsPerTurn = 1.0;  // of each rung in each round

/// One rung: a model of its own from the same initial weights.
struct Rung {
  std::string name, change;
  std::unique_ptr<Module> model;
  std::unique_ptr<AdamW> optimizer;
  std::unique_ptr<Trainer> trainer;
  int64_t step = 0;
  double first_call_seconds = 0;
  std::vector<double> losses, turn_seconds;  // seconds a step, by round

  void train(const WindowSampler& windows, int64_t batch) {
    Samples s = windows.draw(step, batch);
    losses.push_back(trainer->train_step(s.X, s.y).item());
    ++step;
  }
};

Rung make_rung(const std::string& name, const Json& description, uint64_t seed) {
  Rung rung;
  rung.name = name;
  bool compile = name == "R1";
  rung.change = compile ? "whole step compiled" : "step-by-step loop";
  rung.model = model_from_json(description, Key(seed), "model");
  rung.optimizer = std::make_unique<AdamW>(AdamWOptions{.lr = 1e-3, .weight_decay = 1e-4});
  rung.trainer = std::make_unique<Trainer>(*rung.model, SoftmaxCrossEntropy(), *rung.optimizer,
                                           TrainerOptions{.compile = compile, .num_threads = configured_threads()});
  return rung;
}

std::vector<std::string> parse_rungs(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    size_t comma = std::min(text.find(',', at), text.size());
    std::string name = text.substr(at, comma - at);
    if (name != "R0" && name != "R1") fail("--rungs: unknown rung '{}'; known ones are R0 (loop) and R1 (compiled)", name);
    if (std::find(names.begin(), names.end(), name) != names.end()) fail("--rungs: {} occurs twice", name);
    names.push_back(name);
    at = comma + 1;
  }
  return names;
}

double mean(std::span<const double> values) {
  double sum = 0;
  for (double v : values) sum += v;
  return values.empty() ? NAN : sum / static_cast<double>(values.size());
}

class Ladder {
 public:
  explicit Ladder(const LadderOptions& o)
      : o_(o), names_(parse_rungs(o.rungs)), batch_(o.preset == "book" ? 64 : 16), corpus_(open_text(o.text, o.vocab, o.seq)),
        windows_(corpus_.train(), o.seq, Key(o.seed).fold("windows")) {
    description_ = o.model == "gpt" ? gpt_config_to_json(o.preset == "book" ? book_gpt(corpus_.vocabulary.size(), 512, 6, o.seq)
                                                                            : book_gpt(corpus_.vocabulary.size(), 128, 4, o.seq))
                                    : parse_json(MappedFile(o.model).text(), o.model);
    for (const std::string& name : names_) rungs_.push_back(make_rung(name, description_, o.seed));
  }

  int climb() {
    InterruptGuard guard;
    say("{} parameters, {} tokens of {}, batch {} x {}, {} on {} threads",
        human(static_cast<double>(rungs_[0].model->num_parameters())), human(static_cast<double>(corpus_.tokens.size())),
        corpus_.name, batch_, o_.seq, cpu_backend().name(), configured_threads());
    if (rungs_.size() == 2) compare_logits();
    for (Rung& rung : rungs_) first_call(rung);
    for (int64_t round = 0; round < o_.rounds && !interrupted(); ++round)
      for (Rung& rung : rungs_) turn(rung);
    compare_losses();
    measure_roofs();
    if (!interrupted()) check();
    Json result = report();
    if (!o_.out.empty()) save(result);
    o_.json ? print_json(result) : print_table(result);
    if (interrupted()) note("stopped by Ctrl-C{}", o_.out.empty() ? "" : "; what was done is saved");
    return interrupted() ? kInterrupted : 0;
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    fmt::print(stderr, "{}\n", fmt::format(format, std::forward<Args>(args)...));
  }

  // The book allows 1e-2 between the two; ours have the same bits.
  void compare_logits() {
    Samples s = windows_.draw(0, std::min<int64_t>(batch_, 4));
    std::vector<float> a = rungs_[0].trainer->predict(s.X).to_vector<float>(),
                       b = rungs_[1].trainer->predict(s.X).to_vector<float>();
    logits_identical_ = std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  void first_call(Rung& rung) {
    double begin = now_seconds();
    rung.train(windows_, batch_);
    rung.first_call_seconds = now_seconds() - begin;
    say("{} {}: first step {:.3f} s", rung.name, rung.change, rung.first_call_seconds);
  }

  // About a second of steps, the drawing of their batches included.
  void turn(Rung& rung) {
    double begin = now_seconds(), elapsed = 0;
    int64_t steps = 0;
    do {
      rung.train(windows_, batch_);
      ++steps;
      elapsed = now_seconds() - begin;
    } while (elapsed < kSecondsPerTurn && !interrupted());
    rung.turn_seconds.push_back(elapsed / static_cast<double>(steps));
  }

  // The loop's steps are the first of the compiled one's: same windows, same bits.
  void compare_losses() {
    if (rungs_.size() < 2) return;
    size_t common = std::min(rungs_[0].losses.size(), rungs_[1].losses.size());
    losses_identical_ = std::memcmp(rungs_[0].losses.data(), rungs_[1].losses.data(), common * sizeof(double)) == 0;
    common_steps_ = common;
  }

  void measure_roofs() { roofs_ = machine_roofs(); }

  // The fastest rung trains on: the loss must fall.
  void check() {
    Rung& rung = rungs_.back();
    if (rung.step >= o_.steps) return;
    Progress progress(fmt::format("{} check", rung.name), o_.steps - rung.step, "tokens", static_cast<double>(batch_ * o_.seq));
    int64_t before = rung.step;
    while (rung.step < o_.steps && !interrupted()) {
      rung.train(windows_, batch_);
      if (progress.due()) progress.update(rung.step - before, rung.losses.back());
    }
    progress.update(rung.step - before, rung.losses.back());
    progress.finish();
  }

  Json rung_json(Rung& rung) const {
    double seconds = median(rung.turn_seconds), tokens = static_cast<double>(batch_ * o_.seq);
    Json json = {{"rung", rung.name},
                 {"change", rung.change},
                 {"step_ms", json_number(seconds * 1e3)},
                 {"tokens_per_s", json_number(seconds > 0 ? tokens / seconds : NAN)},
                 {"first_call_s", rung.first_call_seconds}};
    if (rung.name != "R1") return json;
    Compiled& step = rung.trainer->compiled_step();
    CostAnalysis cost = step.cost_analysis();
    MemoryAnalysis memory = step.memory_analysis();
    json["compile_s"] = step.compile_seconds();
    json["flops"] = cost.flops;
    json["bytes"] = cost.bytes;
    json["kernels"] = cost.num_kernels;
    json["planned_temp_bytes"] = memory.temporary_bytes;
    json["peak_bytes"] = memory.peak_bytes;
    if (seconds > 0) {
      json["flops_per_s"] = cost.flops / seconds;
      json["share_of_peak"] = cost.flops / seconds / roofs_.fp32_flops_per_s;
      json["share_of_bandwidth"] = cost.bytes / seconds / roofs_.memory_bytes_per_s;
      // The least time that either roof allows, over the time taken.
      json["share_of_roof"] = std::max(cost.flops / roofs_.fp32_flops_per_s, cost.bytes / roofs_.memory_bytes_per_s) / seconds;
    }
    return json;
  }

  Json report() {
    Json list = Json::array();
    for (Rung& rung : rungs_) list.push_back(rung_json(rung));
    if (rungs_.size() == 2) {
      std::vector<double> ratios;
      const Rung &first = rungs_[0], &second = rungs_[1];
      for (size_t i = 0; i < std::min(first.turn_seconds.size(), second.turn_seconds.size()); ++i)
        ratios.push_back(first.turn_seconds[i] / second.turn_seconds[i]);
      list[1]["speedup"] = json_number(ratios.empty() ? NAN : median(ratios));  // of the rounds' ratios: the clock drifts
    }
    const Rung& last = rungs_.back();
    size_t ends = std::min<size_t>(20, last.losses.size());
    double first = mean(std::span(last.losses).first(ends)), final = mean(std::span(last.losses).last(ends));
    Json result = {{"preset", o_.preset},
                   {"model", o_.model},
                   {"parameters", last.model->num_parameters()},
                   {"corpus_tokens", corpus_.tokens.size()},
                   {"batch", batch_},
                   {"seq", o_.seq},
                   {"threads", configured_threads()},
                   {"backend", cpu_backend().name()},
                   {"fp32_flops_per_s", roofs_.fp32_flops_per_s},
                   {"memory_bytes_per_s", roofs_.memory_bytes_per_s},
                   {"rungs", list}};
    if (rungs_.size() == 2) {
      result["logits_bit_identical"] = logits_identical_;
      result["losses_bit_identical"] = losses_identical_;
      result["common_steps"] = common_steps_;
    }
    result["check"] = {{"steps", last.losses.size()},
                       {"mean_loss_first_20", json_number(first)},
                       {"mean_loss_last_20", json_number(final)},
                       {"ratio", json_number(final / first)}};
    return result;
  }

  void save(const Json& result) {
    std::error_code problem;
    std::filesystem::create_directories(o_.out, problem);
    if (problem) fail("cannot write {}: {}", o_.out, problem.message());
    write_file(o_.out + "/ladder.json", result.dump(1) + "\n");
    Json config = {{"model", description_}};
    config.update(text_config(corpus_, o_.seq));
    const Rung& rung = rungs_.back();
    save_checkpoint(
        o_.out + "/checkpoint",
        {config, {{"step", rung.step}, {"seed", o_.seed}}, model_state(*rung.model), optimizer_state(*rung.optimizer)});
  }

  void print_table(const Json& result) const {
    Table table({"rung", "tokens/s", "ms/step", "speed-up", "first call", "GFLOP/s", "of roof", "temporaries"});
    auto number = [](const Json& json, const char* key, double scale, const char* format) {
      return json.contains(key) && json[key].is_number() ? fmt::format(fmt::runtime(format), json[key].get<double>() * scale)
                                                         : std::string("-");
    };
    for (const Json& rung : result["rungs"])
      table.add({rung["rung"].get<std::string>() + " " + rung["change"].get<std::string>(),
                 number(rung, "tokens_per_s", 1, "{:.0f}"), number(rung, "step_ms", 1, "{:.2f}"),
                 number(rung, "speedup", 1, "{:.2f}x"), number(rung, "first_call_s", 1, "{:.3f} s"),
                 number(rung, "flops_per_s", 1e-9, "{:.1f}"), number(rung, "share_of_roof", 100, "{:.0f} %"),
                 number(rung, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB")});
    fmt::print("\n{}", table.str());
    fmt::print("roofs: {:.0f} GFLOP/s fp32, {:.1f} GB/s\n", roofs_.fp32_flops_per_s / 1e9, roofs_.memory_bytes_per_s / 1e9);
    if (rungs_.size() == 2)
      fmt::print("loop and compiled: logits {}, losses of {} steps {}\n", logits_identical_ ? "bit-identical" : "DIFFER",
                 common_steps_, losses_identical_ ? "bit-identical" : "DIFFER");
    const Json& check = result["check"];
    fmt::print("{} steps: mean loss {:.4f} (first 20) -> {:.4f} (last 20)\n", check["steps"].dump(),
               check["mean_loss_first_20"].get<double>(), check["mean_loss_last_20"].get<double>());
    std::fflush(stdout);
  }

  const LadderOptions& o_;
  std::vector<std::string> names_;
  int64_t batch_;
  Corpus corpus_;
  WindowSampler windows_;
  Json description_;
  std::vector<Rung> rungs_;
  Roofs roofs_;
  bool logits_identical_ = false, losses_identical_ = false;
  size_t common_steps_ = 0;
};

int ladder(const LadderOptions& o) {
  if (o.preset != "quick" && o.preset != "book") fail("--preset must be quick or book, not '{}'", o.preset);
  if (o.steps < 0 || o.rounds < 1) fail("--steps must not be negative, --rounds must be at least 1");
  return Ladder(o).climb();
}

}  // namespace

void add_ladder(CLI::App& app, Action& action) {
  auto o = std::make_shared<LadderOptions>();
  CLI::App* command = add_command(app, "ladder", "the book's optimization ladder: loop, then the whole step compiled");
  command->add_option("--preset", o->preset, "quick (width 128, 4 blocks, batch 16) or book (512, 6, 64)");
  command->add_option("--text", o->text, "a text in UTF-8; default the built-in corpus");
  command->add_option("--vocab", o->vocab, "letters (28 symbols) or utf8");
  command->add_option("--rungs", o->rungs, "R0 (loop), R1 (compiled)");
  command->add_option("--model", o->model, "gpt or a FILE.json that describes one");
  command->add_option("--steps", o->steps, "steps of the check that it trains");
  command->add_option("--rounds", o->rounds, "rounds of timing, the rungs in turn");
  command->add_option("--seq", o->seq, "tokens a sample");
  command->add_option("--seed", o->seed, "of weights and windows");
  command->add_option("--out", o->out, "folder for ladder.json and the trained model");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return ladder(*o); }; });
}

}  // namespace ws::cli
