// The free functions and operators: broadcasting, reductions, and the functions made of several ops.
#include <algorithm>
#include <cmath>

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/precision.h"

namespace ws {
namespace {

void check_defined(const Tensor& t, std::string_view op, std::string_view which) {
  if (!t.defined()) fail("{}{}: {} is an undefined Tensor", path_prefix(), op, which);
}

Shape common_shape(std::string_view op, const Tensor& a, const Tensor& b) {
  if (a.shape() == b.shape()) return a.shape();
  try {
    return broadcast_shapes(a.shape(), b.shape());
  } catch (const Error&) {
    fail("{}{}: the shapes {} and {} do not broadcast; trailing dims must be equal or 1", path_prefix(), op, a.shape().str(),
         b.shape().str());
  }
}

Tensor unary(const OpDef& op, const Tensor& x) {
  TensorImpl* operand[] = {x.impl().get()};
  return apply_single(op, operand, {});
}

bool both_have_axes(const Tensor& a, const Tensor& b) { return a.rank() > 0 && b.rank() > 0; }

// What f32 and bf16 gave: f32, but a scalar f32 leaves a bf16 tensor what it is (rounded once).
Tensor as_met(const Tensor& a, const Tensor& b, const Tensor& result) {
  const Tensor &wide = a.dtype() == DType::f32 ? a : b, &narrow = a.dtype() == DType::f32 ? b : a;
  return wide.rank() == 0 && narrow.rank() > 0 ? to_compute_dtype(result) : result;
}

Tensor broadcast_and_apply(const OpDef& op, const Tensor& a, const Tensor& b, bool promoted) {
  Shape shape = common_shape(op.name, a, b);
  Tensor x = a.broadcast_to(shape), y = b.broadcast_to(shape);
  if (promoted) note_promotion();
  TensorImpl* operands[] = {x.impl().get(), y.impl().get()};
  return apply_single(op, operands, {});
}

Tensor binary(const OpDef& op, const Tensor& a, const Tensor& b) {
  check_defined(a, op.name, "the first operand");
  check_defined(b, op.name, "the second operand");
  if (meet_in_f32(a.dtype(), b.dtype()))
    return as_met(a, b, broadcast_and_apply(op, a.cast(DType::f32), b.cast(DType::f32), both_have_axes(a, b)));
  if (a.dtype() != b.dtype())
    fail("{}{}: the operands are {} and {}; cast one of them, as in b.cast(DType::{})", path_prefix(), op.name,
         describe(*a.impl()), describe(*b.impl()), a.dtype() == DType::boolean ? "boolean" : name_of(a.dtype()));
  if (a.shape() == b.shape()) {
    TensorImpl* operands[] = {a.impl().get(), b.impl().get()};
    return apply_single(op, operands, {});
  }
  return broadcast_and_apply(op, a, b, false);
}

// A number as the other side sees it.
Tensor number_like(const Tensor& other, double value, std::string_view op) {
  check_defined(other, op, "an operand");
  if (!is_floating(other.dtype()) && value != std::trunc(value))
    fail("{}{}: {} is not a whole number and the tensor is {}; cast it to DType::f32 first", path_prefix(), op, value,
         describe(*other.impl()));
  return Tensor::full({}, value, other.dtype());
}

// Groups of adjacent axes, innermost first, as the IR's builder takes them.
Tensor reduce(std::string_view name, const Tensor& x, std::vector<int64_t> axes, bool keepdims) {
  check_defined(x, name, "the operand");
  if (x.dtype() == DType::bf16)
    return reduce(name, x.cast(DType::f32), std::move(axes), keepdims).cast(DType::bf16);  // f32 sums, rounded once
  int64_t rank = x.rank();
  if (axes.empty())
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) fail("{}{}: axis {} is outside the shape {}", path_prefix(), name, axis, x.shape().str());
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    fail("{}{}: an axis of {} is named twice", path_prefix(), name, x.shape().str());
  Tensor y = x;
  for (size_t end = axes.size(); end > 0;) {
    size_t begin = end - 1;
    while (begin > 0 && axes[begin - 1] + 1 == axes[begin]) --begin;
    y = apply_op(name, {&y}, {{"first_axis", axes[begin]}, {"num_axes", static_cast<int64_t>(end - begin)}});
    end = begin;
  }
  if (!keepdims || axes.empty()) return y;
  std::vector<int64_t> dims(x.shape().begin(), x.shape().end());
  for (int64_t axis : axes) dims[static_cast<size_t>(axis)] = 1;
  return y.reshape(Shape(dims));
}

}  // namespace

#define UNARY(name)                           \
  Tensor name(const Tensor& x) {              \
    static const OpDef& op = op_named(#name); \
    return unary(op, x);                      \
  }
#define BINARY(name)                              \
  Tensor name(const Tensor& a, const Tensor& b) { \
    static const OpDef& op = op_named(#name);     \
    return binary(op, a, b);                      \
  }
#define OTHER(name)
#define WS_OP(kind, name) kind(name)
#include "wholestep/all_ops.inc"
#undef WS_OP
#undef UNARY
#undef BINARY
#undef OTHER

Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor operator+(const Tensor& a, double b) { return add(a, number_like(a, b, "add")); }
Tensor operator+(double a, const Tensor& b) { return add(number_like(b, a, "add"), b); }
Tensor operator-(const Tensor& a, double b) { return sub(a, number_like(a, b, "sub")); }
Tensor operator-(double a, const Tensor& b) { return sub(number_like(b, a, "sub"), b); }
Tensor operator*(const Tensor& a, double b) { return mul(a, number_like(a, b, "mul")); }
Tensor operator*(double a, const Tensor& b) { return mul(number_like(b, a, "mul"), b); }
Tensor operator/(const Tensor& a, double b) { return div(a, number_like(a, b, "div")); }
Tensor operator/(double a, const Tensor& b) { return div(number_like(b, a, "div"), b); }
Tensor operator-(const Tensor& x) { return neg(x); }

Tensor Tensor::sum(std::vector<int64_t> axes, bool keepdims) const {
  return reduce("reduce_sum", *this, std::move(axes), keepdims);
}
Tensor Tensor::max(std::vector<int64_t> axes, bool keepdims) const {
  return reduce("reduce_max", *this, std::move(axes), keepdims);
}

Tensor Tensor::mean(std::vector<int64_t> axes, bool keepdims) const {
  if (!is_floating(dtype())) fail("{}mean: needs a floating dtype, not {}; cast it first", path_prefix(), describe(*impl_));
  if (dtype() == DType::bf16) return cast(DType::f32).mean(std::move(axes), keepdims).cast(DType::bf16);  // rounded once
  Tensor total = sum(std::move(axes), keepdims);
  double count = total.size() == 0 ? 1 : static_cast<double>(size() / total.size());
  return total / count;
}

namespace {

Tensor choose(const Tensor& condition, const Tensor& a, const Tensor& b, bool promoted) {
  static const OpDef& op = op_named("select");
  Shape choices = common_shape("where", a, b), shape = choices;
  if (!(condition.shape() == choices)) shape = common_shape("where", condition, a.broadcast_to(choices));
  Tensor c = condition.broadcast_to(shape), x = a.broadcast_to(shape), y = b.broadcast_to(shape);
  if (promoted) note_promotion();
  TensorImpl* operands[] = {c.impl().get(), x.impl().get(), y.impl().get()};
  return apply_single(op, operands, {});
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_defined(condition, "where", "the condition");
  check_defined(a, "where", "the first choice");
  check_defined(b, "where", "the second choice");
  if (meet_in_f32(a.dtype(), b.dtype()))
    return as_met(a, b, choose(condition, a.cast(DType::f32), b.cast(DType::f32), both_have_axes(a, b)));
  if (a.dtype() != b.dtype())
    fail("{}where: the choices are {} and {}; cast one of them", path_prefix(), describe(*a.impl()), describe(*b.impl()));
  return choose(condition, a, b, false);
}

Tensor concatenate(const std::vector<Tensor>& given, int axis) {
  static const OpDef& op = op_named("concatenate");
  if (given.empty()) fail("{}concatenate: no tensors given", path_prefix());
  for (const Tensor& part : given) check_defined(part, "concatenate", "a part");
  std::vector<Tensor> parts = given;
  bool promoted =
      std::any_of(given.begin(), given.end(), [&](const Tensor& t) { return meet_in_f32(t.dtype(), given[0].dtype()); });
  std::vector<TensorImpl*> operands;
  for (Tensor& part : parts) {
    if (promoted && part.dtype() == DType::bf16) part = part.cast(DType::f32);
    operands.push_back(part.impl().get());
  }
  int64_t rank = parts[0].rank();
  if (axis < -rank || axis >= rank)
    fail("{}concatenate: axis {} is outside the shape {}", path_prefix(), axis, parts[0].shape().str());
  if (promoted) note_promotion();
  return apply_single(op, operands, {{"axis", axis < 0 ? axis + rank : static_cast<int64_t>(axis)}});
}

Tensor matmul(const Tensor& given_a, const Tensor& given_b, bool transpose_a, bool transpose_b) {
  static const OpDef& op = op_named("matmul");
  check_defined(given_a, "matmul", "the first operand");
  check_defined(given_b, "matmul", "the second operand");
  Tensor a = product_operand(given_a), b = product_operand(given_b);
  auto with_flags = [](bool ta, bool tb) { return Attrs{{"transpose_a", ta}, {"transpose_b", tb}, {"out_dtype", DType::f32}}; };
  static const Attrs kAttrs[] = {with_flags(false, false), with_flags(true, false), with_flags(false, true),
                                 with_flags(true, true)};
  TensorImpl* operands[] = {a.impl().get(), b.impl().get()};
  const Attrs& attrs = kAttrs[(transpose_a ? 1 : 0) + (transpose_b ? 2 : 0)];
  const MatmulPrecision precision = matmul_precision();
  if (precision == MatmulPrecision::highest || a.dtype() != DType::f32 || b.dtype() != DType::f32)
    return apply_single(op, operands, attrs);
  Attrs in_parts = attrs;
  in_parts.set("precision", std::string(name_of(precision)));
  return apply_single(op, operands, in_parts);
}

Tensor check_range(const Tensor& x, int64_t low, int64_t high, const std::string& what) {
  return apply_op("check_range", {&x}, {{"low", low}, {"high", high}, {"what", what}});
}

Tensor check_finite(const Tensor& x, const std::string& what) { return apply_op("check_finite", {&x}, {{"what", what}}); }

Tensor gather(const Tensor& table, const Tensor& indices, const std::string& what) {
  check_defined(table, "gather", "the table");
  check_defined(indices, "gather", "the index tensor");
  if (table.rank() < 1) fail("{}gather: the table needs at least one axis, not {}", path_prefix(), table.shape().str());
  Tensor checked = check_range(indices, 0, table.dim(0), what);
  return apply_op("gather", {&table, &checked});
}

Tensor attention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, bool causal, std::optional<double> scale) {
  static const OpDef& op = op_named("attention");
  check_defined(given_q, "attention", "q");
  check_defined(given_k, "attention", "k");
  check_defined(given_v, "attention", "v");
  if (given_q.dtype() != given_k.dtype() || given_q.dtype() != given_v.dtype())
    fail("{}attention: q is {}, k is {}, v is {}; they must have one dtype, so cast what differs", path_prefix(),
         describe(*given_q.impl()), describe(*given_k.impl()), describe(*given_v.impl()));
  Tensor q = product_operand(given_q), k = product_operand(given_k), v = product_operand(given_v);
  if (q.rank() != 4) fail("{}attention: q must be [batch, time, heads, size], not {}", path_prefix(), q.shape().str());
  double factor = scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.dim(3)))));
  TensorImpl* operands[] = {q.impl().get(), k.impl().get(), v.impl().get()};
  return apply_all(op, operands, {{"causal", causal}, {"scale", factor}})[0];
}

// Functions made of several ops: those of bf16 compute in f32 and round once.

Tensor silu(const Tensor& x) {
  if (x.dtype() == DType::bf16) return silu(x.cast(DType::f32)).cast(DType::bf16);
  return x * sigmoid(x);
}

Tensor gelu(const Tensor& x) {
  if (x.dtype() == DType::bf16) return gelu(x.cast(DType::f32)).cast(DType::bf16);
  return x * 0.5 * (erf(x * std::sqrt(0.5)) + 1.0);
}

Tensor gelu_tanh(const Tensor& x) {
  if (x.dtype() == DType::bf16) return gelu_tanh(x.cast(DType::f32)).cast(DType::bf16);
  // tanh form of Hendrycks and Gimpel (2016)
  const double kSqrt2OverPi = 0.79788456080286535588;
  Tensor inner = (x + x * x * x * 0.044715) * kSqrt2OverPi;
  return x * 0.5 * (tanh(inner) + 1.0);
}

namespace {

void check_has_last_axis(const Tensor& x, std::string_view who) {
  check_defined(x, who, "the operand");
  if (x.rank() < 1) fail("{}{}: needs at least one axis", path_prefix(), who);
}

}  // namespace

Tensor softmax(const Tensor& x) {
  check_has_last_axis(x, "softmax");
  if (x.dtype() == DType::bf16) return softmax(x.cast(DType::f32)).cast(DType::bf16);
  Tensor e = exp(x - x.max({-1}, true).detach());  // the maximum cancels: no gradient through it
  return e * (1.0 / e.sum({-1}, true));            // one division a row: a division takes as long as the exponential
}

Tensor log_softmax(const Tensor& x) {
  check_has_last_axis(x, "log_softmax");
  if (x.dtype() == DType::bf16) return log_softmax(x.cast(DType::f32)).cast(DType::bf16);
  Tensor difference = x - x.max({-1}, true).detach();
  return difference - log(exp(difference).sum({-1}, true));
}

}  // namespace ws
