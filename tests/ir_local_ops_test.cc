#include "ir_local_ops.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/error.h"

namespace ws {
namespace test {

using Types = std::vector<Type>;
using Kind = AttrSpec::Kind;

OpDef elementwise(std::string_view name, int arity, double (*f)(const double*)) {
  OpDef op{};
  op.name = name;
  op.arity = arity;
  op.num_results = 1;
  op.infer = [name](std::span<const Type> in, const Attrs&) {
    for (const Type& t : in)
      if (t != in[0]) fail("{}: {} against {}", name, t.str(), in[0].str());
    return Types{in[0]};
  };
  op.reference = [f, arity](std::span<const RefArray> in, const Attrs&, std::span<RefArray> out) {
    for (size_t i = 0; i < out[0].data.size(); ++i) {
      double x[3] = {};
      for (int a = 0; a < arity; ++a) x[a] = in[static_cast<size_t>(a)].data[i];
      out[0].data[i] = f(x);
    }
  };
  return op;
}

namespace {

// Ops that only change the shape: the reference copies, which is right for reshape and good enough for the rest here.
OpDef shaper(std::string_view name, std::vector<AttrSpec> attrs, std::function<Shape(const Shape&, const Attrs&)> rule) {
  OpDef op = elementwise(name, 1, [](const double* x) { return x[0]; });
  op.lowering = Lowering::kView;
  op.attrs = std::move(attrs);
  op.infer = [rule](std::span<const Type> in, const Attrs& a) { return Types{{in[0].dtype, rule(in[0].shape, a)}}; };
  op.reference = [](std::span<const RefArray> in, const Attrs&, std::span<RefArray> out) {
    for (size_t i = 0; i < out[0].data.size() && !in[0].data.empty(); ++i) out[0].data[i] = in[0].data[i % in[0].data.size()];
  };
  return op;
}

Shape without(const Shape& shape, const Attrs& a) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  const auto first = dims.begin() + a.integer("first_axis");
  dims.erase(first, first + a.integer("num_axes"));
  return Shape(dims);
}

std::vector<OpDef> make_table() {
  std::vector<OpDef> table;
  table.push_back(elementwise("add", 2, [](const double* x) { return x[0] + x[1]; }));
  table.push_back(elementwise("mul", 2, [](const double* x) { return x[0] * x[1]; }));
  table.push_back(elementwise("neg", 1, [](const double* x) { return -x[0]; }));
  table.push_back(elementwise("select", 3, [](const double* x) { return x[0] != 0 ? x[1] : x[2]; }));
  table.back().infer = [](std::span<const Type> in, const Attrs&) { return Types{in[1]}; };
  table.push_back(elementwise("cast", 1, [](const double* x) { return x[0]; }));
  table.back().attrs = {{"dtype", Kind::dtype}};
  table.back().infer = [](std::span<const Type> in, const Attrs& a) { return Types{{a.dtype("dtype"), in[0].shape}}; };
  const auto shape_of = [](const Shape&, const Attrs& a) { return Shape(a.integers("shape")); };
  table.push_back(shaper("reshape", {{"shape", Kind::integers}}, shape_of));
  table.push_back(shaper("broadcast", {{"shape", Kind::integers}}, shape_of));
  table.push_back(shaper("reduce_sum", {{"first_axis", Kind::integer}, {"num_axes", Kind::integer}}, without));
  table.push_back(shaper("reduce_max", {{"first_axis", Kind::integer}, {"num_axes", Kind::integer}}, without));
  OpDef constant = shaper("constant", {{"dtype", Kind::dtype}, {"value", Kind::number}}, {});
  constant.arity = 0;
  constant.infer = [](std::span<const Type>, const Attrs& a) { return Types{{a.dtype("dtype"), {}}}; };
  constant.reference = [](std::span<const RefArray>, const Attrs& a, std::span<RefArray> out) {
    out[0].data[0] = a.number("value");
  };
  table.push_back(constant);
  // Every kind of attribute, two results, any number of inputs.
  OpDef odd = elementwise("odd", -1, [](const double* x) { return x[0]; });
  odd.num_results = 2;
  odd.attrs = {{"axes", Kind::integers}, {"dtype", Kind::dtype}, {"flag", Kind::flag},
               {"n", Kind::integer},     {"text", Kind::text},   {"x", Kind::number}};
  odd.infer = [](std::span<const Type> in, const Attrs& a) { return Types{in[0], {a.dtype("dtype"), {}}}; };
  table.push_back(odd);
  return table;
}

const std::vector<OpDef>& table() {
  static const std::vector<OpDef> ops = make_table();
  return ops;
}

}  // namespace
}  // namespace test

const OpDef* find_op(std::string_view name) {
  for (const OpDef& op : test::table())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace ws
