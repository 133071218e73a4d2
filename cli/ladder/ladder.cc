// ladder: the optimization ladder of the book d2l on this machine; compare: two of its reports side by side.
#include <optional>

#include "api/training_state.h"
#include "command.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "ladder/climb.h"
#include "ladder/report.h"
#include "run_folder.h"
#include "support/error.h"
#include "support/interrupt.h"
#include "support/log.h"

namespace ws::cli {
namespace {

struct Options {
  LadderOptions ladder;
  std::string rungs = "R0,R1,R2,R3,R4,R5";
  int64_t rounds = 0, steps = 300;
  bool json = false;
};

void save(const std::string& folder, const Climb& climb, const Json& report) {
  write_file(folder + "/ladder.json", report.dump(1) + "\n");
  write_file(folder + "/ladder.svg", report_chart(report));
  write_file(folder + "/ladder.html", report_page(report));
  if (Job* job = climb.final_job()) {
    Json config = {{"model", climb.task().description}};
    config.update(climb.task().config);
    save_checkpoint(folder + "/checkpoint", {config,
                                             {{"step", job->steps()}, {"seed", climb.task().seed}},
                                             model_state(job->model()),
                                             optimizer_state(job->optimizer()),
                                             {}});
  }
}

int ladder(Options o) {
  if (o.ladder.task.preset != "quick" && o.ladder.task.preset != "book")
    fail("--preset must be quick or book, not '{}'", o.ladder.task.preset);
  bool is_quick = o.ladder.task.preset == "quick";
  o.ladder.rungs = parse_rungs(o.rungs);
  o.ladder.steps = o.steps;
  o.ladder.timing.rounds = o.rounds > 0 ? static_cast<int>(o.rounds) : is_quick ? 3 : 5;
  o.ladder.timing.seconds_per_turn = is_quick ? 0.3 : 1.0;
  std::optional<RunFolder> folder;
  if (!o.ladder.out.empty()) {
    check_can_keep(o.ladder.out);
    check_can_write(o.ladder.out + "/ladder.json");
    folder.emplace(o.ladder.out);
    if (holds_saved_run(o.ladder.out) && !holds_ladder(o.ladder.out))
      fail("{} holds a run of train: give another --out", o.ladder.out);
    if (holds_report(o.ladder.out)) note("{} holds a ladder, which this one replaces at its end", o.ladder.out);
  }
  Climb climb(o.ladder);
  Json report = climb.run();
  if (!o.ladder.out.empty()) save(o.ladder.out, climb, report);
  if (o.json) {
    print_json(report);
  } else {
    fmt::print("{}", report_table(report));
    if (!o.ladder.out.empty()) fmt::print("{0}/ladder.html, ladder.svg, ladder.json, checkpoint\n", o.ladder.out);
    std::fflush(stdout);
  }
  if (interrupted()) {
    note("stopped{}", o.ladder.out.empty() ? "" : "; what was done is saved");
    return exit_code_of(interrupt_signal());
  }
  if (climb.failed()) note("the loss of the final check does not fall");
  return climb.failed() ? kUserError : 0;
}

Json load_report(const std::string& path) {
  Json report = parse_json(MappedFile(path).text(), path);
  if (!report.is_object() || !report.contains("rungs") || !report["rungs"].is_array())
    fail("{}: this is no report of the ladder: it has no list \"rungs\"", path);
  for (const char* list : {"rungs", "controls"})
    for (const Json& rung : report.value(list, Json::array()))
      if (!rung.is_object() || !rung.contains("rung") || !rung["rung"].is_string())
        fail("{}: an entry of \"{}\" has no name \"rung\"", path, list);
  return report;
}

}  // namespace

void add_ladder(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  TaskOptions& task = o->ladder.task;
  CLI::App* command = add_command(app, "ladder", "the book's optimization ladder, each rung predicted, measured, explained");
  command->add_option("--preset", task.preset, "quick (gpt of width 128, 4 blocks, batch 16) or book (512, 6, 64)");
  command->add_option("--text", task.text, "a text in UTF-8; default the built-in corpus");
  command->add_option("--vocab", task.vocab, "letters (28 symbols) or utf8");
  command->add_option("--rungs", o->rungs,
                      "R0 loop, R1 compiled (always), R2 bf16, R3 batch, R4 checkpointing, R5 data parallel, R6 what lies above");
  command->add_option("--model", task.model, "gpt, encoder, mlp or a FILE.json that describes a gpt or encoder");
  add_number(command, "--steps", o->steps, 0, kMaxMeasuredSteps,
             "steps of the check that it trains; those that were timed count");
  add_number(command, "--rounds", o->rounds, 1, 1000, "rounds of timing, the rungs in turn");
  add_number(command, "--seq", task.seq, 1, kMaxSeq, "tokens a sample");
  add_seed(command, task.seed, "of weights and windows");
  add_memory_budget(command, o->ladder.memory_budget_bytes,
                    "of rung R4's control \"R4 budget\" alone; default what spares 30 % of the temporaries");
  command->add_option("--out", o->ladder.out, "folder for ladder.html, ladder.svg, ladder.json and the trained model");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return ladder(*o); }; });
}

void add_compare(CLI::App& app, Action& action) {
  struct Files {
    std::string a, b;
    bool json = false;
  };
  auto o = std::make_shared<Files>();
  CLI::App* command = add_command(app, "compare", "two reports of the ladder side by side");
  command->add_option("A", o->a, "ladder.json of the first")->required();
  command->add_option("B", o->b, "ladder.json of the second")->required();
  add_json_option(command, o->json);
  command->callback([o, &action] {
    action = [o] {
      Json a = load_report(o->a), b = load_report(o->b);
      if (o->json)
        print_json({{"A", a}, {"B", b}});
      else
        fmt::print("{}", compare_reports(a, b, o->a, o->b));
      return 0;
    };
  });
}

}  // namespace ws::cli
