// Small example calls of every op, for tests made from the table. An elementwise op without attributes needs no entry here:
// its examples follow from its arity and domain. Any other op needs at least one (a test says so).
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "support/error.h"

namespace ws::test {

struct OpExample {
  std::vector<Type> inputs;
  Attrs attrs = {};
  double integer_limit = 3;            // integer inputs are drawn from [0, limit)
  std::vector<int> grad_results = {};  // results that have a gradient; empty: all floating ones
};

inline std::string name_of(const testing::TestParamInfo<const OpDef*>& info) { return std::string(info.param->name); }

inline std::vector<OpExample> structural_examples(std::string_view name) {
  using I = std::vector<int64_t>;
  const auto f = [](Shape s) { return Type{DType::f32, s}; };
  const auto i = [](Shape s) { return Type{DType::i32, s}; };
  const auto u = [](Shape s) { return Type{DType::u32, s}; };
  const auto matmul = [](bool ta, bool tb) { return Attrs{{"transpose_a", ta}, {"transpose_b", tb}, {"out_dtype", DType::f32}}; };
  const auto axes = [](int64_t first, int64_t count) { return Attrs{{"first_axis", first}, {"num_axes", count}}; };
  const auto slice = [](I starts, I stops, I steps) { return Attrs{{"starts", starts}, {"stops", stops}, {"steps", steps}}; };
  const auto pad = [](I low, I high, I interior) { return Attrs{{"low", low}, {"high", high}, {"interior", interior}}; };
  const auto flash = [](bool causal, double scale) { return Attrs{{"causal", causal}, {"scale", scale}}; };

  if (name == "swap_pairs") return {{{f({3, 4})}}, {{f({2})}}, {{f({3, 0})}}};
  if (name == "cast")
    return {{{f({2, 3})}, {{"dtype", DType::f32}}},
            {{f({2, 3})}, {{"dtype", DType::f64}}},
            {{{DType::f64, {3}}}, {{"dtype", DType::f32}}},
            {{i({4})}, {{"dtype", DType::f32}}},
            {{u({})}, {{"dtype", DType::f32}}},
            {{{DType::boolean, {5}}}, {{"dtype", DType::f32}}},
            {{i({0})}, {{"dtype", DType::boolean}}}};
  if (name == "select")
    return {{{{DType::boolean, {2, 3}}, f({2, 3}), f({2, 3})}},
            {{{DType::boolean, {}}, f({}), f({})}},
            {{{DType::boolean, {0}}, f({0}), f({0})}}};
  if (name == "constant")
    return {{{}, {{"dtype", DType::f32}, {"value", 0.1}}},          {{}, {{"dtype", DType::f64}, {"value", 0.1}}},
            {{}, {{"dtype", DType::bf16}, {"value", 0.1}}},         {{}, {{"dtype", DType::i32}, {"value", -7.0}}},
            {{}, {{"dtype", DType::u32}, {"value", 4294967295.0}}}, {{}, {{"dtype", DType::boolean}, {"value", 1.0}}}};
  if (name == "iota")
    return {{{}, {{"dtype", DType::i32}, {"shape", I{3, 4}}, {"axis", int64_t{1}}}},
            {{}, {{"dtype", DType::f32}, {"shape", I{3, 4}}, {"axis", int64_t{0}}}},
            {{}, {{"dtype", DType::u32}, {"shape", I{0, 4}}, {"axis", int64_t{0}}}},
            {{}, {{"dtype", DType::bf16}, {"shape", I{5}}, {"axis", int64_t{0}}}}};
  if (name == "random_bits")
    return {{{u({3, 5}), u({3, 5})}, {{"stream", int64_t{7}}, {"offset", int64_t{0}}}},
            {{u({2, 5}), u({2, 5})}, {{"stream", int64_t{7}}, {"offset", (int64_t{1} << 32) - 4}}},
            {{u({}), u({})}, {{"stream", int64_t{1} << 40}, {"offset", int64_t{1}}}},
            {{u({0}), u({0})}, {{"stream", int64_t{0}}, {"offset", int64_t{0}}}}};
  if (name == "reshape")
    return {{{f({2, 3})}, {{"shape", I{3, 2}}}},
            {{f({1, 1})}, {{"shape", I{}}}},
            {{f({})}, {{"shape", I{1}}}},
            {{f({0, 3})}, {{"shape", I{5, 0}}}}};
  if (name == "broadcast")
    return {{{f({3, 1})}, {{"shape", I{2, 3, 4}}}},
            {{f({})}, {{"shape", I{2, 2}}}},
            {{f({1})}, {{"shape", I{0}}}},
            {{f({2, 1, 3})}, {{"shape", I{2, 5, 3}}}},
            {{f({1, 1})}, {{"shape", I{1, 1, 1}}}}};
  if (name == "transpose")
    return {{{f({2, 3, 4})}, {{"permutation", I{2, 0, 1}}}},
            {{f({})}, {{"permutation", I{}}}},
            {{f({0, 3})}, {{"permutation", I{1, 0}}}}};
  if (name == "slice")
    return {{{f({5, 7})}, slice({1, 0}, {4, 7}, {1, 3})},
            {{f({6})}, slice({0}, {6}, {4})},
            {{f({4})}, slice({2}, {2}, {1})},
            {{f({})}, slice({}, {}, {})},
            {{f({3, 4})}, slice({0, 3}, {3, 4}, {2, 9})}};
  if (name == "pad")
    return {{{f({2, 3})}, pad({1, 0}, {0, 2}, {0, 1})},
            {{f({1})}, pad({2}, {3}, {4})},
            {{f({0})}, pad({1}, {1}, {2})},
            {{f({})}, pad({}, {}, {})}};
  if (name == "reduce_sum")
    return {{{f({2, 3, 4})}, axes(1, 1)}, {{f({2, 3, 4})}, axes(0, 2)}, {{f({5})}, axes(0, 1)},
            {{f({2, 0})}, axes(1, 1)},    {{f({0, 2})}, axes(1, 1)},    {{f({2, 1, 3})}, axes(0, 3)}};
  if (name == "reduce_max")
    return {{{f({2, 3, 4})}, axes(1, 1)}, {{f({2, 3, 4})}, axes(1, 2)}, {{f({5})}, axes(0, 1)}, {{f({0, 2})}, axes(1, 1)}};
  if (name == "concatenate")
    return {{{f({2, 3}), f({2, 1}), f({2, 2})}, {{"axis", int64_t{1}}}},
            {{f({2, 3})}, {{"axis", int64_t{0}}}},
            {{f({0, 3}), f({1, 3})}, {{"axis", int64_t{0}}}}};
  if (name == "gather")
    return {{{f({5, 2}), i({3})}, {}, 5}, {{f({4}), i({2, 2})}, {}, 4}, {{f({3, 2, 2}), i({})}}, {{f({3, 2}), i({0})}}};
  if (name == "scatter_add")
    return {{{i({6}), f({6, 2})}, {{"rows", int64_t{4}}}, 4},
            {{i({2, 2}), f({2, 2})}, {{"rows", int64_t{3}}}},
            {{i({}), f({3})}, {{"rows", int64_t{3}}}},
            {{i({0}), f({0, 3})}, {{"rows", int64_t{2}}}}};
  if (name == "matmul")
    return {{{f({3, 4}), f({4, 2})}, matmul(false, false)},       {{f({4, 3}), f({4, 2})}, matmul(true, false)},
            {{f({3, 4}), f({2, 4})}, matmul(false, true)},        {{f({4, 3}), f({2, 4})}, matmul(true, true)},
            {{f({2, 3, 4}), f({2, 4, 5})}, matmul(false, false)}, {{f({2, 4, 3}), f({2, 5, 4})}, matmul(true, true)},
            {{f({2, 2, 3, 4}), f({4, 2})}, matmul(false, false)}, {{f({2, 2, 3, 4}), f({2, 4})}, matmul(false, true)},
            {{f({2, 4, 3}), f({4, 5})}, matmul(true, false)},     {{f({2, 4, 3}), f({5, 4})}, matmul(true, true)},
            {{f({2, 0}), f({0, 3})}, matmul(false, false)},       {{f({1, 1}), f({1, 1})}, matmul(false, false)},
            {{f({0, 2, 3}), f({3, 2})}, matmul(false, false)}};
  if (name == "attention")
    return {{{f({2, 3, 2, 2}), f({2, 3, 2, 2}), f({2, 3, 2, 2})}, flash(true, 0.7), 0, {0}},
            {{f({1, 2, 1, 3}), f({1, 5, 1, 3}), f({1, 5, 1, 3})}, flash(false, 0.5), 0, {0}},
            {{f({1, 2, 1, 3}), f({1, 4, 1, 3}), f({1, 4, 1, 3})}, flash(true, 1), 0, {0}},
            {{f({1, 4, 1, 2}), f({1, 2, 1, 2}), f({1, 2, 1, 2})}, flash(true, 1), 0, {0}}};  // queries 0 and 1 see no key
  if (name == "attention_grad")
    return {{{f({1, 3, 1, 2}), f({1, 3, 1, 2}), f({1, 3, 1, 2}), f({1, 1, 3}), f({1, 1, 3}), f({1, 3, 1, 2})}, flash(true, 0.5)}};
  const auto masked = [](bool causal, double dropout) {
    return Attrs{{"causal", causal}, {"scale", 0.7}, {"dropout", dropout}, {"first_row", int64_t{dropout > 0.4 ? 3 : 0}}};
  };
  const auto seen = [](Shape s) { return Type{DType::boolean, s}; };
  if (name == "attention_masked")
    return {{{f({2, 3, 2, 2}), f({2, 3, 2, 2}), f({2, 3, 2, 2}), seen({2, 2, 3, 3}), u({}), u({})}, masked(true, 0), 0, {0}},
            {{f({1, 2, 1, 3}), f({1, 5, 1, 3}), f({1, 5, 1, 3}), seen({1, 1, 2, 5}), u({}), u({})}, masked(false, 0.3), 0, {0}}};
  if (name == "attention_masked_grad")
    return {{{f({1, 3, 1, 2}), f({1, 3, 1, 2}), f({1, 3, 1, 2}), seen({1, 1, 3, 3}), u({}), u({}), f({1, 1, 3}), f({1, 1, 3}),
              f({1, 3, 1, 2})},
             masked(true, 0.5)}};
  if (name == "check_range") return {{{i({4})}, {{"low", int64_t{0}}, {"high", int64_t{3}}, {"what", std::string("label")}}}};
  if (name == "check_finite") return {{{f({})}, {{"what", std::string("loss")}}}};
  const auto gather = [](int64_t rows, int64_t unit) { return Attrs{{"channel", int64_t{0}}, {"rows", rows}, {"unit", unit}}; };
  if (name == "all_reduce")
    return {{{f({2, 3})}, {{"bucket", int64_t{0}}, {"channel", int64_t{0}}, {"maximum", false}}},
            {{f({})}, {{"bucket", int64_t{0}}, {"channel", int64_t{1}}, {"maximum", true}}}};
  if (name == "all_gather") return {{{f({2, 3})}, gather(2, 1)}, {{f({4})}, gather(2, 2)}, {{f({0})}, gather(0, 1)}};
  return {};
}

inline bool accepts(const OpDef& op, std::span<const Type> inputs, const Attrs& attrs) {
  try {
    op.infer(inputs, attrs);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Inputs of one type, in scalar, empty, odd and broad shapes: for each dtype that the op takes.
inline std::vector<OpExample> elementwise_examples(const OpDef& op) {
  std::vector<OpExample> examples;
  for (DType dtype : {DType::f32, DType::f64, DType::i32, DType::u32, DType::boolean})
    for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{1}, Shape{0}, Shape{3, 0, 2}, Shape{7}, Shape{2, 1, 5}}) {
      const std::vector<Type> inputs(static_cast<size_t>(op.arity), Type{dtype, shape});
      if (accepts(op, inputs, {})) examples.push_back({inputs});
    }
  return examples;
}

inline std::vector<OpExample> examples_of(const OpDef& op) {
  std::vector<OpExample> examples = structural_examples(op.name);
  if (examples.empty() && op.lowering == Lowering::kElementwise && op.attrs.empty() && op.arity > 0)
    examples = elementwise_examples(op);
  return examples;
}

/// A number of the domain, away from its kinks.
inline double draw(const TestDomain& domain, std::mt19937& random) {
  for (;;) {
    const double x = std::uniform_real_distribution<double>(domain.low, domain.high)(random);
    const bool near_kink =
        std::any_of(domain.kinks.begin(), domain.kinks.end(), [&](double k) { return std::abs(x - k) < 0.02; });
    if (!near_kink) return x;
  }
}

inline std::vector<RefArray> draw_inputs(const OpDef& op, const OpExample& example, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<RefArray> inputs;
  size_t floating = 0;
  const int integer_limit = example.integer_limit > 0 ? static_cast<int>(example.integer_limit) : 1 << 16;  // keys: any words
  for (const Type& type : example.inputs) {
    RefArray a{type, std::vector<double>(static_cast<size_t>(type.shape.num_elements()))};
    const TestDomain& domain = op.domain[op.domain.size() == 1 ? 0 : std::min(floating, op.domain.size() - 1)];
    for (double& x : a.data) {
      if (is_floating(type.dtype))
        x = draw(domain, random);
      else
        x = static_cast<double>(random() % static_cast<unsigned>(type.dtype == DType::boolean ? 2 : integer_limit));
    }
    floating += is_floating(type.dtype) ? 1 : 0;
    inputs.push_back(std::move(a));
  }
  return inputs;
}

/// Runs the op's reference.
inline std::vector<RefArray> run_reference(const OpDef& op, std::span<const RefArray> inputs, const Attrs& attrs) {
  std::vector<Type> types;
  for (const RefArray& a : inputs) types.push_back(a.type);
  std::vector<RefArray> results;
  for (const Type& t : op.infer(types, attrs))
    results.push_back({t, std::vector<double>(static_cast<size_t>(t.shape.num_elements()))});
  op.reference(inputs, attrs, results);
  return results;
}

}  // namespace ws::test
