// inspect: what a compiled step consists of and where its time goes: the graph after the passes, kernels and arena, cost, what this
// machine's roofs predict, the time of each kernel.
#include <algorithm>

#include "analysis/reports.h"
#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/jit/loop_compiler.h"
#include "choices.h"
#include "command.h"
#include "io/file.h"
#include "ir/graph.h"
#include "runtime/executable.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/progress.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct InspectOptions {
  WorkloadOptions workload;
  std::string show = "summary", optimizer, map, dtype = "fp32", matmul_precision = "highest";
  int64_t memory_budget = 0;
  int64_t kernel = -1;  // of --show code; -1: all
  bool json = false, profile = false;
};

/// The loops of one kernel: its own, or that in a matrix product's store hole; none for a library kernel.
const LoopCall* loop_of(const KernelCall& call) {
  if (const auto* loop = std::get_if<LoopCall>(&call.what)) return loop;
  if (const auto* gemm = std::get_if<GemmCall>(&call.what)) return gemm->store.get();
  return nullptr;
}

/// LLVM's text and the assembly of the kernels, compiled anew from the graph after the passes.
std::string code_text(const std::string& graph_text, int64_t only) {
  ExecutableOptions options;
  options.num_threads = configured_threads();
  auto executable = Executable::compile(parse(graph_text), options);
  const std::vector<KernelCall>& calls = executable->program().calls;
  if (only >= static_cast<int64_t>(calls.size()))
    fail("--kernel {}: the step has {} kernels, counted from 0", only, calls.size());
  const auto isa = cpu::isa_from_name(isa_name());
  cpu::LoopCompiler compiler({cpu::loop_isa(isa.value_or(cpu::best_isa())), "", 1});
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (only >= 0 && static_cast<int64_t>(i) != only) continue;
    text += fmt::format("; kernel {}: {}\n", i, calls[i].name);
    if (const LoopCall* loop = loop_of(calls[i]))
      text += compiler.llvm_ir(*loop->kernel) + "\n" + compiler.assembly(*loop->kernel) + "\n";
    else
      text += "; written in C++, not generated\n";
  }
  return text;
}

void check_map(const std::string& file) {
  if (!has_extension(file, ".html") && !has_extension(file, ".svg")) fail("--map {}: the file must end in .svg or .html", file);
  check_can_write(file);
}

void write_map(const std::string& file, const MemoryAnalysis& memory, const std::string& model) {
  write_file(file, has_extension(file, ".html") ? memory.map_html("Memory of one training step: " + model) : memory.map_svg());
}

Json summary(const std::string& model, int64_t parameters, const Compiled& step, const MemoryAnalysis& memory) {
  const CostAnalysis cost = step.cost_analysis();
  return {{"model", model},
          {"parameters", parameters},
          {"compile_ms", step.compile_seconds() * 1e3},
          {"kernels", cost.num_kernels},
          {"kernels_run_twice", memory.num_recomputed},
          {"flops", cost.flops},
          {"bytes", cost.bytes},
          {"argument_bytes", memory.argument_bytes},
          {"output_bytes", memory.output_bytes},
          {"donated_bytes", memory.donated_bytes},
          {"derived_bytes", memory.derived_bytes},
          {"temporary_bytes", memory.temporary_bytes},
          {"arena_bytes", memory.arena_bytes},
          {"peak_bytes", memory.peak_bytes}};
}

int inspect(const InspectOptions& o) {
  static const std::vector<std::string> kParts = {"summary", "ir",      "program", "cost", "memory",
                                                  "predict", "kernels", "dtypes",  "code", "all"};
  if (std::find(kParts.begin(), kParts.end(), o.show) == kParts.end())
    fail("--show must be one of {}, not '{}'", fmt::join(kParts, ", "), o.show);
  if (!o.map.empty()) check_map(o.map);
  Workload w = make_workload(o.workload);
  auto optimizer =
      make_optimizer({o.optimizer.empty() ? w.default_optimizer : o.optimizer}, w.default_lr, w.default_weight_decay);
  Trainer trainer(*w.model, w.loss, *optimizer,
                  {.compile = true,
                   .num_threads = configured_threads(),
                   .compute_dtype = compute_dtype_of(o.dtype),
                   .matmul_precision = matmul_precision_of(o.matmul_precision),
                   .memory_budget_bytes = o.memory_budget});
  std::optional<SlowNote> phase(std::in_place, fmt::format("drawing {} samples", w.batch));
  Samples batch = w.draw(Key(o.workload.seed).fold("data"), w.batch);
  phase.emplace("the first step");
  trainer.train_step(batch.X, batch.y);
  phase.reset();
  Compiled& step = trainer.compiled_step();
  const Tensor inputs[] = {batch.X, batch.y};
  const MemoryAnalysis memory = step.memory_analysis();
  if (!o.map.empty()) write_map(o.map, memory, o.workload.model);
  if (o.show == "code") {  // long, so no part of "all"
    fmt::print("{}", code_text(step.as_text(), o.kernel));
    return 0;
  }
  auto shows = [&](const char* part) { return o.show == part || o.show == "all"; };
  const bool profiled = shows("kernels") || o.profile, predicted = shows("predict");
  if (profiled || predicted) phase.emplace("measuring roofs, the step and its kernels");
  const Roofs roofs = profiled || predicted ? machine_roofs() : Roofs();
  Profile profile;
  double seconds = 0;  // of a whole step
  if (profiled) profile = step.profile(inputs, roofs, 3);
  if (predicted) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) {
      const double begin = now_seconds();
      step(inputs);
      times.push_back(now_seconds() - begin);
    }
    seconds = median(times);
  }
  phase.reset();
  Json result = summary(o.workload.model, w.model->num_parameters(), step, memory);
  if (o.json) {
    if (shows("ir")) result["ir"] = step.as_text();
    if (shows("program")) result["program"] = step.program_text();
    if (shows("dtypes")) result["dtypes"] = parse_json(step.dtype_report().json(), "dtype report");
    if (shows("cost")) result["cost"] = to_json(step.cost_analysis());
    if (shows("memory")) result["memory"] = to_json(memory);
    if (predicted) {
      result["prediction"] = to_json(step.predict(roofs));
      result["measured_seconds"] = seconds;
      result["classification"] = to_json(step.classify(roofs, seconds));
    }
    if (profiled) result["profile"] = to_json(profile);
    print_json(result);
    return 0;
  }
  if (shows("summary")) print_readable(result);
  if (shows("ir")) fmt::print("{}\n", step.as_text());
  if (shows("program")) fmt::print("{}\n", step.program_text());
  if (shows("dtypes")) fmt::print("{}", step.dtype_report().text());
  if (shows("cost")) fmt::print("{}\n", step.cost_analysis().text());
  if (shows("memory")) fmt::print("{}\n", memory.text());
  if (predicted) fmt::print("{}{}\n", step.predict(roofs).text(), step.classify(roofs, seconds).text());
  if (profiled) fmt::print("{}", profile.text());
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* command = add_command(app, "inspect", "shows the graph, the kernels, the memory and the time of a compiled step");
  command->add_option("--model", o->workload.model, "mlp, encoder, gpt or tiny");
  command->add_option("--show", o->show, "summary, ir, program, cost, memory, predict, kernels, dtypes, code or all");
  command->add_flag("--profile", o->profile, "the time of every kernel, its share of the roof and what was predicted");
  command->add_option("--map", o->map, "FILE.svg or FILE.html for a picture of the arena over the step");
  add_number(command, "--kernel", o->kernel, 0, kMaxMeasuredSteps, "which one --show code prints, from 0; all where left out");
  command->add_option("--optimizer", o->optimizer, "as in train");
  add_dtype_option(command, o->dtype);
  add_precision_option(command, o->matmul_precision);
  add_size_options(command, o->workload, 0);
  add_memory_budget(command, o->memory_budget);
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return inspect(*o); }; });
}

}  // namespace ws::cli
