// eval: runs a graph in text form on tensors of a file, on the machine's backend or by the double-precision reference.
#include <algorithm>
#include <cmath>
#include <functional>

#include "autodiff/autodiff.h"
#include "command.h"
#include "io/file.h"
#include "io/tensors.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "runtime/executable.h"
#include "support/error.h"
#include "support/flags.h"

namespace ws::cli {
namespace {

struct EvalOptions {
  std::string file, inputs, out, backend = "cpu";
  bool grad = false, json = false;
};

// Adds outputs grad/NAME for every floating input, of the sum of the first output.
void add_gradients(Graph& graph) {
  if (graph.outputs().empty()) fail("--grad needs an output");
  Value first = graph.outputs()[0].value;
  if (!is_floating(graph.type_of(first).dtype))
    fail("--grad needs a floating first output, {} is {}", graph.outputs()[0].name, graph.type_of(first).str());
  std::vector<TapeEntry> tape;
  for (const Node& node : graph.nodes()) tape.push_back({node.op, node.attrs, node.inputs, node.results});
  GraphBuilder builder(graph);
  std::vector<int64_t> axes;
  for (int axis = 0; axis < graph.type_of(first).shape.rank(); ++axis) axes.push_back(axis);
  size_t forward_nodes = graph.nodes().size();
  Value loss = axes.empty() ? first : builder.reduce_sum(first, axes, false);
  for (size_t i = forward_nodes; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    tape.push_back({node.op, node.attrs, node.inputs, node.results});
  }
  std::vector<Value> wrt;
  std::vector<std::string> names;
  for (const GraphInput& input : graph.inputs())
    if (is_floating(graph.type_of(input.value).dtype)) {
      wrt.push_back(input.value);
      names.push_back(input.name);
    }
  std::vector<Value> gradients = backward(builder, tape, loss, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    Type type = graph.type_of(wrt[i]);
    graph.add_output(gradients[i] ? gradients[i] : builder.filled(type, 0), "grad/" + names[i]);  // no path: zero
  }
}

// The graph's inputs from the file, checked: name, dtype, shape.
std::vector<Tensor> match_inputs(const Graph& graph, const std::string& path) {
  NamedTensors tensors = path.empty() ? NamedTensors{} : load_tensors(path);
  std::vector<Tensor> result;
  for (const GraphInput& input : graph.inputs()) {
    auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == input.name; });
    const Type& type = graph.type_of(input.value);
    if (found == tensors.end()) fail("{} lacks the input \"{}\" ({})", path.empty() ? "--inputs" : path, input.name, type.str());
    Type given{found->second.dtype(), found->second.shape()};
    if (!(given == type)) fail("{}: \"{}\" is {}, the graph takes {}", path, input.name, given.str(), type.str());
    result.push_back(found->second);
  }
  for (const auto& [name, tensor] : tensors)
    if (std::none_of(graph.inputs().begin(), graph.inputs().end(), [&](const GraphInput& i) { return i.name == name; }))
      fail("{} holds \"{}\", which is no input of the graph", path, name);
  return result;
}

std::vector<Tensor> run_on_cpu(const Graph& graph, const std::vector<Tensor>& inputs) {
  PipelineOptions options;
  options.disabled = {flags().disable.begin(), flags().disable.end()};
  options.dump_directory = flags().dump;
  options.verify = flags().verify;
  options.time = flags().time_passes;
  Graph optimized = run_pipeline(graph, options).graph;
  ExecutableOptions how;
  how.num_threads = configured_threads();
  auto executable = Executable::compile(optimized, how);
  std::vector<Tensor> copies;  // an input that is donated is written over: never the caller's
  std::vector<void*> in, out;
  for (const Tensor& t : inputs) copies.push_back(Tensor::from_bytes(t.data(), t.dtype(), t.shape()));
  for (const Tensor& t : copies) in.push_back(const_cast<void*>(t.data()));
  std::vector<Tensor> results;
  for (const GraphOutput& output : optimized.outputs()) {
    const Type& type = optimized.type_of(output.value);
    bool donated = output.donates_input >= 0;
    results.push_back(donated ? copies[static_cast<size_t>(output.donates_input)] : Tensor::zeros(type.shape, type.dtype));
    out.push_back(donated ? nullptr : const_cast<void*>(results.back().data()));
  }
  executable->run(in.data(), out.data());
  return results;
}

std::vector<Tensor> run_reference(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::vector<RefArray> arrays;
  for (const Tensor& t : inputs) arrays.push_back({{t.dtype(), t.shape()}, t.to_vector<double>()});
  std::vector<Tensor> results;
  for (const RefArray& array : interpret(graph, arrays)) {
    // Through f64, which holds every value of every dtype; f32 is rounded here, once.
    Tensor wide = Tensor::from_bytes(array.data.data(), DType::f64, array.type.shape);
    results.push_back(array.type.dtype == DType::f64 ? wide : wide.cast(array.type.dtype));
  }
  return results;
}

int eval(const EvalOptions& o) {
  if (o.backend != "cpu" && o.backend != "reference") fail("--backend must be cpu or reference, not '{}'", o.backend);
  if (!o.out.empty()) check_can_write(o.out);
  MappedFile file(o.file);
  Graph graph = parse(file.text(), o.file);
  verify(graph);
  if (o.grad) add_gradients(graph);
  std::vector<Tensor> inputs = match_inputs(graph, o.inputs);
  NoGrad no_grad;
  std::vector<Tensor> results = o.backend == "cpu" ? run_on_cpu(graph, inputs) : run_reference(graph, inputs);
  NamedTensors named;
  Json outputs = Json::object();
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& name = graph.outputs()[i].name;
    named.emplace_back(name, results[i]);
    outputs[name] = Type{results[i].dtype(), results[i].shape()}.str();
  }
  if (!o.out.empty()) save_tensors(o.out, named);
  if (o.json)
    print_json({{"outputs", outputs}, {"backend", o.backend}});
  else
    print_readable(outputs);
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* command = add_command(app, "eval", "runs a graph in text form on tensors of a file");
  command->add_option("file", o->file, "the graph (docs/ir.md)")->required();
  command->add_option("--inputs", o->inputs, "safetensors file with one tensor for each input");
  command->add_option("--out", o->out, "safetensors file for the outputs");
  command->add_option("--backend", o->backend, "cpu or reference");
  command->add_flag("--grad", o->grad, "also grad/NAME of each input: of the summed first output");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return eval(*o); }; });
}

}  // namespace ws::cli
