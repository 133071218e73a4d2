// Each elementwise op's emit, run on numbers, against its reference in double: over its domain, and on special values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/eval_scalar_builder.h"
#include "ops_examples.h"

namespace ws {
namespace {

using ops::EvalScalarBuilder;

// As a result of this dtype would be stored: f32 with denormals as zeros.
double stored(DType dtype, double x) {
  if (dtype == DType::u32) return static_cast<double>(static_cast<uint32_t>(static_cast<int64_t>(x)));  // wraps
  if (dtype == DType::f64 || !is_floating(dtype)) return x;
  auto single = static_cast<float>(x);
  if (dtype == DType::bf16 && !std::isnan(single)) single = EvalScalarBuilder::rounded_to_bf16(single);
  return std::fpclassify(single) == FP_SUBNORMAL ? std::copysign(0.0, x) : static_cast<double>(single);
}

// Inputs are rounded to their dtype first, so that emit and reference see the same numbers.
std::vector<RefArray> rounded(std::vector<RefArray> inputs) {
  for (RefArray& a : inputs)
    for (double& x : a.data) x = stored(a.type.dtype, x);
  return inputs;
}

std::vector<double> run_emit(const OpDef& op, std::span<const RefArray> inputs, const Attrs& attrs, const Type& result) {
  EvalScalarBuilder b;
  std::vector<double> out;
  for (int64_t i = 0; i < result.shape.num_elements(); ++i) {
    b.clear();
    b.linear_position = static_cast<uint64_t>(i);
    b.position.assign(static_cast<size_t>(result.shape.rank()), 0);
    for (int64_t rest = i, axis = result.shape.rank() - 1; axis >= 0; --axis) {
      b.position[static_cast<size_t>(axis)] = rest % result.shape[static_cast<int>(axis)];
      rest /= result.shape[static_cast<int>(axis)];
    }
    std::vector<ScalarBuilder::S> in;
    for (const RefArray& a : inputs)
      in.push_back(b.load(a.type.dtype, a.data[static_cast<size_t>(op.has(kSwapsPairs) ? i ^ 1 : i)]));
    const ScalarBuilder::S y = op.emit(b, in, attrs);
    EXPECT_EQ(y.dtype, result.dtype == DType::bf16 ? DType::f32 : result.dtype) << op.name;
    out.push_back(stored(result.dtype, b.value(y)));
  }
  return out;
}

void expect_close(const OpDef& op, std::span<const RefArray> inputs, const Attrs& attrs, double relative, double absolute) {
  const std::vector<RefArray> want = test::run_reference(op, inputs, attrs);
  const std::vector<double> got = run_emit(op, inputs, attrs, want[0].type);
  for (size_t i = 0; i < got.size(); ++i) {
    std::string given;
    for (const RefArray& a : inputs) given += fmt::format(" {}", a.data[i]);
    const double w = is_floating(want[0].type.dtype) ? want[0].data[i] : stored(want[0].type.dtype, want[0].data[i]);
    if (std::isnan(w)) {
      EXPECT_TRUE(std::isnan(got[i])) << op.name << given;
    } else if (std::isinf(stored(want[0].type.dtype, w))) {
      EXPECT_EQ(got[i], stored(want[0].type.dtype, w)) << op.name << given;
    } else {
      EXPECT_NEAR(got[i], w, std::fabs(w) * relative + absolute) << op.name << given;
    }
  }
}

class EveryElementwiseOp : public testing::TestWithParam<const OpDef*> {};

std::vector<const OpDef*> elementwise_ops() {
  std::vector<const OpDef*> found;
  for (const OpDef* op : all_ops())
    if (op->lowering == Lowering::kElementwise) found.push_back(op);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Table, EveryElementwiseOp, testing::ValuesIn(elementwise_ops()), test::name_of);

TEST_P(EveryElementwiseOp, EmitMatchesReference) {
  const OpDef& op = *GetParam();
  for (const test::OpExample& example : test::examples_of(op))
    for (unsigned seed = 0; seed < 40; ++seed) {
      const DType dtype = op.infer(example.inputs, example.attrs)[0].dtype;
      const double relative = dtype == DType::f64 ? 1e-14 : dtype == DType::bf16 ? 0x1p-8 : op.domain[0].tolerance;
      expect_close(op, rounded(test::draw_inputs(op, example, seed)), example.attrs, relative,
                   dtype == DType::f64 ? 1e-300 : 1e-7);
    }
}

TEST_P(EveryElementwiseOp, Bf16ComputesInF32AndRoundsOnce) {
  const OpDef& op = *GetParam();
  const std::vector<Type> inputs(static_cast<size_t>(std::max(op.arity, 0)), Type{DType::bf16, {9}});
  if (op.arity == 0 || !op.attrs.empty() || !test::accepts(op, inputs, {}) || op.has(kSwapsPairs)) return;
  for (unsigned seed = 0; seed < 20; ++seed)
    expect_close(op, rounded(test::draw_inputs(op, {inputs}, seed)), {}, 0x1.01p-8,
                 1e-7);  // half a step of bf16, and the f32 error
}

// Every pair of special values. Where the reference in double has no answer of its own (results out of fp32's range), its rounding counts.
TEST_P(EveryElementwiseOp, SpecialValues) {
  const OpDef& op = *GetParam();
  const auto arity = static_cast<size_t>(std::max(op.arity, 0));
  const std::vector<Type> types(arity, Type{DType::f32, {}});
  if (arity == 0 || arity > 2 || !op.attrs.empty() || !test::accepts(op, types, {})) return;
  const double inf = HUGE_VAL, nan = std::nan(""), tiny = std::numeric_limits<float>::min(),
               huge = std::numeric_limits<float>::max();
  const std::vector<double> specials = {0.0,   -0.0, 1,     -1,    0.5,    -0.5, 2,     -3,   inf, -inf, nan,  tiny,
                                        -tiny, huge, -huge, 1e-30, -1e-30, 1e30, -1e30, 88.5, -87, 89,   -104, 1e5};
  const bool periodic = op.name == "sin" || op.name == "cos";
  std::vector<RefArray> inputs;
  for (size_t i = 0; i < arity; ++i) inputs.push_back({types[0], {0}});
  for (double x : specials)
    for (double y : specials) {
      if (periodic && std::fabs(x) > 1e5) continue;
      inputs[0].data[0] = stored(DType::f32, x);
      if (arity == 2) inputs[1].data[0] = stored(DType::f32, y);
      expect_close(op, inputs, {}, 2.5e-7, tiny);
      if (arity == 1) break;
    }
}

TEST_P(EveryElementwiseOp, NanInGivesNanOut) {
  const OpDef& op = *GetParam();
  const auto arity = static_cast<size_t>(std::max(op.arity, 0));
  const std::vector<Type> types(arity, Type{DType::f32, {}});
  if (arity == 0 || !op.attrs.empty() || !test::accepts(op, types, {}) || op.infer(types, {})[0].dtype != DType::f32) return;
  for (size_t at = 0; at < arity; ++at)
    for (uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu}) {
      EvalScalarBuilder b;
      std::vector<ScalarBuilder::S> in;
      for (size_t i = 0; i < arity; ++i) in.push_back(i == at ? b.load_bits(bits) : b.load(DType::f32, 1.5));
      EXPECT_TRUE(std::isnan(b.value(op.emit(b, in, {})))) << op.name << " " << std::hex << bits;
    }
}

// -0 and +0 by their sign bits, which comparisons do not see.
uint32_t bits_of(std::string_view name, std::vector<float> inputs) {
  EvalScalarBuilder b;
  std::vector<ScalarBuilder::S> in;
  for (float x : inputs) in.push_back(b.load(DType::f32, static_cast<double>(x)));
  return b.bits(find_op(name)->emit(b, in, {}));
}

TEST(ElementwiseOps, SignsOfZeros) {
  const uint32_t plus = 0, minus = 0x80000000u;
  EXPECT_EQ(bits_of("maximum", {0.0f, -0.0f}), plus);
  EXPECT_EQ(bits_of("maximum", {-0.0f, 0.0f}), plus);
  EXPECT_EQ(bits_of("maximum", {-0.0f, -0.0f}), minus);
  EXPECT_EQ(bits_of("minimum", {0.0f, -0.0f}), minus);
  EXPECT_EQ(bits_of("minimum", {-0.0f, 0.0f}), minus);
  EXPECT_EQ(bits_of("minimum", {0.0f, 0.0f}), plus);
  EXPECT_EQ(bits_of("relu", {-0.0f}), minus);  // x where x is not below 0
  EXPECT_EQ(bits_of("relu", {-1.0f}), plus);
  EXPECT_EQ(bits_of("sign", {-0.0f}), minus);
  EXPECT_EQ(bits_of("sign", {0.0f}), plus);
  EXPECT_EQ(bits_of("tanh", {-0.0f}), minus);
  EXPECT_EQ(bits_of("erf", {-0.0f}), minus);
  EXPECT_EQ(bits_of("neg", {0.0f}), minus);
}

// Integers wrap, in emit and in the reference, also where a double does not hold the product.
TEST(ElementwiseOps, IntegerProductsWrap) {
  for (DType dtype : {DType::u32, DType::i32}) {
    const RefArray x{{dtype, {2}}, {3, 2147483647.0}}, y{{dtype, {2}}, {5, 2147483644.0}};
    const std::vector<RefArray> inputs = {x, y};
    EXPECT_EQ(test::run_reference(*find_op("mul"), inputs, {})[0].data,
              (std::vector<double>{15, dtype == DType::u32 ? 2147483652.0 : -2147483644.0}));
    expect_close(*find_op("mul"), inputs, {}, 0, 0);
  }
}

TEST(ElementwiseOps, ExactPoints) {
  const auto at = [](std::string_view name, float x) { return std::bit_cast<float>(bits_of(name, {x})); };
  EXPECT_EQ(at("exp", 0), 1);
  EXPECT_EQ(at("exp", -0.0f), 1);
  EXPECT_EQ(at("log", 1), 0);
  EXPECT_EQ(at("sigmoid", 0), 0.5f);
  EXPECT_EQ(at("cos", 0), 1);
  EXPECT_EQ(at("tanh", 20), 1);
  EXPECT_EQ(at("tanh", -1e30f), -1);
  EXPECT_EQ(at("erf", 5), 1);
  EXPECT_EQ(at("erf", -HUGE_VALF), -1);
  EXPECT_EQ(at("sigmoid", HUGE_VALF), 1);
  EXPECT_EQ(at("sigmoid", -HUGE_VALF), 0);
  EXPECT_EQ(at("exp", -HUGE_VALF), 0);
  EXPECT_EQ(at("log", 1e-40f), -HUGE_VALF);  // denormals are zeros
  EXPECT_EQ(at("rsqrt", 4), 0.5f);
}

// Beyond their range sin and cos still give some number in [-1, 1], and NaN for infinity.
TEST(ElementwiseOps, SineOfHugeNumbersIsBounded) {
  for (const char* name : {"sin", "cos"}) {
    for (float x = 1e5f; std::isfinite(x); x *= 1.37f)
      for (float sign : {1.0f, -1.0f})
        EXPECT_LE(std::fabs(std::bit_cast<float>(bits_of(name, {sign * x}))), 1.0f) << name << " " << x;
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits_of(name, {HUGE_VALF}))));
  }
}

// Case C44: rounding to bf16, all corners. Inside a step denormals become signed zeros, so those rows differ from the host conversion.
TEST(ElementwiseOps, CastToBf16) {
  struct Row {
    uint32_t from, host, step;
  };
  const Row rows[] = {{0x3F808000, 0x3F80, 0x3F80}, {0x3F818000, 0x3F82, 0x3F82}, {0x3F808001, 0x3F81, 0x3F81},
                      {0x3F807FFF, 0x3F80, 0x3F80}, {0x7F7F7FFF, 0x7F7F, 0x7F7F}, {0x7F7F8000, 0x7F80, 0x7F80},
                      {0x7F7FFFFF, 0x7F80, 0x7F80}, {0x7F800000, 0x7F80, 0x7F80}, {0xFF800000, 0xFF80, 0xFF80},
                      {0x80000000, 0x8000, 0x8000}, {0x80000001, 0x8000, 0x8000}, {0x00008000, 0x0000, 0x0000},
                      {0x00008001, 0x0001, 0x0000}, {0x00018000, 0x0002, 0x0000}, {0x3E4CCCCD, 0x3E4D, 0x3E4D}};
  const OpDef& cast = *find_op("cast");
  for (const Row& row : rows) {
    EvalScalarBuilder b;
    const ScalarBuilder::S x = b.load_bits(row.from);
    EXPECT_EQ(b.bits(cast.emit(b, {&x, 1}, {{"dtype", DType::bf16}})) >> 16, row.step) << std::hex << row.from;
    EXPECT_EQ(std::bit_cast<uint32_t>(EvalScalarBuilder::rounded_to_bf16(std::bit_cast<float>(row.from))) >> 16, row.host)
        << std::hex << row.from;
  }
  for (uint32_t nan : {0x7F800001u, 0x7FC00000u, 0x7FFF9ABCu, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EvalScalarBuilder b;
    const ScalarBuilder::S x = b.load_bits(nan);
    const uint32_t bits = b.bits(cast.emit(b, {&x, 1}, {{"dtype", DType::bf16}}));
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits)));
    EXPECT_EQ(bits & 0xffffu, 0u);
    EXPECT_EQ(bits >> 31, nan >> 31);
  }
}

}  // namespace
}  // namespace ws
