// inspect: what a compiled step consists of: the graph after the passes, kernels and arena, time of each kernel.
#include <algorithm>

#include "command.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/progress.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct InspectOptions {
  WorkloadOptions workload;
  std::string show = "summary", optimizer;
  bool json = false;
};

Json kernels_json(const std::vector<Compiled::KernelProfile>& kernels) {
  Json list = Json::array();
  for (const auto& k : kernels)
    list.push_back({{"name", k.name}, {"path", k.path}, {"ns", k.ns}, {"flops", k.flops}, {"bytes", k.bytes}});
  return list;
}

std::string kernels_table(std::vector<Compiled::KernelProfile> kernels) {
  double total = 0;
  for (const auto& k : kernels) total += k.ns;
  std::stable_sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  Table table({"kernel", "layer", "us", "share", "GFLOP/s", "GB/s"});
  for (const auto& k : kernels)
    table.add({k.name, k.path.empty() ? "-" : k.path, fmt::format("{:.1f}", k.ns / 1e3),
               fmt::format("{:.1f} %", 100 * k.ns / std::max(total, 1.0)), fmt::format("{:.1f}", k.flops / std::max(k.ns, 1.0)),
               fmt::format("{:.1f}", k.bytes / std::max(k.ns, 1.0))});
  return table.str() + fmt::format("{} kernels, {:.3f} ms\n", kernels.size(), total / 1e6);
}

int inspect(const InspectOptions& o) {
  static const std::vector<std::string> kParts = {"summary", "ir", "program", "kernels", "dtypes", "all"};
  if (std::find(kParts.begin(), kParts.end(), o.show) == kParts.end())
    fail("--show must be one of {}, not '{}'", fmt::join(kParts, ", "), o.show);
  Workload w = make_workload(o.workload);
  auto optimizer =
      make_optimizer({o.optimizer.empty() ? w.default_optimizer : o.optimizer}, w.default_lr, w.default_weight_decay);
  Trainer trainer(*w.model, w.loss, *optimizer, {.compile = true, .num_threads = configured_threads()});
  Samples batch = w.draw(Key(o.workload.seed).fold("data"), w.batch);
  trainer.train_step(batch.X, batch.y);
  Compiled& step = trainer.compiled_step();
  const Tensor inputs[] = {batch.X, batch.y};
  MemoryAnalysis memory = step.memory_analysis();
  CostAnalysis cost = step.cost_analysis();
  Json result = {{"model", o.workload.model},
                 {"parameters", w.model->num_parameters()},
                 {"compile_ms", step.compile_seconds() * 1e3},
                 {"kernels", cost.num_kernels},
                 {"flops", cost.flops},
                 {"bytes", cost.bytes},
                 {"argument_bytes", memory.argument_bytes},
                 {"output_bytes", memory.output_bytes},
                 {"donated_bytes", memory.donated_bytes},
                 {"temporary_bytes", memory.temporary_bytes},
                 {"arena_bytes", memory.arena_bytes},
                 {"peak_bytes", memory.peak_bytes}};
  auto shows = [&](const char* part) { return o.show == part || o.show == "all"; };
  if (o.json) {
    if (shows("ir")) result["ir"] = step.as_text();
    if (shows("program")) result["program"] = step.program_text();
    if (shows("dtypes")) result["dtypes"] = step.dtype_report();
    if (shows("kernels")) result["profile"] = kernels_json(step.profile(inputs));
    print_json(result);
    return 0;
  }
  if (shows("summary")) print_readable(result);
  if (shows("ir")) fmt::print("{}\n", step.as_text());
  if (shows("program")) fmt::print("{}\n", step.program_text());
  if (shows("dtypes")) fmt::print("{}\n", step.dtype_report());
  if (shows("kernels")) fmt::print("{}", kernels_table(step.profile(inputs)));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* command = add_command(app, "inspect", "shows the graph, the kernels and the memory of a compiled step");
  command->add_option("--model", o->workload.model, "mlp, encoder, gpt or tiny");
  command->add_option("--show", o->show, "summary, ir, program, kernels, dtypes or all");
  command->add_option("--optimizer", o->optimizer, "as in train");
  command->add_option("--batch", o->workload.batch, "samples a step");
  command->add_option("--seq", o->workload.seq, "positions a sample (encoder, gpt)");
  command->add_option("--width", o->workload.width, "features");
  command->add_option("--blocks", o->workload.blocks, "blocks, or layers of an mlp");
  command->add_option("--seed", o->workload.seed, "of weights and data");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return inspect(*o); }; });
}

}  // namespace ws::cli
