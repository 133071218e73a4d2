// matmul: a [..., M, K] x b [..., K, N] or [K, N] -> [..., M, N]. Flags say that the last two dims are stored swapped, so
// gradients never materialise a transpose. `precision` (f32 only; left out: fp32 products) names the bf16 parts that operands are
// multiplied in: "bf16" is x rounded to bf16, "high" is hi + lo, hi = x rounded, lo = x - hi rounded, less the product of the two lo.
#include "ops/op_helpers.h"
#include "ops/op_list.h"
#include "support/bf16.h"

namespace ws::ops {

namespace {

const std::string* precision_of(const Attrs& attrs) {
  const AttrValue* value = attrs.find("precision");
  return value == nullptr ? nullptr : &std::get<std::string>(*value);
}

struct Sizes {
  int64_t m = 0, k = 0, n = 0;
};

Sizes sizes_of(const Shape& a, const Shape& b, const Attrs& attrs) {
  const bool ta = attrs.flag("transpose_a"), tb = attrs.flag("transpose_b");
  return {a[ta ? -1 : -2], a[ta ? -2 : -1], b[tb ? -2 : -1]};
}

Type infer_product(const Type& a, const Type& b, const Attrs& attrs) {
  const DType out = attrs.dtype("out_dtype");
  const auto given = [&] {
    return fmt::format("{}{} and {}{}", a.str(), attrs.flag("transpose_a") ? " transposed" : "", b.str(),
                       attrs.flag("transpose_b") ? " transposed" : "");
  };
  if (a.dtype != b.dtype || !holds(kF32Bf16, a.dtype))
    fail("matmul takes f32 and f32 or bf16 and bf16, given {}: cast one of them", given());
  if (!holds(kF32Bf16, out) || (a.dtype == DType::f32 && out != DType::f32))
    fail("matmul of {} cannot give {}: cast the result", given(), name_of(out));
  if (const std::string* precision = precision_of(attrs)) {
    if (*precision != "high" && *precision != "bf16")
      fail("matmul of precision \"{}\": known ones are \"high\" and \"bf16\"; leave it out for fp32 products", *precision);
    if (a.dtype != DType::f32) fail("matmul of {} has no precision to choose: its operands are bf16 as they are", given());
  }
  if (a.shape.rank() < 2 || b.shape.rank() < 2)
    fail("matmul needs matrices, given {}: reshape vectors to [1, n] or [n, 1]", given());
  bool leading_fit = b.shape.rank() == 2 || b.shape.rank() == a.shape.rank();
  for (int i = 0; leading_fit && b.shape.rank() > 2 && i < a.shape.rank() - 2; ++i) leading_fit = a.shape[i] == b.shape[i];
  if (!leading_fit) fail("matmul of {}: the second must be a matrix or have the leading dims of the first", given());
  const Sizes s = sizes_of(a.shape, b.shape, attrs);
  const int64_t k_of_b = b.shape[attrs.flag("transpose_b") ? -1 : -2];
  if (s.k != k_of_b) fail("matmul of {}: inner dims {} and {} differ", given(), s.k, k_of_b);
  std::vector<int64_t> dims = dims_of(a.shape);
  dims[dims.size() - 2] = s.m;
  dims[dims.size() - 1] = s.n;
  return {out, Shape(dims)};
}

// Gradients leave in f32 even where the inputs are bf16: those of parameters are never rounded on their way to the masters. They are
// multiplied as precisely as the product was.
Value product_of(Builder& b, const Attrs& forward, Value x, bool transpose_x, Value y, bool transpose_y) {
  Attrs attrs{{"transpose_a", transpose_x}, {"transpose_b", transpose_y}, {"out_dtype", DType::f32}};
  if (const std::string* precision = precision_of(forward)) attrs.set("precision", *precision);
  return b.op("matmul", {x, y}, attrs);
}

Value flattened(Builder& b, Value x) {
  const Shape s = b.type_of(x).shape;
  return b.reshape(x, Shape{product(s, 0, s.rank() - 1), s[-1]});
}

Value gradient_of_a(Builder& b, const OpDef::VjpArgs& args, Value g) {
  const bool ta = args.attrs.flag("transpose_a"), tb = args.attrs.flag("transpose_b");
  Value y = args.inputs[1];
  if (!ta) return product_of(b, args.attrs, g, false, y, !tb);
  const Shape a = b.type_of(args.inputs[0]).shape, y_shape = b.type_of(y).shape;
  if (y_shape.rank() < a.rank()) {  // b comes first now and must have the leading dims: a broadcast is only a view
    std::vector<int64_t> dims = dims_of(a);
    dims[dims.size() - 2] = y_shape[0];
    dims[dims.size() - 1] = y_shape[1];
    y = b.broadcast_to(y, Shape(dims));
  }
  return product_of(b, args.attrs, y, tb, g, true);
}

Value gradient_of_b(Builder& b, const OpDef::VjpArgs& args, Value g) {
  const bool ta = args.attrs.flag("transpose_a"), tb = args.attrs.flag("transpose_b");
  Value x = args.inputs[0];
  const Shape wanted = b.type_of(args.inputs[1]).shape;
  if (!ta && wanted.rank() == 2) x = flattened(b, x), g = flattened(b, g);  // one long product in place of a sum of many
  const Value grad = tb ? product_of(b, args.attrs, g, true, x, ta) : product_of(b, args.attrs, x, !ta, g, false);
  return b.sum_to(grad, wanted);
}

// An operand's parts in the reference, so that it tells apart what is rounded and what is wrong.
struct Parts {
  double high, low;
};
Parts parts_of(double x) {
  const double high = static_cast<double>(widen(narrow(static_cast<float>(x))));
  return {high, static_cast<double>(widen(narrow(static_cast<float>(x - high))))};
}
double product_in_parts(double x, double y, const std::string& precision) {
  const Parts a = parts_of(x), b = parts_of(y);
  return precision == "bf16" ? a.high * b.high : a.high * b.high + a.high * b.low + a.low * b.high;
}

Grads matmul_gradients(Builder& b, const OpDef::VjpArgs& args) {
  const Value g = b.cast(args.grad_results[0], b.type_of(args.inputs[0]).dtype);
  Grads grads(2);
  if (args.wants(0)) grads[0] = gradient_of_a(b, args, g);
  if (args.wants(1)) grads[1] = gradient_of_b(b, args, g);
  return grads;
}

}  // namespace

const OpDef& matmul_op() {
  static const OpDef def = {
      .name = "matmul",
      .arity = 2,
      .num_results = 1,
      .traits = kWideGradient,
      .lowering = Lowering::kMatmul,
      .attrs = {{"transpose_a", AttrSpec::Kind::flag},
                {"transpose_b", AttrSpec::Kind::flag},
                {"out_dtype", AttrSpec::Kind::dtype},
                {"precision", AttrSpec::Kind::text, true}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> { return {infer_product(in[0], in[1], attrs)}; },
      .vjp = matmul_gradients,
      .cost =
          [](Types in, Types out, const Attrs& attrs) {
            return streaming_cost(in, out, 2 * static_cast<double>(sizes_of(in[0].shape, in[1].shape, attrs).k));
          },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const Shape &a = in[0].type.shape, &b = in[1].type.shape;
            const bool ta = attrs.flag("transpose_a"), tb = attrs.flag("transpose_b");
            const Sizes s = sizes_of(a, b, attrs);
            const std::string* precision = precision_of(attrs);
            const int64_t batch = product(a, 0, a.rank() - 2);
            for (int64_t i = 0; i < batch; ++i) {
              const double* x = in[0].data.data() + i * s.m * s.k;
              const double* y = in[1].data.data() + (b.rank() == 2 ? 0 : i * s.k * s.n);
              double* c = out[0].data.data() + i * s.m * s.n;
              for (int64_t row = 0; row < s.m; ++row)
                for (int64_t k = 0; k < s.k; ++k) {
                  const double factor = x[ta ? k * s.m + row : row * s.k + k];
                  for (int64_t col = 0; col < s.n; ++col) {
                    const double other = y[tb ? col * s.k + k : k * s.n + col];
                    c[row * s.n + col] += precision == nullptr ? factor * other : product_in_parts(factor, other, *precision);
                  }
                }
            }
          },
      .emit = {},
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
