// Comparisons, boolean logic, is_finite and select.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

OpDef comparison(std::string_view name, uint32_t traits, double (*reference)(double, double), S (*emit)(ScalarBuilder&, S, S)) {
  return binary({.name = name,
                 .traits = traits,
                 .reference = reference,
                 .emit = emit,
                 .vjp_x = zero_gradient,
                 .vjp_y = zero_gradient,
                 .gives_bool = true});
}

OpDef logical(std::string_view name, double (*reference)(double, double), S (*emit)(ScalarBuilder&, S, S)) {
  return binary({.name = name,
                 .accepts = kBool,
                 .traits = kCommutative,
                 .reference = reference,
                 .emit = emit,
                 .vjp_x = zero_gradient,
                 .vjp_y = zero_gradient,
                 .gives_bool = true});
}

}  // namespace

const OpDef& eq_op() {
  static const OpDef def = comparison(
      "eq", kCommutative, [](double a, double b) { return a == b ? 1.0 : 0.0; },
      [](ScalarBuilder& b, S x, S y) { return b.eq(x, y); });
  return def;
}
const OpDef& ne_op() {
  static const OpDef def = comparison(
      "ne", kCommutative, [](double a, double b) { return a != b ? 1.0 : 0.0; },
      [](ScalarBuilder& b, S x, S y) { return b.ne(x, y); });
  return def;
}
const OpDef& lt_op() {
  static const OpDef def = comparison(
      "lt", kNoTraits, [](double a, double b) { return a < b ? 1.0 : 0.0; },
      [](ScalarBuilder& b, S x, S y) { return b.lt(x, y); });
  return def;
}
const OpDef& le_op() {
  static const OpDef def = comparison(
      "le", kNoTraits, [](double a, double b) { return a <= b ? 1.0 : 0.0; },
      [](ScalarBuilder& b, S x, S y) { return b.le(x, y); });
  return def;
}

const OpDef& logical_and_op() {
  static const OpDef def = logical(
      "logical_and", [](double a, double b) { return a * b; }, [](ScalarBuilder& b, S x, S y) { return b.logical_and(x, y); });
  return def;
}
const OpDef& logical_or_op() {
  static const OpDef def = logical(
      "logical_or", [](double a, double b) { return a + b > 0 ? 1.0 : 0.0; },
      [](ScalarBuilder& b, S x, S y) { return b.logical_or(x, y); });
  return def;
}
const OpDef& logical_not_op() {
  static const OpDef def = unary({
      .name = "logical_not",
      .accepts = kBool,
      .reference = [](double x) { return 1 - x; },
      .emit = [](ScalarBuilder& b, S x) { return b.logical_not(x); },
      .vjp = zero_gradient,
      .gives_bool = true,
  });
  return def;
}

const OpDef& is_finite_op() {
  static const OpDef def = unary({
      .name = "is_finite",
      .accepts = kFloats,
      .reference = [](double x) { return std::isfinite(x) ? 1.0 : 0.0; },
      .emit = [](ScalarBuilder& b, S x) { return b.lt(b.abs(x), like(b, x, HUGE_VAL)); },
      .vjp = zero_gradient,
      .gives_bool = true,
  });
  return def;
}

const OpDef& select_op() {
  static const OpDef def = {
      .name = "select",
      .arity = 3,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kElementwise,
      .attrs = {},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype("select's condition", in[0], kBool);
        expect_same_type("select", in[1], in[2]);
        if (in[0].shape != in[1].shape)
          fail("select needs inputs of one shape, given {}, {} and {}: broadcast them", in[0].str(), in[1].str(), in[2].str());
        return {in[1]};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const Value g = a.grad_results[0], zero = b.constant(b.type_of(g).dtype, 0);
        Grads grads(3);
        if (a.wants(1)) grads[1] = b.select(a.inputs[0], g, zero);
        if (a.wants(2)) grads[2] = b.select(a.inputs[0], zero, g);
        return grads;
      },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 1); },
      .reference =
          [](Arrays in, const Attrs&, std::span<RefArray> out) {
            fill(out[0], [&](int64_t i) {
              const auto j = static_cast<size_t>(i);
              return in[0].data[j] != 0 ? in[1].data[j] : in[2].data[j];
            });
          },
      .emit = [](ScalarBuilder& b, std::span<const S> in, const Attrs&) { return b.select(in[0], in[1], in[2]); },
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
