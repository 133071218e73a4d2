// cast, constant, iota, stop_gradient, swap_pairs: no arithmetic.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

// To bf16 through f32, whatever the source, so that every path rounds alike.
S converted(ScalarBuilder& b, S x, DType to) {
  if (to == DType::bf16 && x.dtype != DType::f32) x = b.cast(x, DType::f32);
  return x.dtype == to ? x : b.cast(x, to);
}

double truncated(double x, DType to) {
  if (to == DType::i32 || to == DType::u32) return std::trunc(x);
  return to == DType::boolean ? (x != 0 ? 1.0 : 0.0) : x;
}

}  // namespace

const OpDef& cast_op() {
  static const OpDef def = {
      .name = "cast",
      .arity = 1,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kElementwise,
      .attrs = {{"dtype", AttrSpec::Kind::dtype}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> {
        return {{attrs.dtype("dtype"), in[0].shape}};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const DType from = b.type_of(a.inputs[0]).dtype;
        if (!is_floating(from)) return {Value{}};
        return {b.cast(a.grad_results[0], from)};
      },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            fill(out[0], [&](int64_t i) { return truncated(in[0].data[static_cast<size_t>(i)], attrs.dtype("dtype")); });
          },
      .emit = [](ScalarBuilder& b, std::span<const S> in,
                 const Attrs& attrs) { return converted(b, in[0], attrs.dtype("dtype")); },
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& constant_op() {
  static const OpDef def = {
      .name = "constant",
      .arity = 0,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kElementwise,
      .attrs = {{"dtype", AttrSpec::Kind::dtype}, {"value", AttrSpec::Kind::number}},
      .infer = [](Types, const Attrs& attrs) -> std::vector<Type> {
        const DType dtype = attrs.dtype("dtype");
        const double value = attrs.number("value");
        const bool fits = dtype == DType::i32   ? value >= -2147483648.0 && value <= 2147483647.0
                          : dtype == DType::u32 ? value >= 0 && value <= 4294967295.0
                                                : dtype != DType::boolean || value == 0 || value == 1;
        if (!fits || (!is_floating(dtype) && value != std::trunc(value)))
          fail("constant: {} is not a value of {}", value, name_of(dtype));
        return {{dtype, Shape{}}};
      },
      .vjp = [](Builder&, const OpDef::VjpArgs&) -> Grads { return {}; },
      .cost = [](Types, Types, const Attrs&) { return Cost{}; },
      .reference = [](Arrays, const Attrs& attrs, std::span<RefArray> out) { out[0].data[0] = attrs.number("value"); },
      .emit =
          [](ScalarBuilder& b, std::span<const S>, const Attrs& attrs) {
            const DType dtype = attrs.dtype("dtype");
            if (dtype == DType::bf16) return b.cast(f32(b, attrs.number("value")), DType::bf16);
            if (dtype == DType::boolean) return b.cast(i32(b, attrs.number("value")), DType::boolean);
            return b.constant(dtype, attrs.number("value"));
          },
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& iota_op() {
  static const OpDef def = {
      .name = "iota",
      .arity = 0,
      .num_results = 1,
      .traits = kIndexed,
      .lowering = Lowering::kElementwise,
      .attrs = {{"dtype", AttrSpec::Kind::dtype}, {"shape", AttrSpec::Kind::integers}, {"axis", AttrSpec::Kind::integer}},
      .infer = [](Types, const Attrs& attrs) -> std::vector<Type> {
        const Type result{attrs.dtype("dtype"), Shape(attrs.integers("shape"))};
        const int64_t axis = attrs.integer("axis");
        expect_dtype("iota", result, kNumbers);
        if (axis < 0 || axis >= result.shape.rank()) fail("iota: axis {} is outside the shape {}", axis, result.shape.str());
        if (result.shape[static_cast<int>(axis)] > INT32_MAX)
          fail("iota: axis {} of {} is longer than 2^31 - 1", axis, result.shape.str());
        return {result};
      },
      .vjp = [](Builder&, const OpDef::VjpArgs&) -> Grads { return {}; },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays, const Attrs& attrs, std::span<RefArray> out) {
            const auto axis = static_cast<size_t>(attrs.integer("axis"));
            fill(out[0], [&](int64_t i) { return static_cast<double>(unravel(i, out[0].type.shape)[axis]); });
          },
      .emit =
          [](ScalarBuilder& b, std::span<const S>, const Attrs& attrs) {
            return converted(b, b.index(static_cast<int>(attrs.integer("axis"))), attrs.dtype("dtype"));
          },
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& stop_gradient_op() {
  static const OpDef def = unary({
      .name = "stop_gradient",
      .accepts = kAnyDType,
      .flops = 0,
      .reference = [](double x) { return x; },
      .emit = [](ScalarBuilder&, S x) { return x; },
      .vjp = zero_gradient,
      .domain = {.gradient_check = false},  // zero by decree, not by calculus
  });
  return def;
}

// The reading access swaps (trait kSwapsPairs), so emit passes its element on.
const OpDef& swap_pairs_op() {
  static const OpDef def = {
      .name = "swap_pairs",
      .arity = 1,
      .num_results = 1,
      .traits = kSwapsPairs | kWideGradient,
      .lowering = Lowering::kElementwise,
      .attrs = {},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype("swap_pairs", in[0], kNumbers);
        if (in[0].shape.rank() == 0 || in[0].shape.back() % 2 != 0)
          fail("swap_pairs needs an even last dim, given {}", in[0].str());
        return {in[0]};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads { return {b.op("swap_pairs", {a.grad_results[0]})}; },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs&, std::span<RefArray> out) {
            fill(out[0], [&](int64_t i) { return in[0].data[static_cast<size_t>(i ^ 1)]; });
          },
      .emit = [](ScalarBuilder&, std::span<const S> in, const Attrs&) { return in[0]; },
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
