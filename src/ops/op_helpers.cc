#include "ops/op_helpers.h"

namespace ws::ops {

void expect_dtype(std::string_view op, const Type& type, DTypeSet accepted) {
  if (holds(accepted, type.dtype)) return;
  std::string names;
  for (DType d : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::boolean})
    if (holds(accepted, d)) names += (names.empty() ? "" : ", ") + std::string(name_of(d));
  fail("{} takes {}, given {}: cast it first", op, names, type.str());
}

void expect_same_type(std::string_view op, const Type& a, const Type& b) {
  if (a.dtype != b.dtype) fail("{} needs inputs of one dtype, given {} and {}: cast one of them", op, a.str(), b.str());
  if (a.shape != b.shape)
    fail("{} needs inputs of one shape, given {} and {}: broadcast or reshape one of them", op, a.str(), b.str());
}

namespace {
uint32_t low_bits(double x) { return static_cast<uint32_t>(static_cast<int64_t>(x)); }
double wrapped(DType dtype, uint32_t bits) {
  return dtype == DType::i32 ? static_cast<double>(static_cast<int32_t>(bits)) : static_cast<double>(bits);
}
}  // namespace

double num_elements(const Type& t) { return static_cast<double>(t.shape.num_elements()); }

Cost streaming_cost(Types inputs, Types results, double flops_per_result_element) {
  Cost c;
  for (const Type& t : inputs) c.bytes += static_cast<double>(t.num_bytes());
  for (const Type& t : results) c.bytes += static_cast<double>(t.num_bytes());
  if (!results.empty()) c.flops = flops_per_result_element * num_elements(results[0]);
  return c;
}

OpDef unary(const Unary& u) {
  return {
      .name = u.name,
      .arity = 1,
      .num_results = 1,
      .traits = u.traits,
      .lowering = Lowering::kElementwise,
      .attrs = {},
      .infer = [u](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype(u.name, in[0], u.accepts);
        return {{u.gives_bool ? DType::boolean : in[0].dtype, in[0].shape}};
      },
      .vjp = [u](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        return {u.vjp(b, a.inputs[0], a.results[0], a.grad_results[0])};
      },
      .cost = [u](Types in, Types out, const Attrs&) { return streaming_cost(in, out, u.flops); },
      .reference =
          [u](Arrays in, const Attrs&, std::span<RefArray> out) {
            fill(out[0], [&](int64_t i) { return u.reference(in[0].data[static_cast<size_t>(i)]); });
          },
      .emit = [u](ScalarBuilder& b, std::span<const S> in, const Attrs&) { return u.emit(b, in[0]); },
      .domain = {u.domain},
  };
}

OpDef binary(const Binary& u) {
  return {
      .name = u.name,
      .arity = 2,
      .num_results = 1,
      .traits = u.traits,
      .lowering = Lowering::kElementwise,
      .attrs = {},
      .infer = [u](Types in, const Attrs&) -> std::vector<Type> {
        expect_dtype(u.name, in[0], u.accepts);
        expect_same_type(u.name, in[0], in[1]);
        return {{u.gives_bool ? DType::boolean : in[0].dtype, in[0].shape}};
      },
      .vjp = [u](Builder& b, const OpDef::VjpArgs& a) -> Grads {
        const Value x = a.inputs[0], y = a.inputs[1], result = a.results[0], grad = a.grad_results[0];
        Grads grads(2);
        if (a.wants(0)) grads[0] = u.vjp_x(b, x, y, result, grad);
        if (a.wants(1)) grads[1] = u.vjp_y(b, x, y, result, grad);
        return grads;
      },
      .cost = [u](Types in, Types out, const Attrs&) { return streaming_cost(in, out, u.flops); },
      .reference =
          [u](Arrays in, const Attrs&, std::span<RefArray> out) {
            const DType dtype = out[0].type.dtype;
            const bool wraps = u.wrapping && holds(kIntegers, dtype);
            fill(out[0], [&](int64_t i) {
              const double x = in[0].data[static_cast<size_t>(i)], y = in[1].data[static_cast<size_t>(i)];
              return wraps ? wrapped(dtype, u.wrapping(low_bits(x), low_bits(y))) : u.reference(x, y);
            });
          },
      .emit = [u](ScalarBuilder& b, std::span<const S> in, const Attrs&) { return u.emit(b, in[0], in[1]); },
      .domain = u.domain,
  };
}

S horner(ScalarBuilder& b, S x, std::initializer_list<double> c) {
  const double* at = c.end() - 1;
  S sum = like(b, x, *at);
  while (at != c.begin()) sum = b.fma(sum, x, like(b, x, *--at));
  return sum;
}

Index unravel(int64_t linear, const Shape& shape) {
  Index index{};
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[static_cast<size_t>(i)] = linear % shape[i];
    linear /= shape[i];
  }
  return index;
}

int64_t ravel(const Index& index, const Shape& shape) {
  int64_t linear = 0;
  for (int i = 0; i < shape.rank(); ++i) linear = linear * shape[i] + index[static_cast<size_t>(i)];
  return linear;
}

int64_t product(const Shape& shape, int first, int last) {
  int64_t n = 1;
  for (int i = first; i < last; ++i) n *= shape[i];
  return n;
}

}  // namespace ws::ops
