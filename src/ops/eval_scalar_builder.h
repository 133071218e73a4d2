// EvalScalarBuilder: runs an `emit` on numbers at once, in plain C++: the definition that other implementations are compared
// with, and the reference backend's arithmetic. f32 is computed in f32, one rounding an operation. Denormals, in and out, become
// signed zeros, as inside a step (comparisons see them as zeros too).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ir/scalar_builder.h"
#include "support/error.h"

namespace ws::ops {

class EvalScalarBuilder final : public ScalarBuilder {
 public:
  /// Element position that index() and linear_index_*() answer.
  std::vector<int64_t> position;
  uint64_t linear_position = 0;

  /// Forgets all values.
  void clear() { values_.clear(); }
  /// A value from a double (integers and booleans exact; floats rounded to their dtype), as a load would give it.
  S load(DType dtype, double value) {
    if (dtype == DType::bf16) return f(rounded_to_bf16(static_cast<float>(value)));
    return constant(dtype, value);
  }
  S load_bits(uint32_t bits) { return f(std::bit_cast<float>(bits)); }
  double value(S s) const {
    const uint64_t v = values_[static_cast<size_t>(s.id)];
    switch (s.dtype) {
      case DType::f32:
      case DType::bf16: return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(v)));
      case DType::f64: return std::bit_cast<double>(v);
      case DType::i32: return static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(v)));
      case DType::u32:
      case DType::boolean: return static_cast<double>(static_cast<uint32_t>(v));
    }
    return 0;
  }
  /// The low 32 bits as held.
  uint32_t bits(S s) const { return static_cast<uint32_t>(values_[static_cast<size_t>(s.id)]); }
  size_t num_operations() const { return values_.size(); }

  /// Nearest even, NaN stays NaN; the host conversion (denormals kept).
  static float rounded_to_bf16(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    if (std::isnan(x)) return std::bit_cast<float>((u | 0x00400000u) & 0xffff0000u);
    return std::bit_cast<float>((u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u);
  }

  S constant(DType dtype, double v) override {
    switch (dtype) {
      case DType::f32:
      case DType::bf16: return f(static_cast<float>(v));
      case DType::f64: return d(v);
      case DType::i32: return i(static_cast<uint32_t>(static_cast<int32_t>(v)), DType::i32);
      case DType::u32: return i(static_cast<uint32_t>(v), DType::u32);
      case DType::boolean: return flag(v != 0);
    }
    return {};
  }
  S bits_f32(uint32_t bits) override { return load_bits(bits); }

  S add(S a, S b) override {
    return arithmetic(a, b, [](auto x, auto y) { return x + y; });
  }
  S sub(S a, S b) override {
    return arithmetic(a, b, [](auto x, auto y) { return x - y; });
  }
  S mul(S a, S b) override {
    return arithmetic(a, b, [](auto x, auto y) { return x * y; });
  }
  S neg(S a) override {
    if (is_floating(a.dtype)) return a.dtype == DType::f64 ? d(-as_f64(a)) : f(-as_f32(a));
    return i(0u - bits(a), a.dtype);
  }
  S div(S a, S b) override {
    return floating(a, b, [](auto x, auto y) { return x / y; });
  }
  S fma(S a, S b, S c) override {
    expect(a.dtype == b.dtype && a.dtype == c.dtype);
    return a.dtype == DType::f64 ? flushed(std::fma(in64(a), in64(b), in64(c))) : flushed(std::fma(in32(a), in32(b), in32(c)));
  }
  S sqrt(S a) override { return a.dtype == DType::f64 ? flushed(std::sqrt(in64(a))) : flushed(std::sqrt(in32(a))); }
  S abs(S a) override { return a.dtype == DType::f64 ? d(std::fabs(as_f64(a))) : f(std::fabs(as_f32(a))); }
  S copysign(S a, S b) override {
    return a.dtype == DType::f64 ? d(std::copysign(as_f64(a), as_f64(b))) : f(std::copysign(as_f32(a), as_f32(b)));
  }
  S round_even(S a) override { return a.dtype == DType::f64 ? d(std::nearbyint(in64(a))) : f(std::nearbyint(in32(a))); }
  S floor(S a) override { return a.dtype == DType::f64 ? d(std::floor(in64(a))) : f(std::floor(in32(a))); }

  S bit_and(S a, S b) override { return i(integer(a) & integer(b), a.dtype); }
  S bit_or(S a, S b) override { return i(integer(a) | integer(b), a.dtype); }
  S bit_xor(S a, S b) override { return i(integer(a) ^ integer(b), a.dtype); }
  S shift_left(S a, int count) override { return i(integer(a) << count, a.dtype); }
  S shift_right(S a, int count) override {
    return i(a.dtype == DType::i32 ? static_cast<uint32_t>(static_cast<int32_t>(integer(a)) >> count) : integer(a) >> count,
             a.dtype);
  }
  S mul_high_u32(S a, S b) override {
    return i(static_cast<uint32_t>(static_cast<uint64_t>(integer(a)) * integer(b) >> 32), DType::u32);
  }

  S eq(S a, S b) override {
    return compare(a, b, [](auto x, auto y) { return x == y; });
  }
  S ne(S a, S b) override {
    return compare(a, b, [](auto x, auto y) { return x != y; });
  }
  S lt(S a, S b) override {
    return compare(a, b, [](auto x, auto y) { return x < y; });
  }
  S le(S a, S b) override {
    return compare(a, b, [](auto x, auto y) { return x <= y; });
  }
  S logical_and(S a, S b) override { return flag((truth(a) & truth(b)) != 0); }
  S logical_or(S a, S b) override { return flag((truth(a) | truth(b)) != 0); }
  S logical_not(S a) override { return flag(truth(a) == 0); }
  S select(S condition, S if_true, S if_false) override {
    expect(if_true.dtype == if_false.dtype);
    return push(values_[static_cast<size_t>((truth(condition) != 0 ? if_true : if_false).id)], if_true.dtype);
  }

  S cast(S a, DType to) override {
    const double v = value(a);
    switch (to) {
      case DType::f32: return flushed(a.dtype == DType::f32 ? as_f32(a) : static_cast<float>(v));
      case DType::bf16: expect(a.dtype == DType::f32); return f(flush(rounded_to_bf16(in32(a))));
      case DType::f64: return d(a.dtype == DType::f32 ? static_cast<double>(in32(a)) : v);
      case DType::i32:
        expect(!(std::fabs(v) > 2147483648.0));
        return i(std::isnan(v) ? 0x80000000u : static_cast<uint32_t>(static_cast<int64_t>(v)), to);
      case DType::u32:
        expect(!(std::fabs(v) > 4294967296.0));
        return i(std::isnan(v) ? 0x80000000u : static_cast<uint32_t>(static_cast<int64_t>(v)), to);
      case DType::boolean: return flag(is_floating(a.dtype) && a.dtype != DType::f64 ? in32(a) != 0 : v != 0);
    }
    return {};
  }
  S bitcast(S a, DType to) override {
    expect(a.dtype != DType::f64 && to != DType::f64 && a.dtype != DType::boolean && to != DType::boolean);
    return push(bits(a), to);
  }

  S index(int axis) override { return i(static_cast<uint32_t>(position[static_cast<size_t>(axis)]), DType::i32); }
  S linear_index_low() override { return i(static_cast<uint32_t>(linear_position), DType::u32); }
  S linear_index_high() override { return i(static_cast<uint32_t>(linear_position >> 32), DType::u32); }

 private:
  static void expect(bool condition) { WS_ASSERT(condition, "an emit mixes dtypes or leaves the range of a cast"); }
  static float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
  static double flush(double x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }

  S push(uint64_t v, DType dtype) {
    values_.push_back(v);
    return {static_cast<int>(values_.size()) - 1, dtype};
  }
  S f(float x) { return push(std::bit_cast<uint32_t>(x), DType::f32); }
  S d(double x) { return push(std::bit_cast<uint64_t>(x), DType::f64); }
  S i(uint32_t x, DType dtype) { return push(x, dtype); }
  S flag(bool x) { return push(x ? 1 : 0, DType::boolean); }
  S flushed(float x) { return f(flush(x)); }
  S flushed(double x) { return d(flush(x)); }

  float as_f32(S s) const {
    expect(s.dtype == DType::f32);
    return std::bit_cast<float>(bits(s));
  }
  double as_f64(S s) const {
    expect(s.dtype == DType::f64);
    return std::bit_cast<double>(values_[static_cast<size_t>(s.id)]);
  }
  float in32(S s) const { return flush(as_f32(s)); }
  double in64(S s) const { return flush(as_f64(s)); }
  uint32_t integer(S s) const {
    expect(s.dtype == DType::i32 || s.dtype == DType::u32);
    return bits(s);
  }
  uint32_t truth(S s) const {
    expect(s.dtype == DType::boolean);
    return bits(s);
  }
  template <class F>
  S floating(S a, S b, F op) {
    expect(a.dtype == b.dtype);
    return a.dtype == DType::f64 ? flushed(op(in64(a), in64(b))) : flushed(op(in32(a), in32(b)));
  }
  template <class F>
  S arithmetic(S a, S b, F op) {
    expect(a.dtype == b.dtype);
    return is_floating(a.dtype) ? floating(a, b, op) : i(op(integer(a), integer(b)), a.dtype);
  }
  template <class F>
  S compare(S a, S b, F op) {
    expect(a.dtype == b.dtype);
    switch (a.dtype) {
      case DType::f64: return flag(op(in64(a), in64(b)));
      case DType::f32:
      case DType::bf16: return flag(op(in32(a), in32(b)));
      case DType::i32: return flag(op(static_cast<int32_t>(integer(a)), static_cast<int32_t>(integer(b))));
      case DType::u32: return flag(op(integer(a), integer(b)));
      case DType::boolean: return flag(op(truth(a), truth(b)));
    }
    return {};
  }

  std::vector<uint64_t> values_;
};

}  // namespace ws::ops
