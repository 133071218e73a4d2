// A program run in the loop (every value of it kept), run compiled in several ways, and made smaller while something about it fails.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "memory/plan.h"
#include "passes/derive_state.h"
#include "passes/pipeline.h"
#include "random_programs.h"
#include "runtime/executable.h"
#include "support/flags.h"
#include "tensor/eager.h"
#include "tensor/tensor_impl.h"

namespace ws::test {

inline std::shared_ptr<TensorImpl> as_tensor(const Type& type, const Bytes& bytes) {
  return Tensor::from_bytes(bytes.data(), type.dtype, type.shape).impl();
}

inline Bytes as_bytes(const std::shared_ptr<TensorImpl>& tensor) {
  const auto dense = dense_copy_if_needed(tensor);
  Bytes bytes(static_cast<size_t>(dense->num_bytes()));
  if (!bytes.empty()) std::memcpy(bytes.data(), dense->pointer(), bytes.size());
  return bytes;
}

inline double element(const Bytes& bytes, DType dtype, int64_t i) {
  const char* from = bytes.data() + i * static_cast<int64_t>(size_of(dtype));
  const auto get = [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32: return static_cast<double>(get(0.0f));
    case DType::bf16: return static_cast<double>(widen(Bf16{get(uint16_t{0})}));
    case DType::f64: return get(0.0);
    case DType::i32: return static_cast<double>(get(int32_t{0}));
    case DType::u32: return static_cast<double>(get(uint32_t{0}));
    case DType::boolean: return static_cast<double>(get(uint8_t{0}));
  }
  return 0;
}

inline RefArray as_reference(const Type& type, const Bytes& bytes) {
  RefArray r{type, std::vector<double>(static_cast<size_t>(type.shape.num_elements()))};
  for (size_t i = 0; i < r.data.size(); ++i) r.data[i] = element(bytes, type.dtype, static_cast<int64_t>(i));
  return r;
}

/// "" for the same bits (all NaNs are one), else where they differ.
inline std::string difference(const Type& type, const Bytes& got, const Bytes& wanted) {
  if (got == wanted) return "";
  const auto size = size_of(type.dtype);
  for (int64_t i = 0; i < type.shape.num_elements(); ++i) {
    const auto byte = static_cast<size_t>(i) * size;
    if (std::memcmp(got.data() + byte, wanted.data() + byte, size) == 0) continue;
    const double x = element(got, type.dtype, i), y = element(wanted, type.dtype, i);
    if (std::isnan(x) && std::isnan(y)) continue;
    return fmt::format("element {} of {} is {:.9g} ({:a}), not {:.9g} ({:a})", i, type.str(), x, x, y, y);
  }
  return "";
}

/// Every value by id, from the loop.
inline std::vector<Bytes> run_loop(const RandomProgram& p) {
  std::vector<std::shared_ptr<TensorImpl>> values(static_cast<size_t>(p.graph.num_values()));
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const Value v = p.graph.inputs()[i].value;
    values[static_cast<size_t>(v.id)] = as_tensor(p.graph.type_of(v), p.inputs[i]);
  }
  for (const Node& node : p.graph.nodes()) {
    std::vector<TensorImpl*> operands;
    for (Value v : node.inputs) operands.push_back(values[static_cast<size_t>(v.id)].get());
    auto results = run_all(*node.op, operands, node.attrs);
    for (size_t i = 0; i < results.size(); ++i) values[static_cast<size_t>(node.results[i].id)] = std::move(results[i]);
  }
  std::vector<Bytes> bytes;
  for (const auto& v : values) bytes.push_back(as_bytes(v));
  return bytes;
}

struct Way {
  bool passes = true, fuse = true;
  int threads = 1;
  double arena_part = 0;  // above 0: a budget of this part of the arena that it has without one, or the least possible
  bool derive = false;    // narrower copies of inputs are inputs, too
  int runs = 1;
};

/// Memory of the caller's: between bytes that nothing may touch.
class GuardedBytes {
 public:
  explicit GuardedBytes(const Bytes& bytes) : size_(bytes.size()), memory_(2 * kGuard + bytes.size(), kPattern) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + kGuard);
  }
  void* data() { return memory_.data() + kGuard; }
  Bytes bytes() const { return {memory_.begin() + kGuard, memory_.end() - kGuard}; }
  bool whole() const {
    const auto is_pattern = [](char c) { return c == kPattern; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_pattern) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), is_pattern);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 192;
  static constexpr char kPattern = '\xa5';
  size_t size_;
  std::vector<char> memory_;
};

inline std::unique_ptr<Executable> compile(const Graph& graph, const Way& way, int num_derived) {
  ExecutableOptions options;
  options.fuse = way.fuse;
  options.num_threads = way.threads;
  options.num_derived = num_derived;
  if (way.arena_part > 0) {
    const PlannedProgram without = Executable::plan(graph, options);
    if (without.plan.arena_bytes > 0)
      options.memory_budget_bytes =
          without.plan.fixed_bytes() + static_cast<int64_t>(way.arena_part * static_cast<double>(without.plan.arena_bytes));
    try {
      return Executable::compile(graph, options);
    } catch (const MemoryError& least) {
      options.memory_budget_bytes = least.needed_bytes;
    }
  }
  return Executable::compile(graph, options);
}

/// The outputs, and what is wrong with them or with what the run left behind: "" where nothing is.
inline std::string run_compiled(const RandomProgram& p, const Way& way, const std::vector<Bytes>& loop) {
  Graph graph = p.graph;
  if (way.passes) {
    PipelineOptions options;
    options.disabled = {flags().disable.begin(), flags().disable.end()};
    options.verify = 2;
    graph = run_pipeline(graph, options).graph;
  }
  std::vector<DerivedInput> derived;
  std::vector<Bytes> inputs = p.inputs;
  const auto narrowed = [](const DerivedInput& d, const Type& type, const Bytes& bytes) {
    const auto from = as_tensor(type, bytes);
    TensorImpl* operands[] = {from.get()};
    return as_bytes(run_single(*d.op, operands, d.attrs));
  };
  if (way.derive) {
    DerivedState state = derive_state(graph, std::vector<bool>(graph.inputs().size(), true));
    graph = state.graph, derived = state.derived;
    for (const DerivedInput& d : derived)
      inputs.push_back(
          narrowed(d, graph.type_of(graph.inputs()[static_cast<size_t>(d.of)].value), inputs[static_cast<size_t>(d.of)]));
  }
  const auto executable = compile(graph, way, static_cast<int>(derived.size()));
  for (int run = 0; run < way.runs; ++run) {
    const std::string again = run == 0 ? "" : "in a second run, ";
    std::vector<GuardedBytes> in, out;
    for (const Bytes& bytes : inputs) in.emplace_back(bytes);
    std::vector<bool> written(in.size());
    for (const GraphOutput& o : graph.outputs())
      out.emplace_back(Bytes(static_cast<size_t>(graph.type_of(o.value).num_bytes()), '\x5a'));
    std::vector<void*> in_pointers, out_pointers;
    for (GuardedBytes& bytes : in) in_pointers.push_back(bytes.data());
    for (size_t o = 0; o < out.size(); ++o)
      out_pointers.push_back(graph.outputs()[o].donates_input >= 0 ? nullptr : out[o].data());
    executable->run(in_pointers.data(), out_pointers.data());
    for (size_t o = 0; o < p.graph.outputs().size(); ++o) {
      const GraphOutput& output = p.graph.outputs()[o];
      const int donor = output.donates_input;
      const std::string found =
          difference(p.graph.type_of(output.value), donor >= 0 ? in[static_cast<size_t>(donor)].bytes() : out[o].bytes(),
                     loop[static_cast<size_t>(output.value.id)]);
      if (!found.empty()) return fmt::format("{}output {}: {}", again, output.name, found);
      if (donor >= 0) written[static_cast<size_t>(donor)] = true;
    }
    for (size_t d = 0; d < derived.size(); ++d) {  // as derived from what its input is now
      const auto of = static_cast<size_t>(derived[d].of), place = p.inputs.size() + d;
      const Value v = graph.inputs()[of].value;
      const std::string found = difference(graph.type_of(graph.inputs()[place].value), in[place].bytes(),
                                           narrowed(derived[d], graph.type_of(v), in[of].bytes()));
      if (!found.empty()) return fmt::format("{}{}: {}", again, graph.inputs()[place].name, found);
      written[place] = true;
    }
    for (size_t i = 0; i < in.size(); ++i) {
      if (!in[i].whole()) return fmt::format("{}a kernel wrote around input {}", again, graph.inputs()[i].name);
      if (!written[i] && in[i].bytes() != inputs[i]) return fmt::format("{}input {} was written", again, graph.inputs()[i].name);
    }
    for (size_t o = 0; o < out.size(); ++o)
      if (!out[o].whole()) return fmt::format("{}a kernel wrote around output {}", again, graph.outputs()[o].name);
  }
  return "";
}

// ---- Smaller programs.

/// Of `p`: the outputs named, with values that become inputs where `cut` has the node that makes them, and nothing that is not needed.
inline RandomProgram part_of(const RandomProgram& p, const std::vector<bool>& cut, const std::vector<GraphOutput>& outputs,
                             const std::vector<Bytes>& values) {
  const Graph& from = p.graph;
  const auto at = [](int i) { return static_cast<size_t>(i); };
  std::vector<bool> needed(at(from.num_values()));
  for (const GraphOutput& o : outputs) {
    needed[at(o.value.id)] = true;
    if (o.donates_input >= 0) needed[at(from.inputs()[at(o.donates_input)].value.id)] = true;
  }
  for (size_t n = from.nodes().size(); n-- > 0;) {
    const Node& node = from.nodes()[n];
    const bool any = std::any_of(node.results.begin(), node.results.end(), [&](Value v) { return needed[at(v.id)]; });
    if (any && !cut[n])
      for (Value v : node.inputs) needed[at(v.id)] = true;
  }
  RandomProgram to;
  to.smooth = p.smooth;
  std::vector<Value> value(at(from.num_values()));
  std::vector<int> input_of(from.inputs().size(), -1);
  const auto add_input = [&](Value v, std::string name) {
    value[at(v.id)] = to.graph.add_input(std::move(name), from.type_of(v));
    to.inputs.push_back(values[at(v.id)]);
  };
  for (size_t i = 0; i < from.inputs().size(); ++i)
    if (needed[at(from.inputs()[i].value.id)]) {
      input_of[i] = static_cast<int>(to.inputs.size());
      add_input(from.inputs()[i].value, from.inputs()[i].name);
    }
  for (size_t n = 0; n < from.nodes().size(); ++n)
    if (cut[n])
      for (Value v : from.nodes()[n].results)
        if (needed[at(v.id)]) add_input(v, fmt::format("v{}", v.id));
  for (size_t n = 0; n < from.nodes().size(); ++n) {
    const Node& node = from.nodes()[n];
    if (cut[n] || !std::any_of(node.results.begin(), node.results.end(), [&](Value v) { return needed[at(v.id)]; })) continue;
    std::vector<Value> operands;
    for (Value v : node.inputs) operands.push_back(value[at(v.id)]);
    const std::vector<Value> results = to.graph.add_node(*node.op, operands, node.attrs, node.path, node.checkpoint);
    for (size_t i = 0; i < results.size(); ++i) value[at(node.results[i].id)] = results[i];
  }
  for (const GraphOutput& o : outputs)
    to.graph.add_output(value[at(o.value.id)], o.name, o.donates_input < 0 ? -1 : input_of[at(o.donates_input)]);
  return to;
}

/// The smallest found for which `fails` is still true.
inline RandomProgram shrink(RandomProgram p, const std::function<bool(const RandomProgram&)>& fails) {
  int tries = 400;
  for (bool smaller = true; smaller && tries > 0;) {
    smaller = false;
    std::vector<Bytes> values;
    try {
      values = run_loop(p);
    } catch (const std::exception&) {
      return p;
    }
    const auto attempt = [&](const std::vector<bool>& cut, const std::vector<GraphOutput>& outputs) {
      if (tries-- <= 0) return false;
      RandomProgram next = part_of(p, cut, outputs, values);
      if (!fails(next)) return false;
      p = std::move(next);
      return smaller = true;
    };
    std::vector<bool> cut(p.graph.nodes().size());
    for (size_t o = p.graph.outputs().size(); o-- > 0 && !smaller;) {
      std::vector<GraphOutput> outputs = p.graph.outputs();
      if (outputs.size() > 1) {
        outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(o));
        attempt(cut, outputs);
      }
    }
    for (size_t o = p.graph.outputs().size(); o-- > 0 && !smaller;) {
      std::vector<GraphOutput> outputs = p.graph.outputs();
      if (outputs[o].donates_input < 0) continue;
      outputs[o].donates_input = -1;
      attempt(cut, outputs);
    }
    for (size_t n = cut.size(); n-- > 0 && !smaller;) {
      cut[n] = true;
      attempt(cut, p.graph.outputs());
      if (!smaller) cut[n] = false;
    }
  }
  return p;
}

/// Text, and the inputs where they are short.
inline std::string describe(const RandomProgram& p) {
  std::string text = print(p.graph);
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const GraphInput& input = p.graph.inputs()[i];
    const Type& type = p.graph.type_of(input.value);
    text += fmt::format("{}:", input.name);
    const int64_t count = type.shape.num_elements();
    for (int64_t e = 0; e < std::min<int64_t>(count, 20); ++e)
      text += fmt::format(" {:.9g}", element(p.inputs[i], type.dtype, e));
    text += count > 20 ? " ..\n" : "\n";
  }
  return text;
}

}  // namespace ws::test
