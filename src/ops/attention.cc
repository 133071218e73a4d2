// attention and its gradient. A masked key has weight exactly 0; a row with every key masked gives 0, with zero gradient.
// Causal: query t sees keys s <= t + S - T, so that the last query sees the last key.
//
// attention(q, k, v) has the bits of these ops, head by head (q, k, v of one dtype, f32 or bf16; q.f32 is a cast, an identity in f32):
//   scores = matmul(q.f32, transpose(k.f32)) * scale, masked;  row_max, row_sum and p = softmax(scores) in f32, which is e * (1 / sum e)
//   w = p.cast(dtype);  out = matmul(w.f32, v.f32).cast(dtype)
// and attention_grad those of their gradients, which are f32 whatever the dtype, as a product's are:
//   g = grad_out.cast(dtype);  grad_v = matmul(transpose(w.f32), g.f32);  grad_p = matmul(g.f32, transpose(v.f32))
//   grad_s = (((grad_p - sum(grad_p * p)) * p) * scale).cast(dtype)
//   grad_q = matmul(grad_s.f32, k.f32);  grad_k = matmul(transpose(grad_s.f32), q.f32)
// attention_masked sees a key where its mask has true, and drops weights: scores = select(mask, scores, -infinity) and
//   w = select(random_bits(key0, key1) < keep_threshold(dropout), p * (1 / (1 - dropout)), 0).cast(dtype)
// with gradients that pass the two selects back: zeros for what is not seen or was dropped.
// So products multiply what bf16 can hold and sum in f32, and what lies between two products is rounded once.
#include <algorithm>
#include <bit>

#include "ops/op_helpers.h"
#include "ops/op_list.h"
#include "ops/philox.h"

namespace ws::ops {

namespace {

struct Sizes {
  int64_t batch, queries, keys, heads, width;
};

Sizes sizes_of(const Shape& q, const Shape& k) { return {q[0], q[1], k[1], q[2], q[3]}; }

// Number of leading keys that query t sees.
int64_t visible(const Sizes& s, bool causal, int64_t t) {
  return causal ? std::clamp<int64_t>(t + 1 + s.keys - s.queries, 0, s.keys) : s.keys;
}

// Visible pairs of one head: a triangle (or trapezoid) where causal.
double visible_pairs(const Sizes& s, bool causal) {
  const auto queries = static_cast<double>(s.queries), keys = static_cast<double>(s.keys);
  if (!causal) return queries * keys;
  const double rows = std::min(queries, keys), widest = keys;  // the last `rows` queries see widest - rows + 1 ... widest keys
  return rows * (widest - rows + 1 + widest) / 2;
}

void expect_qkv(std::string_view op, const Type& q, const Type& k, const Type& v) {
  if (q.dtype != k.dtype || q.dtype != v.dtype)
    fail("{} needs one dtype, given q {}, k {} and v {}: cast them", op, q.str(), k.str(), v.str());
  if (!holds(kF32Bf16, q.dtype))
    fail("{} takes f32 or bf16, given q {}, k {} and v {}: cast them first", op, q.str(), k.str(), v.str());
  bool fits = q.shape.rank() == 4 && k.shape.rank() == 4 && k.shape == v.shape;
  fits = fits && q.shape[0] == k.shape[0] && q.shape[2] == k.shape[2] && q.shape[3] == k.shape[3];
  if (!fits)
    fail("{} needs q [batch, queries, heads, width] and k, v [batch, keys, heads, width], given q {}, k {}, v {}", op, q.str(),
         k.str(), v.str());
}

// One head of one batch item of a [B, T, H, D] array.
struct Head {
  const double* data;
  int64_t stride;
  const double* row(int64_t t) const { return data + t * stride; }
};

Head head_of(const RefArray& a, int64_t b, int64_t h) {
  const Shape& s = a.type.shape;
  return {a.data.data() + (b * s[1] * s[2] + h) * s[3], s[2] * s[3]};
}
double* row_of(RefArray& a, int64_t b, int64_t t, int64_t h) {
  const Shape& s = a.type.shape;
  return a.data.data() + ((b * s[1] + t) * s[2] + h) * s[3];
}

double rounded(DType dtype, double x) {
  if (dtype == DType::f32 || std::isnan(x)) return x;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return static_cast<double>(std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u));
}

double dot(const double* x, const double* y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}
void add_scaled(double* to, double factor, const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

template <class F>
void for_each_row(const Sizes& s, F&& body) {
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t t = 0; t < s.queries; ++t) body(b, h, t, static_cast<size_t>((b * s.heads + h) * s.queries + t));
}

/// What attention_masked adds.
class Masking {
 public:
  Masking(const Sizes& s, Arrays in, const Attrs& attrs, bool masked) : sizes_(s), mask_(masked ? &in[3] : nullptr) {
    if (!masked || attrs.number("dropout") == 0) return;
    factor_ = 1 / (1 - attrs.number("dropout"));
    threshold_ = keep_threshold(attrs.number("dropout"));
    key0_ = static_cast<uint32_t>(in[4].data[0]), key1_ = static_cast<uint32_t>(in[5].data[0]);
    drops_ = true;
    first_ = static_cast<size_t>(attrs.integer("first_row") * s.heads * s.queries * s.keys);
  }
  bool sees(size_t row, int64_t j) const { return mask_ == nullptr || mask_->data[position(row, j)] != 0; }
  /// Of a weight: 0 where it is dropped.
  double factor(size_t row, int64_t j) const {
    if (!drops_) return 1;
    return philox_word0(first_ + position(row, j), 0, key0_, key1_) < threshold_ ? factor_ : 0;
  }

 private:
  size_t position(size_t row, int64_t j) const { return row * static_cast<size_t>(sizes_.keys) + static_cast<size_t>(j); }
  Sizes sizes_;
  const RefArray* mask_;
  bool drops_ = false;
  size_t first_ = 0;  // of the words, where the batch is a part of one
  double factor_ = 1;
  uint32_t threshold_ = 0, key0_ = 0, key1_ = 0;
};

template <bool kMasked>
void forward_reference(Arrays in, const Attrs& attrs, std::span<RefArray> out) {
  const Sizes s = sizes_of(in[0].type.shape, in[1].type.shape);
  const double scale = attrs.number("scale");
  const Masking masking(s, in, attrs, kMasked);
  for_each_row(s, [&](int64_t b, int64_t h, int64_t t, size_t row) {
    const int64_t keys = visible(s, attrs.flag("causal"), t);
    bool any = false;
    for (int64_t j = 0; j < keys; ++j) any = any || masking.sees(row, j);
    if (!any) return;  // results start as zeros
    const Head q = head_of(in[0], b, h), k = head_of(in[1], b, h), v = head_of(in[2], b, h);
    std::vector<double> weight(static_cast<size_t>(keys));
    for (int64_t j = 0; j < keys; ++j)
      weight[static_cast<size_t>(j)] = masking.sees(row, j) ? dot(q.row(t), k.row(j), s.width) * scale : -HUGE_VAL;
    double high = -HUGE_VAL, sum = 0;
    for (double w : weight) high = std::isnan(high) || high > w ? high : w;
    for (double& w : weight) sum += w = std::exp(w - high);
    for (int64_t j = 0; j < keys; ++j) {
      const double w = weight[static_cast<size_t>(j)] / sum * masking.factor(row, j);
      add_scaled(row_of(out[0], b, t, h), rounded(in[0].type.dtype, w), v.row(j), s.width);
    }
    out[1].data[row] = high;
    out[2].data[row] = sum;
  });
}

// With p the weights (of no dropout: else see above), g the gradient of the output: grad_v = p g; grad_score = p (g.v - sum_j p_j g.v_j).
template <bool kMasked>
void backward_reference(Arrays in, const Attrs& attrs, std::span<RefArray> out) {
  const Sizes s = sizes_of(in[0].type.shape, in[1].type.shape);
  const double scale = attrs.number("scale");
  const DType dtype = in[0].type.dtype;
  const Masking masking(s, in, attrs, kMasked);
  constexpr size_t kRowMax = kMasked ? 6 : 3, kRowSum = kRowMax + 1;
  RefArray grad_out = in[kRowSum + 1];
  for (double& x : grad_out.data) x = rounded(dtype, x);
  for_each_row(s, [&](int64_t b, int64_t h, int64_t t, size_t row) {
    const int64_t keys = visible(s, attrs.flag("causal"), t);
    const Head q = head_of(in[0], b, h), k = head_of(in[1], b, h), v = head_of(in[2], b, h), g = head_of(grad_out, b, h);
    if (in[kRowSum].data[row] == 0) return;  // no key is seen
    std::vector<double> p(static_cast<size_t>(keys)), grad_p(static_cast<size_t>(keys));
    double mean = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const auto i = static_cast<size_t>(j);
      if (!masking.sees(row, j)) continue;  // zeros
      p[i] = std::exp(dot(q.row(t), k.row(j), s.width) * scale - in[kRowMax].data[row]) / in[kRowSum].data[row];
      grad_p[i] = dot(g.row(t), v.row(j), s.width) * masking.factor(row, j);
      mean += p[i] * grad_p[i];
    }
    for (int64_t j = 0; j < keys; ++j) {
      const auto i = static_cast<size_t>(j);
      const double grad_score = rounded(dtype, p[i] * (grad_p[i] - mean) * scale);
      add_scaled(row_of(out[0], b, t, h), grad_score, k.row(j), s.width);
      add_scaled(row_of(out[1], b, j, h), grad_score, q.row(t), s.width);
      add_scaled(row_of(out[2], b, j, h), rounded(dtype, p[i] * masking.factor(row, j)), g.row(t), s.width);
    }
  });
}

Cost attention_cost(Types in, Types out, const Attrs& attrs, double products, double softmax_flops) {
  const Sizes s = sizes_of(in[0].shape, in[1].shape);
  const double pairs = visible_pairs(s, attrs.flag("causal")) * static_cast<double>(s.batch * s.heads);
  Cost c = streaming_cost(in, out, 0);
  c.flops = pairs * (2 * products * static_cast<double>(s.width) + softmax_flops);
  return c;
}

template <bool kMasked>
std::vector<AttrSpec> attr_specs() {
  std::vector<AttrSpec> specs = {{"causal", AttrSpec::Kind::flag}, {"scale", AttrSpec::Kind::number}};
  if (kMasked) specs.insert(specs.end(), {{"dropout", AttrSpec::Kind::number}, {"first_row", AttrSpec::Kind::integer}});
  return specs;
}

void expect_masking(std::string_view op, Types in, const Attrs& attrs) {
  const Shape &q = in[0].shape, &k = in[1].shape;
  const Type mask{DType::boolean, Shape{q[0], q[2], q[1], k[1]}}, key{DType::u32, Shape{}};
  if (in[3] != mask || in[4] != key || in[5] != key)
    fail("{} needs a mask {} and two key words {}, given {}, {} and {}", op, mask.str(), key.str(), in[3].str(), in[4].str(),
         in[5].str());
  if (attrs.integer("first_row") < 0) fail("{}: first_row is {}, but must be at least 0", op, attrs.integer("first_row"));
  if (const double p = attrs.number("dropout"); !(p >= 0 && p <= 1)) fail("{}: dropout is {}, but must lie in [0, 1]", op, p);
}

Type row_type(Types in) {
  const Shape& q = in[0].shape;
  return {DType::f32, Shape{q[0], q[2], q[1]}};
}

template <bool kMasked>
std::vector<Type> infer_forward(Types in, const Attrs& attrs) {
  expect_qkv(kMasked ? "attention_masked" : "attention", in[0], in[1], in[2]);
  if (kMasked) expect_masking("attention_masked", in, attrs);
  return {in[0], row_type(in), row_type(in)};
}

template <bool kMasked>
std::vector<Type> infer_backward(Types in, const Attrs& attrs) {
  const std::string_view op = kMasked ? "attention_masked_grad" : "attention_grad";
  expect_qkv(op, in[0], in[1], in[2]);
  if (kMasked) expect_masking(op, in, attrs);
  const Type rows = row_type(in), wide{DType::f32, in[0].shape}, wide_keys{DType::f32, in[1].shape};
  const Types rest = in.subspan(kMasked ? 6 : 3);
  if (rest[0] != rows || rest[1] != rows || (rest[2] != in[0] && rest[2] != wide))
    fail("{} needs row_max and row_sum {} and grad_out {} or {}, given {}, {} and {}", op, rows.str(), in[0].str(), wide.str(),
         rest[0].str(), rest[1].str(), rest[2].str());
  return {wide, wide_keys, wide_keys};
}

template <bool kMasked>
Grads gradients(Builder& b, const OpDef::VjpArgs& a) {
  if (a.grad_results[1] || a.grad_results[2])
    fail("attention: row_max and row_sum have no gradient, only the output does: stop_gradient them");
  Grads grads(a.inputs.size());
  if (!a.grad_results[0]) return grads;
  Value grad = a.grad_results[0];
  if (b.type_of(a.inputs[0]).dtype == DType::f32) grad = b.cast(grad, DType::f32);
  std::vector<Value> in(a.inputs.begin(), a.inputs.end());
  in.insert(in.end(), {a.results[1], a.results[2], grad});
  const std::vector<Value> found = b.apply(kMasked ? attention_masked_grad_op() : attention_grad_op(), in, a.attrs);
  std::copy(found.begin(), found.end(), grads.begin());
  return grads;
}

template <bool kMasked>
OpDef forward_op(std::string_view name) {
  return {
      .name = name,
      .arity = kMasked ? 6 : 3,
      .num_results = 3,
      .traits = kExpensive | kWideGradient | kRowsApart,
      .lowering = Lowering::kAttention,
      .attrs = attr_specs<kMasked>(),
      .infer = infer_forward<kMasked>,
      .vjp = gradients<kMasked>,
      .cost = [](Types in, Types out, const Attrs& attrs) { return attention_cost(in, out, attrs, 2, kMasked ? 130 : 24); },
      .reference = forward_reference<kMasked>,
      .emit = {},
      .domain = {TestDomain{}},
  };
}

template <bool kMasked>
OpDef backward_op(std::string_view name) {
  return {
      .name = name,
      .arity = kMasked ? 9 : 6,
      .num_results = 3,
      .traits = kExpensive | kRowsApart,
      .lowering = Lowering::kAttentionGrad,
      .attrs = attr_specs<kMasked>(),
      .infer = infer_backward<kMasked>,
      .vjp = not_differentiable,
      .cost = [](Types in, Types out, const Attrs& attrs) { return attention_cost(in, out, attrs, 5, kMasked ? 140 : 28); },
      .reference = backward_reference<kMasked>,
      .emit = {},
      .domain = {TestDomain{.gradient_check = false}},
  };
}

}  // namespace

const OpDef& attention_op() {
  static const OpDef def = forward_op<false>("attention");
  return def;
}
const OpDef& attention_grad_op() {
  static const OpDef def = backward_op<false>("attention_grad");
  return def;
}
const OpDef& attention_masked_op() {
  static const OpDef def = forward_op<true>("attention_masked");
  return def;
}
const OpDef& attention_masked_grad_op() {
  static const OpDef def = backward_op<true>("attention_masked_grad");
  return def;
}

}  // namespace ws::ops
