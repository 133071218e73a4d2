// What a Compiled tells about itself: of the last program used.
#include <map>

#include "support/error.h"
#include "tensor/compiled_impl.h"

namespace ws {

const Executable& Compiled::Impl::last_executable() const {
  if (!last) fail("{}: nothing is compiled yet; call it, or prepare() it, first", options.name);
  return *last->program->executable;
}

CostAnalysis Compiled::cost_analysis() const {
  const Program& program = impl_->last_executable().program();
  CostAnalysis total;
  for (const KernelCall& call : program.calls) {
    total.flops += call.cost.flops;
    total.bytes += call.cost.bytes;
  }
  total.num_kernels = static_cast<int>(program.calls.size());
  return total;
}

MemoryAnalysis Compiled::memory_analysis() const {
  const Executable& executable = impl_->last_executable();
  const MemoryPlan& plan = executable.plan();
  MemoryAnalysis result;
  result.argument_bytes = plan.argument_bytes;
  result.output_bytes = plan.output_bytes;
  result.donated_bytes = plan.donated_bytes;
  result.temporary_bytes = result.arena_bytes = executable.temporary_bytes();
  result.peak_bytes = plan.argument_bytes + plan.output_bytes - plan.donated_bytes + result.temporary_bytes;
  return result;
}

// One line for each kind of op and its dtypes: "matmul(f32, f32) -> f32: 12".
std::string Compiled::dtype_report() const {
  const Graph& graph = impl_->last_executable().graph();
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) {
    std::string inputs;
    for (Value v : node.inputs) inputs += fmt::format("{}{}", inputs.empty() ? "" : ", ", name_of(graph.type_of(v).dtype));
    ++counts[fmt::format("{}({}) -> {}", node.op->name, inputs, name_of(graph.type_of(node.results[0]).dtype))];
  }
  std::string text;
  for (const auto& [line, count] : counts) text += fmt::format("{}: {}\n", line, count);
  return text;
}

std::string Compiled::as_text() const { return print(impl_->last_executable().graph()); }

std::string Compiled::program_text() const {
  const Executable& executable = impl_->last_executable();
  return print(executable.program()) + print(executable.program(), executable.plan());
}

}  // namespace ws
