// gather: rows of a table by index; scatter_add: its adjoint.
#include "ops/op_helpers.h"
#include "ops/op_list.h"

namespace ws::ops {

namespace {

void expect_indices(std::string_view op, const Type& t) {
  if (t.dtype != DType::i32) fail("{} takes i32 indices, given {}", op, t.str());
}

size_t checked_row(std::string_view op, double index, int64_t rows) {
  if (!(index >= 0 && index < static_cast<double>(rows))) fail_at_run("{}: index {} is outside [0, {})", op, index, rows);
  return static_cast<size_t>(index);
}

}  // namespace

const OpDef& gather_op() {
  static const OpDef def = {
      .name = "gather",
      .arity = 2,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kGather,
      .attrs = {},
      .infer = [](Types in, const Attrs&) -> std::vector<Type> {
        expect_indices("gather", in[1]);
        if (in[0].shape.rank() == 0) fail("gather needs a table of at least one axis, given {}", in[0].str());
        std::vector<int64_t> dims = dims_of(in[1].shape);
        for (int i = 1; i < in[0].shape.rank(); ++i) dims.push_back(in[0].shape[i]);
        return {{in[0].dtype, Shape(dims)}};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        if (!a.wants(0)) return {Value{}, Value{}};
        Value g = a.grad_results[0];
        if (b.type_of(g).dtype == DType::bf16) g = b.cast(g, DType::f32);  // sums are never taken in bf16
        return {b.op("scatter_add", {a.inputs[1], g}, {{"rows", b.type_of(a.inputs[0]).shape[0]}}), Value{}};
      },
      .cost =
          [](Types in, Types out, const Attrs&) {  // only the rows that are asked for
            return Cost{.flops = 0,
                        .bytes = 2 * static_cast<double>(out[0].num_bytes()) + static_cast<double>(in[1].num_bytes())};
          },
      .reference =
          [](Arrays in, const Attrs&, std::span<RefArray> out) {
            const int64_t rows = in[0].type.shape[0], width = product(in[0].type.shape, 1, in[0].type.shape.rank());
            fill(out[0], [&](int64_t i) {
              const size_t row = checked_row("gather", in[1].data[static_cast<size_t>(i / width)], rows);
              return in[0].data[row * static_cast<size_t>(width) + static_cast<size_t>(i % width)];
            });
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

const OpDef& scatter_add_op() {
  static const OpDef def = {
      .name = "scatter_add",
      .arity = 2,
      .num_results = 1,
      .traits = kNoTraits,
      .lowering = Lowering::kScatterAdd,
      .attrs = {{"rows", AttrSpec::Kind::integer}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> {
        expect_indices("scatter_add", in[0]);
        if (in[1].dtype == DType::bf16) fail("scatter_add of {}: sums are taken in f32, cast it first", in[1].str());
        expect_dtype("scatter_add", in[1], bit(DType::f32));
        const Shape &indices = in[0].shape, &updates = in[1].shape;
        bool fits = updates.rank() >= indices.rank();
        for (int i = 0; fits && i < indices.rank(); ++i) fits = indices[i] == updates[i];
        if (!fits) fail("scatter_add: updates {} must start with the dims of the indices {}", in[1].str(), in[0].str());
        if (attrs.integer("rows") < 0) fail("scatter_add: {} rows", attrs.integer("rows"));
        std::vector<int64_t> dims = {attrs.integer("rows")};
        for (int i = indices.rank(); i < updates.rank(); ++i) dims.push_back(updates[i]);
        return {{in[1].dtype, Shape(dims)}};
      },
      .vjp = [](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        return {Value{}, b.op("gather", {a.grad_results[0], a.inputs[0]})};
      },
      .cost =
          [](Types in, Types out, const Attrs&) {  // zeros written, then each update read and its row read and written
            const auto updates = static_cast<double>(in[1].num_bytes());
            return Cost{.flops = num_elements(in[1]),
                        .bytes = 3 * updates + static_cast<double>(in[0].num_bytes() + out[0].num_bytes())};
          },
      .reference =
          [](Arrays in, const Attrs&, std::span<RefArray> out) {
            const auto width = static_cast<size_t>(product(out[0].type.shape, 1, out[0].type.shape.rank()));
            for (size_t i = 0; i < in[1].data.size(); ++i) {
              const size_t row = checked_row("scatter_add", in[0].data[i / width], out[0].type.shape[0]);
              out[0].data[row * width + i % width] += in[1].data[i];
            }
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
