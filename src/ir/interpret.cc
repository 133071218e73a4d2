// The double-precision interpreter: each op's own reference, node by node. Slow and simple on purpose.
#include <bit>
#include <cmath>
#include <new>

#include "ir/graph.h"
#include "support/error.h"

namespace ws {

namespace {

// Through f32, as kernels do: they compute in f32 and round that.
double round_to_bf16(double x) {
  const auto single = static_cast<float>(x);
  if (std::isnan(single)) return x;
  const auto bits = std::bit_cast<uint32_t>(single);
  const uint32_t rounded =
      bits + 0x7fffu + ((bits >> 16) & 1u);  // to nearest, ties to even; carries into the exponent as it should
  return static_cast<double>(std::bit_cast<float>(rounded & 0xffff0000u));
}

// The low 32 bits of an integer held in a double: integer ops wrap.
uint32_t low_bits(double x) {
  if (!std::isfinite(x)) return 0;
  constexpr double kTwo32 = 4294967296.0;
  double rest = std::fmod(std::trunc(x), kTwo32);
  if (rest < 0) rest += kTwo32;
  return static_cast<uint32_t>(rest);
}

double rounded_to(DType dtype, double x) {
  switch (dtype) {
    case DType::bf16: return round_to_bf16(x);
    case DType::i32: return static_cast<double>(static_cast<int32_t>(low_bits(x)));
    case DType::u32: return static_cast<double>(low_bits(x));
    case DType::boolean: return x != 0 ? 1 : 0;
    case DType::f32:
    case DType::f64: return x;
  }
  return x;
}

}  // namespace

std::vector<RefArray> interpret_node(const Graph& graph, const Node& node, std::span<const RefArray> inputs) {
  constexpr int64_t kMaxElements = int64_t{1} << 36;  // what the machine may have is left to the allocator; this it cannot have
  std::vector<RefArray> results(node.results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].type = graph.type_of(node.results[i]);
    if (results[i].type.shape.num_elements() > kMaxElements) throw std::bad_alloc();
    results[i].data.assign(static_cast<size_t>(results[i].type.shape.num_elements()), 0.0);
  }
  node.op->reference(inputs, node.attrs, results);
  for (size_t i = 0; i < results.size(); ++i) {
    RefArray& r = results[i];
    WS_ASSERT(r.data.size() == static_cast<size_t>(r.type.shape.num_elements()), "the reference of {} resized its result",
              node.op->name);
    for (double& x : r.data) x = rounded_to(r.type.dtype, x);
  }
  return results;
}

namespace {

void run_node(const Graph& graph, const Node& node, std::vector<RefArray>& values) {
  std::vector<RefArray> inputs;
  for (Value v : node.inputs) inputs.push_back(values[static_cast<size_t>(v.id)]);
  std::vector<RefArray> results = interpret_node(graph, node, inputs);
  for (size_t i = 0; i < results.size(); ++i) values[static_cast<size_t>(node.results[i].id)] = std::move(results[i]);
}

// last_use[v]: the last node that reads v; values die after it unless kept.
std::vector<RefArray> run(const Graph& graph, std::span<const RefArray> inputs, bool keep_all) {
  if (inputs.size() != graph.inputs().size())
    fail("graph {} takes {} inputs, {} given", graph.name, graph.inputs().size(), inputs.size());
  std::vector<RefArray> values(static_cast<size_t>(graph.num_values()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& type = graph.type_of(graph.inputs()[i].value);
    if (inputs[i].type != type || inputs[i].data.size() != static_cast<size_t>(type.shape.num_elements()))
      fail("input '{}' of graph {} is {}, given {} with {} elements", graph.inputs()[i].name, graph.name, type.str(),
           inputs[i].type.str(), inputs[i].data.size());
    values[static_cast<size_t>(graph.inputs()[i].value.id)] = inputs[i];
  }
  const int never = static_cast<int>(graph.nodes().size());
  std::vector<int> last_use(values.size(), -1);
  for (int n = 0; n < never; ++n)
    for (Value v : graph.nodes()[static_cast<size_t>(n)].inputs) last_use[static_cast<size_t>(v.id)] = n;
  for (const GraphOutput& output : graph.outputs()) last_use[static_cast<size_t>(output.value.id)] = never;
  for (int n = 0; n < never; ++n) {
    const Node& node = graph.nodes()[static_cast<size_t>(n)];
    try {
      run_node(graph, node, values);
    } catch (const std::bad_alloc&) {
      fail_at_run("not enough memory for {} in graph {}: a result is {}", node.op->name, graph.name,
                  graph.type_of(node.results.front()).str());
    }
    if (keep_all) continue;
    const auto release = [&](Value v) {
      if (last_use[static_cast<size_t>(v.id)] <= n) values[static_cast<size_t>(v.id)] = RefArray{};
    };
    for (Value v : node.inputs) release(v);
    for (Value v : node.results) release(v);
  }
  return values;
}

}  // namespace

std::vector<RefArray> interpret_all(const Graph& graph, std::span<const RefArray> inputs) { return run(graph, inputs, true); }

std::vector<RefArray> interpret(const Graph& graph, std::span<const RefArray> inputs) {
  const std::vector<RefArray> values = run(graph, inputs, false);
  std::vector<RefArray> outputs;
  for (const GraphOutput& output : graph.outputs()) outputs.push_back(values[static_cast<size_t>(output.value.id)]);
  return outputs;
}

}  // namespace ws
