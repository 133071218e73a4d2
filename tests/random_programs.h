// Random well-typed programs, each a function of its seed alone: every elementwise op and view, concatenations, pads, reductions,
// products, rows by index, random bits and attention on values of all dtypes, used several times and returned in several ways, some with the
// gradient of one of them appended. Shapes come from what kernels treat differently: 0, 1, odd, just beside 8, 16, 512, 4096.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "autodiff/autodiff.h"
#include "ir/graph.h"
#include "support/bf16.h"
#include "support/error.h"

namespace ws::test {

using Bytes = std::vector<char>;

struct RandomProgram {
  Graph graph;
  std::vector<Bytes> inputs;
  bool smooth = false;  // of ordinary numbers and ops that make no jumps, so that a reference is near however it rounds
};

class ProgramMaker {
 public:
  explicit ProgramMaker(uint64_t seed) : rng_(seed * 0x9e3779b97f4a7c15u + 1), b_(graph_) {}

  RandomProgram make() {
    constexpr Kind kKinds[] = {Kind::kAnything, Kind::kAnything, Kind::kAnything, Kind::kAnything, Kind::kOneShape,
                               Kind::kOneShape, Kind::kLongRows, Kind::kLongRows, Kind::kProducts, Kind::kAttention};
    kind_ = kKinds[below(std::size(kKinds))];
    tame_ = below(3) != 0;
    smooth_ = tame_ && chance(3);
    odd_one_in_ = chance(3) ? 2 : 10;
    shape_ = kind_ == Kind::kLongRows ? Shape{1 + below(3), pick({16, 17, 100, 511, 513, 1000, 4095, 4096, 4097, 8200, 12289})}
                                      : some_shape();
    const int64_t num_inputs = 2 + below(3), num_steps = 3 + below(chance(4) ? 30 : 12);
    for (int64_t i = 0; i < num_inputs; ++i) keep(some_input());
    for (int64_t i = 0; i < num_steps; ++i) {
      if (chance(10)) b_.checkpoint = static_cast<int>(below(5)) - 2;  // to be computed again in the backward pass
      step();
    }
    b_.checkpoint = 0;
    choose_outputs();
    if (chance(3)) append_gradient();
    choose_donations();
    for (const GraphOutput& o : outputs_) graph_.add_output(o.value, o.name, o.donates_input);
    return {graph_, std::move(inputs_), smooth_};
  }

 private:
  enum class Kind { kAnything, kOneShape, kLongRows, kProducts, kAttention };
  using Ints = std::vector<int64_t>;
  static constexpr int64_t kMostElements = 40000;
  static constexpr double kMostMultiplications = 2e6;

  template <std::integral T>
  int64_t below(T n) {
    return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n));
  }
  bool chance(int64_t one_in) { return below(one_in) == 0; }
  int64_t pick(std::initializer_list<int64_t> from) { return from.begin()[below(from.size())]; }
  Type type(Value v) const { return graph_.type_of(v); }
  Shape shape(Value v) const { return graph_.type_of(v).shape; }
  static Ints dims(const Shape& s) { return {s.begin(), s.end()}; }
  static size_t at(int64_t i) { return static_cast<size_t>(i); }

  // ---- Shapes, inputs, operands.
  int64_t some_dim() {
    if (kind_ == Kind::kProducts && chance(12)) return pick({255, 256, 511, 512, 513, 600, 1030});
    return chance(12) ? below(2) : pick({1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 70, 130});
  }
  Shape some_shape() {
    for (;;) {
      Ints d(at(pick({0, 1, 2, 2, 2, 3, 3, 4})));
      for (int64_t& dim : d) dim = some_dim();
      if (d.size() > 1 && chance(4)) d[d.size() - 2] = d.back();
      if (Shape(d).num_elements() <= 6000) return Shape(d);
    }
  }
  Shape likely_shape() {
    if (kind_ == Kind::kAnything && chance(2)) return some_shape();
    Ints d = dims(shape_);
    if (chance(3)) d.erase(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(below(d.size() + 1)));  // a bias
    for (int64_t& dim : d)
      if (chance(8)) dim = 1;
    return Shape(d);
  }
  Value some_input() {
    const int64_t k = below(20);
    const DType dtype = k < 12   ? DType::f32
                        : k < 15 ? DType::bf16
                        : k < 16 ? DType::boolean
                        : k < 17 ? DType::i32
                        : k < 18 ? DType::u32
                        : k < 19 ? DType::f64
                                 : DType::f32;
    return input({dtype, likely_shape()}, 3);
  }
  /// Integers are drawn from [0, limit).
  Value input(const Type& t, int64_t limit) {
    const Value v = graph_.add_input("x" + std::to_string(graph_.inputs().size()), t);
    Bytes bytes(at(t.num_bytes()));
    const double scale = !smooth_ && chance(4) ? 30 : 2;
    for (int64_t i = 0; i < t.shape.num_elements(); ++i) {
      char* to = bytes.data() + i * static_cast<int64_t>(size_of(t.dtype));
      const double x = number(scale);
      const auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
      switch (t.dtype) {
        case DType::f32: put(static_cast<float>(x)); break;
        case DType::bf16: put(narrow(static_cast<float>(x)).bits); break;
        case DType::f64: put(x); break;
        case DType::i32: put(static_cast<int32_t>(below(limit))); break;
        case DType::u32: put(static_cast<uint32_t>(rng_())); break;
        case DType::boolean: put(static_cast<uint8_t>(below(2))); break;
      }
    }
    inputs_.push_back(std::move(bytes));
    return v;
  }
  double number(double scale) {
    if (!tame_ && chance(odd_one_in_)) {
      constexpr double kOdd[] = {0.0,       -0.0, 1e-40, -1e-40, 5e-39,  -1.1754944e-38, 1.18e-38, HUGE_VAL,
                                 -HUGE_VAL, NAN,  1e30,  -3e38,  3.4e38, 1e-30,          -1e-20,   1.0,
                                 -1.0,      0.5,  1e-45, -2e-39, 88.8,   -104,           16777217};
      return kOdd[below(odd_one_in_ == 2 ? 6 : std::size(kOdd))];  // many: zeros and denormals
    }
    if (chance(20)) return static_cast<double>(below(5)) - 2;
    return scale * (static_cast<double>(rng_() >> 11) / 0x1p52 - 1);
  }

  Value keep(Value v) {
    if (shape(v).num_elements() <= kMostElements && shape(v).rank() <= 6) pool_.push_back(v);
    return v;
  }
  /// Of the pool, late ones more often; Value{} where none is.
  template <class Condition>
  Value find(const Condition& condition) {
    for (int tries = 0; tries < 12; ++tries) {
      const Value v = pool_[at(std::max(below(pool_.size()), below(pool_.size())))];
      if (condition(type(v))) return v;
    }
    return {};
  }
  Value any() {
    return find([](const Type&) { return true; });
  }
  template <class Condition>
  Value find_or_input(const Condition& condition, const Type& otherwise) {
    const Value v = find(condition);
    return v ? v : keep(input(otherwise, 3));
  }
  static bool is_f32_or_bf16(const Type& t) { return t.dtype == DType::f32 || t.dtype == DType::bf16; }
  Value some_float() { return find_or_input(is_f32_or_bf16, {DType::f32, shape_}); }
  Value as_f32(Value v) { return b_.cast(v, DType::f32); }
  static bool broadcasts_to(const Shape& from, const Shape& to) {
    if (from.rank() > to.rank()) return false;
    for (int i = 1; i <= from.rank(); ++i)
      if (from[-i] != to[-i] && from[-i] != 1) return false;
    return true;
  }
  /// An operand beside x: its dtype, and a shape that broadcasts to that of x.
  Value beside(Value x) {
    const Type t = type(x);
    if (chance(12)) {
      const Value y = one_view(x);
      if (broadcasts_to(shape(y), t.shape)) return y;
    }
    if (chance(8) && is_floating(t.dtype)) return b_.constant(t.dtype, chance(2) ? number(3) : 0.5);
    const Value y = find([&](const Type& o) { return o.dtype == t.dtype && broadcasts_to(o.shape, t.shape); });
    if (y && !chance(10)) return y;
    if (t.dtype == DType::f32 || t.dtype == DType::bf16) {
      const Value z = find([&](const Type& o) { return is_f32_or_bf16(o) && broadcasts_to(o.shape, t.shape); });
      return b_.cast(z ? z : x, t.dtype);
    }
    return x;
  }
  Value condition_for(Value x) {
    const Shape s = shape(x);
    const Value c = find([&](const Type& o) { return o.dtype == DType::boolean && broadcasts_to(o.shape, s); });
    if (c) return c;
    const Value y = find([&](const Type& o) { return o.dtype != DType::boolean && broadcasts_to(o.shape, s); });
    return y ? b_.binary(chance(2) ? "lt" : "le", y, beside(y)) : b_.constant(DType::boolean, 1);
  }

  // ---- Steps.
  void step() {
    const int64_t k = below(100);
    const bool products = kind_ == Kind::kProducts, attends = kind_ == Kind::kAttention;
    if (products && k < 30) return matmul();
    if (attends && k < 25) return attention();
    if (k < 22) return unary();
    if (k < 42) return binary();
    if (k < 46) return smooth_ ? binary() : select();
    if (k < 52) return cast();
    if (k < 70 && kind_ != Kind::kOneShape) return view();
    if (k < 74 && kind_ != Kind::kOneShape) return join();
    if (k < 82) return reduce();
    if (k < 89) return whole_row();
    if (k < 92) return matmul();
    if (k < 96) return rows_by_index();
    if (k < 97) return attention();
    if (k < 99) return indexed();
    return check();
  }

  static bool is_smooth(std::string_view name) {
    constexpr std::string_view kSmooth[] = {"neg", "tanh", "sigmoid", "erf", "swap_pairs", "stop_gradient", "add", "sub", "mul"};
    return std::find(std::begin(kSmooth), std::end(kSmooth), name) != std::end(kSmooth);
  }
  bool accepts(const OpDef& op, std::initializer_list<Type> inputs) const {
    try {
      op.infer(std::span(inputs.begin(), inputs.size()), {});
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  /// Ops without attributes on inputs of one type.
  const OpDef& elementwise(int arity, const Type& t) {
    for (;;) {
      const OpDef& op = *all_ops()[at(below(all_ops().size()))];
      if (op.lowering != Lowering::kElementwise || op.arity != arity || !op.attrs.empty()) continue;
      if (smooth_ && is_floating(t.dtype) && !is_smooth(op.name)) continue;
      if (arity == 1 ? accepts(op, {t}) : accepts(op, {t, t})) return op;
    }
  }
  void unary() {
    Value v = any();
    for (int64_t n = 1 + below(3); n-- > 0;) v = b_.op(elementwise(1, type(v)).name, {v});
    keep(v);
  }
  void binary() {
    const Value x = any(), y = beside(x);
    const bool swap = chance(2);
    keep(b_.binary(elementwise(2, type(x)).name, swap ? y : x, swap ? x : y));
  }
  void select() {
    const Value x = any(), y = beside(x), c = condition_for(x);
    keep(chance(2) ? b_.select(c, x, y) : b_.select(c, y, x));
  }
  void cast() {
    const Value x = any();
    constexpr DType kTo[] = {DType::f32, DType::bf16, DType::bf16, DType::f32, DType::f64, DType::boolean, DType::i32};
    const DType from = type(x).dtype, to = kTo[below(std::size(kTo))];
    if (smooth_ && is_floating(from) && !is_floating(to)) return;
    if (from == DType::u32 && to == DType::i32) return;
    if (is_floating(from) && !is_floating(to) && to != DType::boolean) {  // what is out of range is for the caller to avoid
      const Value low = b_.constant(from, -1000), high = b_.constant(from, 1000);
      const Value inside = b_.binary("minimum", b_.binary("maximum", x, low), high);
      keep(b_.cast(b_.select(b_.op("is_finite", {inside}), inside, low), to));
    } else if (from == DType::f32 && to == DType::f32) {
      keep(b_.cast(b_.cast(x, DType::bf16), DType::f32));
    } else {
      keep(b_.cast(x, to));
    }
  }

  void view() {
    Value x = any();
    for (int64_t n = 1 + below(2); n-- > 0;) x = one_view(x);
    keep(x);
  }
  Value one_view(Value x) {
    switch (below(8)) {
      case 0:
      case 1: return b_.reshape(x, reshaped(shape(x)));
      case 2:
      case 3: {
        Ints order(at(shape(x).rank()));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
        if (order.size() > 1 && chance(2))
          std::swap(order[order.size() - 1], order[order.size() - 2]);
        else
          std::shuffle(order.begin(), order.end(), rng_);
        return b_.transpose(x, order);
      }
      case 4: return broadcast(x);
      case 5: return slice(x);
      case 6: return slice(x);
      default: return pad(x);
    }
  }
  Shape reshaped(const Shape& from) {
    Ints d = dims(from);
    if (d.size() > 1 && chance(2)) {  // two neighbours become one
      const auto i = static_cast<std::ptrdiff_t>(below(d.size() - 1));
      d[at(i + 1)] *= d[at(i)];
      d.erase(d.begin() + i);
    }
    if (!d.empty() && chance(2)) {  // one becomes two
      const auto i = static_cast<std::ptrdiff_t>(below(d.size()));
      for (int64_t f : {4, 2, 3, 5, 16})
        if (d[at(i)] > 0 && d[at(i)] % f == 0 && d.size() < 5 && chance(2)) {
          d[at(i)] /= f;
          d.insert(d.begin() + i + below(2), f);
          break;
        }
    }
    if (chance(3) && d.size() < 5) d.insert(d.begin() + static_cast<std::ptrdiff_t>(below(d.size() + 1)), 1);
    if (chance(6)) d = {from.num_elements()};
    return Shape(d);
  }
  Value broadcast(Value x) {
    Ints d = dims(shape(x));
    for (int64_t& dim : d)
      if (dim == 1 && chance(2)) dim = some_dim();
    if (chance(2) && d.size() < 5) d.insert(d.begin(), 1 + below(4));
    return Shape(d).num_elements() <= kMostElements ? b_.broadcast_to(x, Shape(d)) : x;
  }
  Value slice(Value x) {
    Ints starts, stops, steps;
    for (int64_t dim : shape(x)) {
      const bool whole = chance(2);
      const int64_t start = whole ? 0 : below(dim + 1), stop = whole ? dim : start + below(dim - start + 1);
      starts.push_back(start), stops.push_back(stop == start && !chance(10) ? (starts.back() = 0, dim) : stop);
      steps.push_back(chance(4) ? 1 + below(3) : 1);
    }
    return b_.op("slice", {x}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
  }
  Value pad(Value x) {
    Ints low, high, interior;
    for (int i = 0; i < shape(x).rank(); ++i) {
      low.push_back(chance(2) ? below(4) : 0), high.push_back(chance(2) ? below(4) : 0);
      interior.push_back(chance(6) ? below(3) : 0);
    }
    const Value y = b_.op("pad", {x}, {{"low", low}, {"high", high}, {"interior", interior}});
    return shape(y).num_elements() <= kMostElements ? y : x;
  }

  /// Concatenations, and pieces of one value that meet again.
  void join() {
    const Value x = any();
    const Shape s = shape(x);
    if (s.rank() == 0) return;
    const int64_t axis = below(s.rank());
    std::vector<Value> parts;
    Ints low(at(s.rank()), 0), high(at(s.rank()), 0), ones(at(s.rank()), 1);
    if (chance(2) && s[static_cast<int>(axis)] >= 2) {
      const int64_t size = s[static_cast<int>(axis)], cut = 1 + below(size - 1);
      const bool pads = is_floating(type(x).dtype) && chance(2);  // what the gradient of slices is
      for (int half = 0; half < 2; ++half) {
        Ints starts(low), stops = dims(s);
        (half == 0 ? stops : starts)[at(axis)] = cut;
        Value part = b_.op("slice", {x}, {{"starts", starts}, {"stops", stops}, {"steps", ones}});
        if (chance(2)) part = b_.op(elementwise(1, type(part)).name, {part});
        if (type(part).dtype != type(x).dtype) part = b_.cast(part, type(x).dtype);
        low[at(axis)] = half == 0 ? 0 : cut, high[at(axis)] = half == 0 ? size - cut : 0;
        if (pads) part = b_.op("pad", {part}, {{"low", low}, {"high", high}, {"interior", Ints(at(s.rank()), 0)}});
        parts.push_back(part);
      }
      if (pads) {
        keep(b_.add(parts[0], parts[1]));
        return;
      }
      if (chance(4)) std::swap(parts[0], parts[1]);
    } else {
      parts = {x};
      for (int64_t n = below(3); n-- > 0;) {
        const Value y = find([&](const Type& o) {
          bool fits = o.dtype == type(x).dtype && o.shape.rank() == s.rank();
          for (int i = 0; fits && i < s.rank(); ++i) fits = i == axis || o.shape[i] == s[i];
          return fits;
        });
        parts.push_back(y ? y : x);
      }
    }
    int64_t elements = 0;
    for (Value v : parts) elements += shape(v).num_elements();
    if (elements <= kMostElements) keep(b_.apply(*find_op("concatenate"), parts, {{"axis", axis}}).front());
  }

  Value summable() {
    const Value x = any();
    return type(x).dtype == DType::f64 ? x : as_f32(x);
  }
  void reduce() {
    const Value x = summable();
    const Shape s = shape(x);
    if (s.rank() == 0) return;
    const int64_t first = below(s.rank()), count = chance(3) ? 1 + below(s.rank() - first) : 1;
    const bool maximum = !smooth_ && chance(3) && s.num_elements() > 0;
    Value y = b_.op(maximum ? "reduce_max" : "reduce_sum", {x}, {{"first_axis", first}, {"num_axes", count}});
    if (chance(2)) {
      Ints d = dims(s);
      for (int64_t i = first; i < first + count; ++i) d[at(i)] = 1;
      y = b_.reshape(y, Shape(d));
      if (chance(2)) y = b_.binary(chance(2) ? "sub" : "mul", x, y);
    }
    keep(y);
  }
  /// Softmax, norms, and the like: several passes over each row.
  void whole_row() {
    const Value x = as_f32(some_float());
    const Shape s = shape(x);
    if (s.rank() == 0 || s.num_elements() == 0) return;
    const int64_t axis = chance(4) ? below(s.rank()) : s.rank() - 1;
    const auto scaled = [&](Value v) {
      return b_.mul(v, b_.constant(DType::f32, 1 / static_cast<double>(s[static_cast<int>(axis)])));
    };
    const Value high = b_.op("stop_gradient", {b_.reduce_max(x, {axis}, true)});
    Value y;
    if (chance(2)) {
      const Value e = b_.op("exp", {b_.sub(x, high)});
      y = b_.mul(e, b_.div(b_.constant(DType::f32, 1), b_.reduce_sum(e, {axis}, true)));
    } else {
      const Value centred = b_.sub(x, scaled(b_.reduce_sum(x, {axis}, true)));
      const Value variance = scaled(b_.reduce_sum(b_.op("square", {centred}), {axis}, true));
      y = b_.mul(centred, b_.op("rsqrt", {b_.add(variance, b_.constant(DType::f32, 1e-5))}));
    }
    if (chance(2)) y = b_.binary("mul", y, beside(y));
    if (chance(3)) y = b_.cast(y, DType::bf16);
    keep(y);
  }

  void matmul() {
    Value a = some_float();
    if (shape(a).rank() < 2) a = b_.reshape(a, chance(2) ? Shape{1, shape(a).num_elements()} : Shape{shape(a).num_elements(), 1});
    if (shape(a).rank() > 4) return;
    const Shape s = shape(a);
    const bool ta = chance(3), tb = chance(2), batched = s.rank() > 2 && chance(2);
    const int64_t k = ta ? s[-2] : s[-1], m = ta ? s[-1] : s[-2];
    const int64_t leading = m * k == 0 ? 1 : s.num_elements() / (m * k);
    const auto fits = [&](const Type& t) {
      if (t.dtype != type(a).dtype || t.shape.rank() != (batched ? s.rank() : 2)) return false;
      for (int i = 0; batched && i < s.rank() - 2; ++i)
        if (t.shape[i] != s[i]) return false;
      const int64_t n = t.shape[tb ? -2 : -1];
      return t.shape[tb ? -1 : -2] == k && static_cast<double>(leading * m) * static_cast<double>(k * n) < kMostMultiplications;
    };
    Value b = find(fits);
    if (!b) {
      const int64_t most =
          std::max<int64_t>(1, static_cast<int64_t>(kMostMultiplications / (1 + static_cast<double>(leading * m * k))));
      const int64_t n = std::min(std::min(some_dim(), most), std::max<int64_t>(1, kMostElements / std::max<int64_t>(1, k)));
      Ints d = batched ? dims(s) : Ints{0, 0};
      d[d.size() - 2] = tb ? n : k, d[d.size() - 1] = tb ? k : n;
      if (Shape(d).num_elements() > kMostElements) return;
      b = keep(input({type(a).dtype, Shape(d)}, 3));
    }
    if (static_cast<double>(leading * m) * static_cast<double>(k * shape(b)[tb ? -2 : -1]) > kMostMultiplications) return;
    const bool rounds = type(a).dtype == DType::bf16 && chance(2);
    Attrs attrs{{"transpose_a", ta}, {"transpose_b", tb}, {"out_dtype", rounds ? DType::bf16 : DType::f32}};
    if (type(a).dtype == DType::f32 && chance(6)) attrs.set("precision", std::string(chance(2) ? "high" : "bf16"));
    Value c = keep(b_.op("matmul", {a, b}, attrs));
    while (chance(2))
      c = keep(chance(2) && is_floating(type(c).dtype) ? b_.binary("add", c, beside(c))
                                                       : b_.op(elementwise(1, type(c)).name, {c}));
    if (is_floating(type(c).dtype) && chance(4)) keep(b_.cast(c, DType::bf16));
  }

  void rows_by_index() {
    const Value table = some_float();
    if (shape(table).rank() == 0) return;
    const int64_t rows = shape(table)[0], width = shape(table).num_elements() / std::max<int64_t>(rows, 1);
    if (chance(3)) {  // updates of `table`'s rows
      if (rows * width > kMostElements) return;
      const int64_t to = 1 + below(12);
      const Value indices = input({DType::i32, Shape{rows}}, to);
      keep(b_.op("scatter_add", {indices, as_f32(table)}, {{"rows", to}}));
      return;
    }
    if (rows == 0) return;
    Ints d(at(below(3)));
    for (int64_t& dim : d) dim = some_dim();
    if (Shape(d).num_elements() * width > kMostElements) return;
    const Value indices = input({DType::i32, Shape(d)}, rows);
    keep(b_.op("gather", {table, indices}));
  }

  void indexed() {
    const Shape s = chance(2) ? shape(any()) : some_shape();
    if (chance(2) && s.rank() > 0) {
      constexpr DType kDTypes[] = {DType::i32, DType::f32, DType::u32, DType::bf16};
      keep(b_.op("iota", {}, {{"dtype", kDTypes[below(std::size(kDTypes))]}, {"shape", dims(s)}, {"axis", below(s.rank())}}));
      return;
    }
    const Value key = b_.broadcast_to(input({DType::u32, {}}, 3), s);
    const Value bits =
        b_.op("random_bits", {key, key}, {{"stream", below(5)}, {"offset", chance(4) ? (int64_t{1} << 32) - 7 : 0}});
    keep(chance(2) ? bits : b_.binary("lt", bits, b_.constant(DType::u32, 2e9)));
  }

  void check() {
    const Value x = find([](const Type& t) { return t.dtype == DType::i32; });
    if (x)
      keep(b_.op("check_range", {x}, {{"low", int64_t{-2147483648}}, {"high", int64_t{2147483648}}, {"what", std::string("x")}}));
  }

  void attention() {
    const int64_t batch = 1 + below(2), heads = 1 + below(3), width = pick({1, 2, 4, 8, 12, 16, 17, 32}),
                  queries = pick({1, 2, 5, 8, 16, 17, 33, 70, 130}),
                  keys = chance(2) ? queries : pick({0, 1, 3, 9, 16, 33, 80, 150});
    const DType dtype = chance(2) ? DType::f32 : DType::bf16;
    const Shape of_q{batch, queries, heads, width}, of_k{batch, keys, heads, width};
    const auto operand = [&](const Shape& s) {
      const Value like = find([&](const Type& t) { return is_f32_or_bf16(t) && t.shape.num_elements() == s.num_elements(); });
      if (like && chance(2)) return b_.cast(b_.reshape(like, s), dtype);
      if (!chance(4)) return keep(input({dtype, s}, 3));
      return b_.transpose(keep(input({dtype, Shape{s[0], s[2], s[1], s[3]}}, 3)), {0, 2, 1, 3});
    };
    const Value q = operand(of_q), k = operand(of_k), v = chance(8) ? k : operand(of_k);
    const bool causal = chance(2);
    const double scale = chance(2) ? 1 / std::sqrt(static_cast<double>(width)) : 0.3;
    std::vector<Value> results;
    if (chance(2)) {
      results = b_.apply(*find_op("attention"), std::vector<Value>{q, k, v}, {{"causal", causal}, {"scale", scale}});
    } else {
      const Shape of_mask{batch, heads, queries, keys};
      const Value mask = b_.broadcast_to(input({DType::boolean, chance(2) ? of_mask : Shape{batch, 1, 1, keys}}, 2), of_mask);
      const Value key0 = input({DType::u32, {}}, 3), key1 = input({DType::u32, {}}, 3);
      results = b_.apply(*find_op("attention_masked"), std::vector<Value>{q, k, v, mask, key0, key1},
                         {{"causal", causal}, {"scale", scale}, {"dropout", chance(2) ? 0.3 : 0.0}, {"first_row", below(3)}});
    }
    keep(results[0]);
    if (chance(3)) keep(b_.op("stop_gradient", {results[static_cast<size_t>(1 + below(2))]}));
    if (chance(3)) keep(b_.reshape(results[0], Shape{batch, queries, heads * width}));
  }

  // ---- What comes out.
  void choose_outputs() {
    for (int64_t n = 1 + below(5); n-- > 0;) output(any(), "y");
    std::vector<bool> used(at(graph_.num_values()));
    for (const Node& node : graph_.nodes())
      for (Value v : node.inputs) used[at(v.id)] = true;
    for (Value v : pool_)
      if (!used[at(v.id)] && graph_.producer_of(v) >= 0 && !chance(4)) output(v, "y");
  }
  void output(Value v, const char* name) { outputs_.push_back({v, name + std::to_string(outputs_.size())}); }

  void append_gradient() {
    const Value y = find([](const Type& t) { return is_floating(t.dtype); });
    if (!y) return;
    std::vector<Value> wanted;
    for (const GraphInput& in : graph_.inputs())
      if (is_f32_or_bf16(type(in.value)) && !chance(4)) wanted.push_back(in.value);
    const Value wide = type(y).dtype == DType::bf16 ? as_f32(y) : y;
    Value loss = wide;
    if (shape(wide).rank() > 0)
      loss = b_.op("reduce_sum", {wide}, {{"first_axis", int64_t{0}}, {"num_axes", int64_t{shape(wide).rank()}}});
    std::vector<TapeEntry> tape;
    for (const Node& node : graph_.nodes()) tape.push_back({node.op, node.attrs, node.inputs, node.results});
    for (Value g : backward(b_, tape, loss, wanted))
      if (g) output(g, "grad");
  }

  /// State: an output takes the place of an input of its type.
  void choose_donations() {
    if (chance(2)) return;
    std::vector<bool> given(graph_.inputs().size());
    for (GraphOutput& o : outputs_)
      for (size_t i = 0; i < given.size(); ++i)
        if (!given[i] && type(graph_.inputs()[i].value) == type(o.value) && chance(2)) {
          o.donates_input = static_cast<int>(i);
          given[i] = true;
          break;
        }
  }

  std::mt19937_64 rng_;
  Graph graph_;
  GraphBuilder b_;
  std::vector<Bytes> inputs_;
  std::vector<Value> pool_;
  std::vector<GraphOutput> outputs_;
  Kind kind_ = Kind::kAnything;
  Shape shape_;
  int64_t odd_one_in_ = 10;            // numbers that are not tame
  bool tame_ = true, smooth_ = false;  // ordinary numbers; see RandomProgram
};

inline RandomProgram random_program(uint64_t seed) { return ProgramMaker(seed).make(); }

}  // namespace ws::test
