// inspect: what a compiled step consists of: the graph after the passes, kernels and arena, time of each kernel.
#include <algorithm>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/jit/loop_compiler.h"
#include "command.h"
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
  std::string show = "summary", optimizer, dtype = "fp32";
  int kernel = -1;  // of --show code; -1: all
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

/// The loops of one kernel: its own, or that in a matrix product's store hole; none for a library kernel.
const LoopCall* loop_of(const KernelCall& call) {
  if (const auto* loop = std::get_if<LoopCall>(&call.what)) return loop;
  if (const auto* gemm = std::get_if<GemmCall>(&call.what)) return gemm->store.get();
  return nullptr;
}

/// LLVM's text and the assembly of the kernels, compiled anew from the graph after the passes.
std::string code_text(const std::string& graph_text, int only) {
  ExecutableOptions options;
  options.num_threads = configured_threads();
  auto executable = Executable::compile(parse(graph_text), options);
  const std::vector<KernelCall>& calls = executable->program().calls;
  if (only >= static_cast<int>(calls.size())) fail("--kernel {}: the step has {} kernels", only, calls.size());
  std::string backend = cpu_backend().name();
  auto isa = cpu::isa_from_name(std::string_view(backend).substr(backend.find(':') + 1));
  cpu::LoopCompiler compiler({isa.value_or(cpu::best_isa()), "", 1});
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (only >= 0 && static_cast<int>(i) != only) continue;
    text += fmt::format("; kernel {}: {}\n", i, calls[i].name);
    if (const LoopCall* loop = loop_of(calls[i]))
      text += compiler.llvm_ir(*loop->kernel) + "\n" + compiler.assembly(*loop->kernel) + "\n";
    else
      text += "; written in C++, not generated\n";
  }
  return text;
}

int inspect(const InspectOptions& o) {
  static const std::vector<std::string> kParts = {"summary", "ir", "program", "kernels", "dtypes", "code", "all"};
  if (std::find(kParts.begin(), kParts.end(), o.show) == kParts.end())
    fail("--show must be one of {}, not '{}'", fmt::join(kParts, ", "), o.show);
  Workload w = make_workload(o.workload);
  auto optimizer =
      make_optimizer({o.optimizer.empty() ? w.default_optimizer : o.optimizer}, w.default_lr, w.default_weight_decay);
  Trainer trainer(*w.model, w.loss, *optimizer,
                  {.compile = true, .num_threads = configured_threads(), .compute_dtype = compute_dtype_of(o.dtype)});
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
  if (o.show == "code") {  // long, so no part of "all"
    fmt::print("{}", code_text(step.as_text(), o.kernel));
    return 0;
  }
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
  command->add_option("--show", o->show, "summary, ir, program, kernels, dtypes, code or all");
  command->add_option("--kernel", o->kernel, "which one --show code prints; all where left out");
  command->add_option("--optimizer", o->optimizer, "as in train");
  add_dtype_option(command, o->dtype);
  command->add_option("--batch", o->workload.batch, "samples a step");
  command->add_option("--seq", o->workload.seq, "positions a sample (encoder, gpt)");
  command->add_option("--width", o->workload.width, "features");
  command->add_option("--blocks", o->workload.blocks, "blocks, or layers of an mlp");
  command->add_option("--seed", o->workload.seed, "of weights and data");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return inspect(*o); }; });
}

}  // namespace ws::cli
