#include "analysis/rate_probes.h"

#include <functional>
#include <memory>

#include "analysis/best_rate.h"
#include "runtime/executable.h"

namespace ws {
namespace {

/// FLOP/s of a graph run again and again on the same memory.
double rate_of(const Graph& graph, int num_threads, double probe_seconds) {
  ExecutableOptions options;
  options.num_threads = num_threads;
  const auto executable = Executable::compile(graph, options);
  double flops = 0;
  for (const KernelCall& call : executable->program().calls) flops += call.cost.flops;
  std::vector<std::unique_ptr<char[]>> memory;
  const auto allocate = [&](const Type& type) -> void* {
    const auto bytes = static_cast<size_t>(type.num_bytes());
    memory.push_back(std::make_unique<char[]>(bytes + 64));  // zeros
    const auto address = reinterpret_cast<uintptr_t>(memory.back().get());
    return memory.back().get() + (64 - address % 64);
  };
  std::vector<void*> inputs, outputs;
  for (const GraphInput& in : graph.inputs()) inputs.push_back(allocate(graph.type_of(in.value)));
  for (const GraphOutput& out : graph.outputs()) outputs.push_back(allocate(graph.type_of(out.value)));
  return flops * best_rounds_per_second(probe_seconds, [&](int64_t rounds) {
           for (int64_t r = 0; r < rounds; ++r) executable->run(inputs.data(), outputs.data());
         });
}

Graph product(DType dtype, int64_t n) {
  Graph graph;
  GraphBuilder b(graph);
  const Type type{dtype, Shape{n, n}};
  const Value x = graph.add_input("x", type), w = graph.add_input("w", type);
  graph.add_output(b.op("matmul", {x, w}, {{"transpose_a", false}, {"transpose_b", false}, {"out_dtype", DType::f32}}), "y");
  return graph;
}

Graph exponentials(bool summed) {
  Graph graph;
  GraphBuilder b(graph);
  const Value x = graph.add_input("x", {DType::f32, Shape{128, 512}});  // 256 KiB
  Value y = b.op("exp", {b.neg(b.op("exp", {x}))});
  if (summed) y = b.reduce_sum(y, {-1}, false);
  graph.add_output(y, "y");
  return graph;
}

/// Forward and backward, 8 heads of 64 over 128 positions.
Graph attention() {
  Graph graph;
  GraphBuilder b(graph);
  const Type type{DType::f32, Shape{4, 128, 8, 64}};
  std::vector<Value> in;
  for (const char* name : {"q", "k", "v"}) in.push_back(graph.add_input(name, type));
  const Value grad_out = graph.add_input("grad_out", type);
  const Attrs attrs{{"causal", true}, {"scale", 0.125}};
  const std::vector<Value> out = b.apply(*find_op("attention"), in, attrs);
  in.insert(in.end(), {out[1], out[2], grad_out});
  graph.add_output(out[0], "out");
  for (Value g : b.apply(*find_op("attention_grad"), in, attrs)) graph.add_output(g, "grad" + std::to_string(g.id));
  return graph;
}

}  // namespace

std::vector<Roofs::Rate> measure_rates(int num_threads) {
  constexpr double kSeconds = 0.05;
  std::vector<Roofs::Rate> rates;
  for (const int64_t n : {16, 48, 128, 384, 1024})
    rates.push_back({"matmul", static_cast<double>(n), rate_of(product(DType::f32, n), num_threads, kSeconds)});
  for (const int64_t n : {48, 384, 1024})
    rates.push_back({"matmul bf16", static_cast<double>(n), rate_of(product(DType::bf16, n), num_threads, kSeconds)});
  rates.push_back({"attention", 0, rate_of(attention(), num_threads, kSeconds)});
  rates.push_back({"elementwise", 0, rate_of(exponentials(false), num_threads, kSeconds)});
  rates.push_back({"reduction", 0, rate_of(exponentials(true), num_threads, kSeconds)});
  return rates;
}

}  // namespace ws
