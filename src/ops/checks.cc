// check_range and check_finite: pass their input through; a bad value stops the step before anything is written back.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

const OpDef& check_range_op() {
  static const OpDef def = {
      .name = "check_range",
      .arity = 1,
      .num_results = 1,
      .traits = kEffect,
      .lowering = Lowering::kCheck,
      .attrs = {{"low", AttrSpec::Kind::integer}, {"high", AttrSpec::Kind::integer}, {"what", AttrSpec::Kind::text}},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype("check_range", in[0], bit(DType::i32));
        return {in[0]};
      },
      .vjp = [](Builder&, const OpDef::VjpArgs&) -> Grads { return {Value{}}; },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const int64_t low = attrs.integer("low"), high = attrs.integer("high");
            for (double x : in[0].data)
              if (!(x >= static_cast<double>(low) && x < static_cast<double>(high)))
                fail_at_run("{} {} is outside [{}, {})", attrs.text("what"), x, low, high);
            out[0].data = in[0].data;
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& check_finite_op() {
  static const OpDef def = {
      .name = "check_finite",
      .arity = 1,
      .num_results = 1,
      .traits = kEffect,
      .lowering = Lowering::kCheck,
      .attrs = {{"what", AttrSpec::Kind::text}},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype("check_finite", in[0], bit(DType::f32) | bit(DType::f64));
        if (in[0].shape.rank() != 0) fail("check_finite takes a scalar, given {}", in[0].str());
        return {in[0]};
      },
      .vjp = [](Builder&, const OpDef::VjpArgs& a) -> Grads { return {a.grad_results[0]}; },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const double x = in[0].data[0];
            if (!std::isfinite(x)) throw NonFiniteError(fmt::format("the {} is {}", attrs.text("what"), x));
            out[0].data = in[0].data;
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
