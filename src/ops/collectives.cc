// all_reduce, all_gather: what ranks of a mesh exchange. Put in after gradients have been taken, so they have none. The reference is
// that of one rank. All-reduces of one `bucket` above 0 travel together, while other kernels run.
#include <limits>

#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

const OpDef& all_reduce_op() {
  static const OpDef def = {
      .name = "all_reduce",
      .arity = 1,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kCollective,
      .attrs = {{"bucket", AttrSpec::Kind::integer}, {"channel", AttrSpec::Kind::integer}, {"maximum", AttrSpec::Kind::flag}},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype("all_reduce", in[0], bit(DType::f32) | bit(DType::f64) | kIntegers);
        return {in[0]};
      },
      .vjp = not_differentiable,
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 1); },
      .reference = [](Arrays in, const Attrs&, std::span<RefArray> out) { out[0].data = in[0].data; },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& all_gather_op() {
  static const OpDef def = {
      .name = "all_gather",
      .arity = 1,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kCollective,
      .attrs = {{"channel", AttrSpec::Kind::integer}, {"rows", AttrSpec::Kind::integer}, {"unit", AttrSpec::Kind::integer}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> {
        const int64_t rows = attrs.integer("rows"), unit = attrs.integer("unit");
        if (in[0].shape.rank() < 1) fail("all_gather needs at least one axis, given {}", in[0].str());
        if (rows < 0 || unit < 1 || rows > std::numeric_limits<int64_t>::max() / unit || in[0].shape[0] % unit != 0 ||
            in[0].shape[0] / unit > rows)
          fail("all_gather of {}: these are not some of {} rows of {}", in[0].str(), rows, unit);
        std::vector<int64_t> dims = dims_of(in[0].shape);
        dims[0] = rows * unit;
        return {{in[0].dtype, Shape(dims)}};
      },
      .vjp = not_differentiable,
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 0); },
      .reference = [](Arrays in, const Attrs&, std::span<RefArray> out) { out[0].data = in[0].data; },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
