// Views: result element i is input element f(i), f affine. No arithmetic.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

struct View {
  std::string_view name;
  std::vector<AttrSpec> attrs;
  Shape (*shape)(const Type& in, const Attrs& attrs);
  /// Position in the input of result element `at`.
  Index (*source)(const Index& at, const Shape& in, const Shape& out, const Attrs& attrs);
  Value (*vjp)(Builder& b, const Shape& in, const Shape& out, const Attrs& attrs, Value grad);
};

OpDef view(const View& v) {
  return {
      .name = v.name,
      .arity = 1,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kView,
      .attrs = v.attrs,
      .infer = [v](Types in, const Attrs& attrs) -> std::vector<Type> {
        return {{in[0].dtype, v.shape(in[0], attrs)}};
      },
      .vjp = [v](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        return {v.vjp(b, b.type_of(a.inputs[0]).shape, b.type_of(a.results[0]).shape, a.attrs, a.grad_results[0])};
      },
      .cost = [](Types, Types, const Attrs&) { return Cost{}; },  // its readers pay for what they read
      .reference =
          [v](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const Shape &from = in[0].type.shape, &to = out[0].type.shape;
            fill(out[0], [&](int64_t i) {
              return in[0].data[static_cast<size_t>(ravel(v.source(unravel(i, to), from, to, attrs), from))];
            });
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
}

int64_t at(std::span<const int64_t> list, int i) { return list[static_cast<size_t>(i)]; }

Shape transposed_shape(const Type& in, const Attrs& attrs) {
  const auto& permutation = attrs.integers("permutation");
  const int rank = in.shape.rank();
  std::vector<int64_t> dims;
  uint32_t seen = 0;
  for (int64_t axis : permutation) {
    if (axis < 0 || axis >= rank || (seen >> axis & 1u) != 0)
      fail("transpose: [{}] is no permutation of the axes of {}", fmt::join(permutation, ", "), in.str());
    seen |= 1u << axis;
    dims.push_back(in.shape[static_cast<int>(axis)]);
  }
  if (static_cast<int>(dims.size()) != rank)
    fail("transpose: [{}] is no permutation of the axes of {}", fmt::join(permutation, ", "), in.str());
  return Shape(dims);
}

Shape sliced_shape(const Type& in, const Attrs& attrs) {
  const auto &starts = attrs.integers("starts"), &stops = attrs.integers("stops"), &steps = attrs.integers("steps");
  const auto rank = static_cast<size_t>(in.shape.rank());
  if (starts.size() != rank || stops.size() != rank || steps.size() != rank)
    fail("slice of {} needs {} starts, stops and steps, given {}, {} and {}", in.str(), rank, starts.size(), stops.size(),
         steps.size());
  std::vector<int64_t> dims;
  for (int i = 0; i < in.shape.rank(); ++i) {
    const int64_t start = at(starts, i), stop = at(stops, i), step = at(steps, i);
    if (start < 0 || stop < start || stop > in.shape[i] || step < 1)
      fail("slice: {}:{}:{} does not fit axis {} of {}: need 0 <= start <= stop <= {} and step >= 1", start, stop, step, i,
           in.str(), in.shape[i]);
    dims.push_back(stop == start ? 0 : (stop - start - 1) / step + 1);
  }
  return Shape(dims);
}

// The adjoint of a slice: zeros before, between and after.
Value padded_back(Builder& b, const Shape& in, const Shape& out, const Attrs& attrs, Value grad) {
  std::vector<int64_t> low, high, interior;
  for (int i = 0; i < in.rank(); ++i) {
    const int64_t start = at(attrs.integers("starts"), i), step = at(attrs.integers("steps"), i);
    const int64_t covered = out[i] == 0 ? 0 : (out[i] - 1) * step + 1;
    low.push_back(start);
    high.push_back(in[i] - start - covered);
    interior.push_back(step - 1);
  }
  return b.op("pad", {grad}, {{"low", low}, {"high", high}, {"interior", interior}});
}

}  // namespace

const OpDef& reshape_op() {
  static const OpDef def = view({
      .name = "reshape",
      .attrs = {{"shape", AttrSpec::Kind::integers}},
      .shape =
          [](const Type& in, const Attrs& attrs) {
            const Shape to(attrs.integers("shape"));
            if (to.num_elements() != in.shape.num_elements())
              fail("reshape: {} has {} elements, {} has {}", in.str(), in.shape.num_elements(), to.str(), to.num_elements());
            return to;
          },
      .source = [](const Index& at, const Shape& in, const Shape& out, const Attrs&) { return unravel(ravel(at, out), in); },
      .vjp = [](Builder& b, const Shape& in, const Shape&, const Attrs&, Value g) { return b.reshape(g, in); },
  });
  return def;
}

const OpDef& broadcast_op() {
  static const OpDef def = view({
      .name = "broadcast",
      .attrs = {{"shape", AttrSpec::Kind::integers}},
      .shape =
          [](const Type& in, const Attrs& attrs) {
            const Shape to(attrs.integers("shape"));
            const int extra = to.rank() - in.shape.rank();
            bool fits = extra >= 0;
            for (int i = 0; fits && i < in.shape.rank(); ++i) fits = in.shape[i] == to[i + extra] || in.shape[i] == 1;
            if (!fits) fail("broadcast: {} does not broadcast to {}: trailing dims must be equal or 1", in.str(), to.str());
            return to;
          },
      .source =
          [](const Index& at, const Shape& in, const Shape& out, const Attrs&) {
            Index from{};
            const auto extra = static_cast<size_t>(out.rank() - in.rank());
            for (size_t i = 0; i < static_cast<size_t>(in.rank()); ++i) from[i] = in.dims()[i] == 1 ? 0 : at[i + extra];
            return from;
          },
      .vjp =
          [](Builder& b, const Shape& in, const Shape&, const Attrs&, Value g) {
            if (b.type_of(g).dtype == DType::bf16) g = b.cast(g, DType::f32);  // sums are never taken in bf16
            return b.sum_to(g, in);
          },
  });
  return def;
}

const OpDef& transpose_op() {
  static const OpDef def = view({
      .name = "transpose",
      .attrs = {{"permutation", AttrSpec::Kind::integers}},
      .shape = transposed_shape,
      .source =
          [](const Index& at, const Shape& in, const Shape&, const Attrs& attrs) {
            Index from{};
            const auto& permutation = attrs.integers("permutation");
            for (size_t i = 0; i < static_cast<size_t>(in.rank()); ++i) from[static_cast<size_t>(permutation[i])] = at[i];
            return from;
          },
      .vjp =
          [](Builder& b, const Shape&, const Shape&, const Attrs& attrs, Value g) {
            const auto& permutation = attrs.integers("permutation");
            std::vector<int64_t> inverse(permutation.size());
            for (size_t i = 0; i < permutation.size(); ++i)
              inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
            return b.transpose(g, inverse);
          },
  });
  return def;
}

const OpDef& slice_op() {
  static const OpDef def = view({
      .name = "slice",
      .attrs = {{"starts", AttrSpec::Kind::integers}, {"stops", AttrSpec::Kind::integers}, {"steps", AttrSpec::Kind::integers}},
      .shape = sliced_shape,
      .source =
          [](const Index& at, const Shape& in, const Shape&, const Attrs& attrs) {
            Index from{};
            for (size_t i = 0; i < static_cast<size_t>(in.rank()); ++i)
              from[i] = attrs.integers("starts")[i] + at[i] * attrs.integers("steps")[i];
            return from;
          },
      .vjp = padded_back,
  });
  return def;
}

}  // namespace ws::ops
