// concatenate (adjoint: slices) and pad (the adjoint of slice).
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

Value slice_of(Builder& b, Value x, std::vector<int64_t> starts, std::vector<int64_t> stops, std::vector<int64_t> steps) {
  return b.op("slice", {x}, {{"starts", std::move(starts)}, {"stops", std::move(stops)}, {"steps", std::move(steps)}});
}

Type infer_concatenated(Types in, const Attrs& attrs) {
  const int64_t axis = attrs.integer("axis");
  const Type& first = in[0];
  if (axis < 0 || axis >= first.shape.rank()) fail("concatenate: axis {} is outside {}", axis, first.str());
  std::vector<int64_t> dims = dims_of(first.shape);
  for (const Type& t : in.subspan(1)) {
    bool fits = t.dtype == first.dtype && t.shape.rank() == first.shape.rank();
    for (int i = 0; fits && i < t.shape.rank(); ++i) fits = i == axis || t.shape[i] == first.shape[i];
    if (!fits)
      fail("concatenate along axis {}: {} does not fit {}: dtype and all other dims must be equal", axis, t.str(), first.str());
    int64_t& dim = dims[static_cast<size_t>(axis)];
    if (__builtin_add_overflow(dim, t.shape[static_cast<int>(axis)], &dim))
      fail("concatenate along axis {}: the result does not fit 64 bits", axis);
  }
  return {first.dtype, Shape(dims)};
}

Type infer_padded(const Type& in, const Attrs& attrs) {
  const auto &low = attrs.integers("low"), &high = attrs.integers("high"), &interior = attrs.integers("interior");
  const auto rank = static_cast<size_t>(in.shape.rank());
  if (low.size() != rank || high.size() != rank || interior.size() != rank)
    fail("pad of {} needs {} numbers in low, high and interior, given {}, {} and {}", in.str(), rank, low.size(), high.size(),
         interior.size());
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) {
    if (low[i] < 0 || high[i] < 0 || interior[i] < 0) fail("pad: axis {} of {} has a negative padding", i, in.str());
    const int64_t n = in.shape.dims()[i];
    int64_t dim = 0;
    bool overflow = __builtin_mul_overflow(n > 0 ? n - 1 : 0, interior[i], &dim);
    for (int64_t part : {n, low[i], high[i]}) overflow |= __builtin_add_overflow(dim, part, &dim);
    if (overflow || interior[i] == INT64_MAX)
      fail("pad: axis {} of {} padded by {}, {} and {} does not fit 64 bits", i, in.str(), low[i], high[i], interior[i]);
    dims.push_back(dim);
  }
  return {in.dtype, Shape(dims)};
}

}  // namespace

const OpDef& concatenate_op() {
  static const OpDef def = {
      .name = "concatenate",
      .arity = -1,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kConcatenate,
      .attrs = {{"axis", AttrSpec::Kind::integer}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> { return {infer_concatenated(in, attrs)}; },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const auto axis = static_cast<size_t>(a.attrs.integer("axis"));
        const Shape whole = b.type_of(a.results[0]).shape;
        std::vector<int64_t> starts(static_cast<size_t>(whole.rank()), 0), stops = dims_of(whole);
        const std::vector<int64_t> ones(starts.size(), 1);
        Grads grads;
        for (size_t i = 0; i < a.inputs.size(); ++i) {
          stops[axis] = starts[axis] + b.type_of(a.inputs[i]).shape[static_cast<int>(axis)];
          grads.push_back(a.wants(i) ? slice_of(b, a.grad_results[0], starts, stops, ones) : Value{});
          starts[axis] = stops[axis];
        }
        return grads;
      },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const auto axis = static_cast<size_t>(attrs.integer("axis"));
            fill(out[0], [&](int64_t i) {
              Index at = unravel(i, out[0].type.shape);
              size_t part = 0;
              while (at[axis] >= in[part].type.shape.dims()[axis]) at[axis] -= in[part++].type.shape.dims()[axis];
              return in[part].data[static_cast<size_t>(ravel(at, in[part].type.shape))];
            });
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& pad_op() {
  static const OpDef def = {
      .name = "pad",
      .arity = 1,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kPad,
      .attrs = {{"low", AttrSpec::Kind::integers}, {"high", AttrSpec::Kind::integers}, {"interior", AttrSpec::Kind::integers}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> { return {infer_padded(in[0], attrs)}; },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const Shape in = b.type_of(a.inputs[0]).shape;
        std::vector<int64_t> starts = a.attrs.integers("low"), stops, steps;
        for (size_t i = 0; i < starts.size(); ++i) {
          steps.push_back(a.attrs.integers("interior")[i] + 1);
          stops.push_back(starts[i] + (in.dims()[i] == 0 ? 0 : (in.dims()[i] - 1) * steps[i] + 1));
        }
        return {slice_of(b, a.grad_results[0], starts, stops, steps)};
      },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            for (size_t i = 0; i < in[0].data.size(); ++i) {
              Index at = unravel(static_cast<int64_t>(i), in[0].type.shape);
              for (size_t k = 0; k < static_cast<size_t>(in[0].type.shape.rank()); ++k)
                at[k] = attrs.integers("low")[k] + at[k] * (attrs.integers("interior")[k] + 1);
              out[0].data[static_cast<size_t>(ravel(at, out[0].type.shape))] = in[0].data[i];
            }
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
