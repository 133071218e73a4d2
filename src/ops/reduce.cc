// reduce_sum and reduce_max over one group of adjacent axes, which the result no longer has.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

struct Group {
  int first, last;                // axes [first, last)
  int64_t outer, reduced, inner;  // products of the dims before, of and after the group
};

Group group_of(const Shape& shape, const Attrs& attrs) {
  const int first = static_cast<int>(attrs.integer("first_axis")), last = first + static_cast<int>(attrs.integer("num_axes"));
  return {first, last, product(shape, 0, first), product(shape, first, last), product(shape, last, shape.rank())};
}

Type infer_reduced(std::string_view op, const Type& in, const Attrs& attrs) {
  if (in.dtype == DType::bf16) fail("{} of {}: sums and maxima are taken in f32, cast it first", op, in.str());
  expect_dtype(op, in, bit(DType::f32) | bit(DType::f64));
  const int64_t first = attrs.integer("first_axis"), count = attrs.integer("num_axes"), rank = in.shape.rank();
  if (first < 0 || count < 1 || first > rank - count) fail("{}: {} axes from axis {} are outside {}", op, count, first, in.str());
  std::vector<int64_t> dims;
  for (int i = 0; i < in.shape.rank(); ++i)
    if (i < first || i >= first + count) dims.push_back(in.shape[i]);
  return {in.dtype, Shape(dims)};
}

// The reduced value, repeated along the axes that it lost.
Value spread(Builder& b, Value reduced, const Shape& in, const Attrs& attrs) {
  const Group g = group_of(in, attrs);
  std::vector<int64_t> kept = dims_of(in);
  for (int i = g.first; i < g.last; ++i) kept[static_cast<size_t>(i)] = 1;
  return b.broadcast_to(b.reshape(reduced, Shape(kept)), in);
}

void reduce_reference(const RefArray& in, const Attrs& attrs, RefArray& out, double start, double (*fold)(double, double)) {
  const Group g = group_of(in.type.shape, attrs);
  fill(out, [&](int64_t i) {
    double sum = start;
    const int64_t base = i / g.inner * g.reduced * g.inner + i % g.inner;
    for (int64_t r = 0; r < g.reduced; ++r) sum = fold(sum, in.data[static_cast<size_t>(base + r * g.inner)]);
    return sum;
  });
}

// One operation per input element.
Cost reduce_cost(Types in, Types out, const Attrs&) {
  Cost c = streaming_cost(in, out, 0);
  c.flops = num_elements(in[0]);
  return c;
}

const std::vector<AttrSpec> kAxes = {{"first_axis", AttrSpec::Kind::integer}, {"num_axes", AttrSpec::Kind::integer}};

}  // namespace

const OpDef& reduce_sum_op() {
  static const OpDef def = {
      .name = "reduce_sum",
      .arity = 1,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kReduce,
      .attrs = kAxes,
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> { return {infer_reduced("reduce_sum", in[0], attrs)}; },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        return {spread(b, a.grad_results[0], b.type_of(a.inputs[0]).shape, a.attrs)};
      },
      .cost = reduce_cost,
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            reduce_reference(in[0], attrs, out[0], 0.0, [](double s, double x) { return s + x; });
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

// The gradient goes to the maxima, in equal parts where there are several.
const OpDef& reduce_max_op() {
  static const OpDef def = {
      .name = "reduce_max",
      .arity = 1,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kReduce,
      .attrs = kAxes,
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> {
        const Type out = infer_reduced("reduce_max", in[0], attrs);
        if (group_of(in[0].shape, attrs).reduced == 0) fail("reduce_max of {}: nothing has no maximum", in[0].str());
        return {out};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const Value x = a.inputs[0];
        const Type type = b.type_of(x);
        const Value is_max = b.op("eq", {x, spread(b, a.results[0], type.shape, a.attrs)});
        const Value ties = b.op("reduce_sum", {b.cast(is_max, type.dtype)}, a.attrs);
        const Value share = spread(b, b.div(a.grad_results[0], ties), type.shape, a.attrs);
        return {b.select(is_max, share, b.constant(type.dtype, 0))};
      },
      .cost = reduce_cost,
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            reduce_reference(in[0], attrs, out[0], -HUGE_VAL, [](double m, double x) { return std::isnan(m) || m > x ? m : x; });
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
