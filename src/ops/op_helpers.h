// Helpers to define ops: with them an elementwise op is about fifteen lines. Used only by the files of ops/.
#pragma once
#include <array>
#include <cmath>
#include <string>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "support/error.h"

namespace ws::ops {

using S = ScalarBuilder::S;
using Types = std::span<const Type>;
using Arrays = std::span<const RefArray>;
using Grads = std::vector<Value>;

/// Sets of dtypes, as bits.
using DTypeSet = uint32_t;
constexpr DTypeSet bit(DType d) { return 1u << static_cast<uint32_t>(d); }
constexpr DTypeSet kF32Bf16 = bit(DType::f32) | bit(DType::bf16);
constexpr DTypeSet kFloats = kF32Bf16 | bit(DType::f64);
constexpr DTypeSet kIntegers = bit(DType::i32) | bit(DType::u32);
constexpr DTypeSet kNumbers = kFloats | kIntegers;
constexpr DTypeSet kBool = bit(DType::boolean);
constexpr DTypeSet kAnyDType = kNumbers | kBool;
constexpr bool holds(DTypeSet set, DType d) { return (set & bit(d)) != 0; }

/// Errors that name the op, what it was given and what to do.
void expect_dtype(std::string_view op, const Type& type, DTypeSet accepted);
void expect_same_type(std::string_view op, const Type& a, const Type& b);

double num_elements(const Type& t);
/// Every input read once, every result written once.
Cost streaming_cost(Types inputs, Types results, double flops_per_result_element);

/// An elementwise op of one input. bf16 computes in f32.
struct Unary {
  std::string_view name;
  DTypeSet accepts = kF32Bf16;
  uint32_t traits = kNoTraits;
  double flops = 1;  // per element
  double (*reference)(double x);
  S (*emit)(ScalarBuilder& b, S x);
  Value (*vjp)(Builder& b, Value x, Value y, Value grad);  // or zero_gradient
  TestDomain domain = {};
  bool gives_bool = false;
};
OpDef unary(const Unary& u);

/// An elementwise op of two inputs of one type.
struct Binary {
  std::string_view name;
  DTypeSet accepts = kNumbers;
  uint32_t traits = kNoTraits;
  double flops = 1;
  double (*reference)(double a, double b);
  S (*emit)(ScalarBuilder& b, S x, S y);
  Value (*vjp_x)(Builder& b, Value x, Value y, Value result, Value grad);
  Value (*vjp_y)(Builder& b, Value x, Value y, Value result, Value grad);
  std::vector<TestDomain> domain = {TestDomain{}};
  bool gives_bool = false;
  uint32_t (*wrapping)(uint32_t a, uint32_t b) = nullptr;  // the reference of integers, where doubles cannot hold the result
};
OpDef binary(const Binary& u);

/// The gradient is zero everywhere: said by "no gradient", so that nothing is computed.
inline Value zero_gradient(Builder&, Value, Value, Value) { return {}; }
inline Value zero_gradient(Builder&, Value, Value, Value, Value) { return {}; }

/// c[0] + x*(c[1] + x*(c[2] + ...)), one fma per step.
S horner(ScalarBuilder& b, S x, std::initializer_list<double> c);
inline S f32(ScalarBuilder& b, double value) { return b.constant(DType::f32, value); }
inline S i32(ScalarBuilder& b, double value) { return b.constant(DType::i32, value); }
/// A constant of the computing dtype of x.
inline S like(ScalarBuilder& b, S x, double value) { return b.constant(x.dtype, value); }

/// Row-major positions, for references and shape rules.
using Index = std::array<int64_t, kMaxRank>;
Index unravel(int64_t linear, const Shape& shape);
int64_t ravel(const Index& index, const Shape& shape);
inline std::vector<int64_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
/// Product of dims [first, last).
int64_t product(const Shape& shape, int first, int last);
/// Fills result.data[i] = f(i).
template <class F>
void fill(RefArray& result, F&& f) {
  for (size_t i = 0; i < result.data.size(); ++i) result.data[i] = f(static_cast<int64_t>(i));
}

}  // namespace ws::ops
