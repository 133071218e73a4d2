// The table of ops: complete, found by name, every field of every op filled, shape rules and costs on examples of each.
#include <gtest/gtest.h>

#include <set>

#include "ops_examples.h"

namespace ws {
namespace {

TEST(OpTable, ListsEveryLineOnceAndFindsItByName) {
  std::vector<std::string> lines;
#define WS_OP(kind, name) lines.push_back(#name);
#include "wholestep/all_ops.inc"
#undef WS_OP
  ASSERT_EQ(all_ops().size(), lines.size());
  std::set<const OpDef*> seen;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(all_ops()[i]->name, lines[i]);
    EXPECT_EQ(find_op(lines[i]), all_ops()[i]);
    EXPECT_TRUE(seen.insert(all_ops()[i]).second);
  }
  for (const char* unknown : {"", "ad", "addd", "Add", "convolution"}) EXPECT_EQ(find_op(unknown), nullptr);
}

class EveryOp : public testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(Table, EveryOp, testing::ValuesIn(std::vector<const OpDef*>(all_ops().begin(), all_ops().end())),
                         test::name_of);

TEST_P(EveryOp, HasEveryField) {
  const OpDef& op = *GetParam();
  EXPECT_FALSE(op.name.empty());
  EXPECT_TRUE(op.arity >= 0 || op.arity == -1);
  EXPECT_GE(op.num_results, 1);
  EXPECT_TRUE(op.infer);
  EXPECT_TRUE(op.cost);
  EXPECT_TRUE(op.reference);
  EXPECT_EQ(static_cast<bool>(op.emit), op.lowering == Lowering::kElementwise);
  EXPECT_FALSE(op.domain.empty());
  EXPECT_TRUE(op.domain.size() == 1 || static_cast<int>(op.domain.size()) == op.arity);
  EXPECT_FALSE(test::examples_of(op).empty()) << "tests/ops_examples.h needs an example call of " << op.name;
  EXPECT_EQ(op.differentiable(), op.lowering != Lowering::kAttentionGrad && op.lowering != Lowering::kCollective)
      << "these have no gradient; say it here where there are more";
}

TEST_P(EveryOp, GivesItsResultsAndTheirCost) {
  const OpDef& op = *GetParam();
  for (const test::OpExample& example : test::examples_of(op)) {
    ASSERT_TRUE(op.arity < 0 || static_cast<int>(example.inputs.size()) == op.arity);
    const std::vector<Type> results = op.infer(example.inputs, example.attrs);
    ASSERT_EQ(static_cast<int>(results.size()), op.num_results);
    const Cost cost = op.cost(example.inputs, results, example.attrs);
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_TRUE(std::isfinite(cost.bytes) && cost.bytes >= 0);
    const bool streams = op.lowering == Lowering::kElementwise && op.name != "constant";
    if (!streams) continue;
    int64_t bytes = results[0].num_bytes();
    for (const Type& t : example.inputs) bytes += t.num_bytes();
    EXPECT_EQ(cost.bytes, static_cast<double>(bytes));
  }
}

TEST_P(EveryOp, ReferenceFillsResultsOfFiniteNumbers) {
  const OpDef& op = *GetParam();
  for (const test::OpExample& example : test::examples_of(op)) {
    if (op.lowering == Lowering::kAttentionGrad) continue;  // its row sums must be those of the forward pass: autodiff tests it
    const auto inputs = test::draw_inputs(op, example, 1);
    for (const RefArray& result : test::run_reference(op, inputs, example.attrs)) {
      ASSERT_EQ(static_cast<int64_t>(result.data.size()), result.type.shape.num_elements());
      for (double x : result.data) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

// An error of a shape rule names the op and what it was given.
TEST_P(EveryOp, RefusesWhatItCannotTakeByName) {
  const OpDef& op = *GetParam();
  for (const test::OpExample& example : test::examples_of(op)) {
    for (size_t i = 0; i < example.inputs.size(); ++i)
      for (DType dtype : {DType::boolean, DType::f64, DType::u32, DType::bf16}) {
        std::vector<Type> inputs = example.inputs;
        inputs[i].dtype = dtype;
        try {
          op.infer(inputs, example.attrs);
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find(std::string(op.name)), std::string::npos) << e.what();
          EXPECT_NE(std::string(e.what()).find(std::string(ws::name_of(dtype))), std::string::npos) << e.what();
        }
      }
  }
}

Cost cost_of(std::string_view name, std::vector<Type> inputs, const Attrs& attrs) {
  const OpDef& op = *find_op(name);
  return op.cost(inputs, op.infer(inputs, attrs), attrs);
}

TEST(OpCosts, CountMultiplicationsOfProducts) {
  const Attrs plain{{"transpose_a", false}, {"transpose_b", true}, {"out_dtype", DType::f32}};
  const Cost shared = cost_of("matmul", {{DType::f32, {8, 32, 64}}, {DType::f32, {128, 64}}}, plain);
  EXPECT_EQ(shared.flops, 2.0 * 8 * 32 * 64 * 128);
  EXPECT_EQ(shared.bytes, 4.0 * (8 * 32 * 64 + 128 * 64 + 8 * 32 * 128));
}

// The triangle of visible pairs, counted one by one.
TEST(OpCosts, AttentionCountsOnlyVisiblePairs) {
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{5, 5}, {3, 7}, {7, 3}, {1, 1}}) {
    const Type q{DType::f32, {1, queries, 1, 4}}, k{DType::f32, {1, keys, 1, 4}};
    const double all = cost_of("attention", {q, k, k}, {{"causal", false}, {"scale", 1.0}}).flops;
    double pairs = 0;
    for (int64_t t = 0; t < queries; ++t)
      for (int64_t s = 0; s < keys; ++s) pairs += s <= t + keys - queries ? 1 : 0;
    const double seen = cost_of("attention", {q, k, k}, {{"causal", true}, {"scale", 1.0}}).flops;
    EXPECT_NEAR(seen / all, pairs / static_cast<double>(queries * keys), 1e-12);
  }
}

// Case C48: sizes beyond 2^31 in shapes, bytes and costs.
TEST(OpCosts, SizesBeyond32Bits) {
  const Type square{DType::f32, {65536, 65536}};
  EXPECT_EQ(square.shape.num_elements(), 4294967296);
  EXPECT_EQ(square.num_bytes(), 17179869184);
  const Attrs plain{{"transpose_a", false}, {"transpose_b", false}, {"out_dtype", DType::f32}};
  EXPECT_EQ(cost_of("matmul", {square, square}, plain).flops, 2.0 * 65536 * 65536 * 65536);
  EXPECT_EQ(cost_of("add", {square, square}, {}).bytes, 3.0 * 17179869184);
  const Type table{DType::f32, {300000, 8192}};
  EXPECT_EQ(table.shape.num_elements(), 2457600000);
  EXPECT_EQ(table.num_bytes(), 9830400000);
  EXPECT_EQ(cost_of("add", {table, table}, {}).bytes, 3 * 9830400000.0);
  const Type grad = find_op("scatter_add")
                        ->infer(std::vector<Type>{{DType::i32, {4}}, {DType::f32, {4, 8192}}}, {{"rows", int64_t{300000}}})[0];
  EXPECT_EQ(grad, table);
  const Type flat = find_op("reshape")->infer(std::vector<Type>{table}, {{"shape", std::vector<int64_t>{2457600000}}})[0];
  EXPECT_EQ(flat.shape[0], 2457600000);
  EXPECT_EQ(dense_strides(Shape{300000, 8192})[0] * 262144, 2147483648);
  EXPECT_THROW(Shape({int64_t{1} << 40, int64_t{1} << 40}), Error);
}

}  // namespace
// Sizes that leave 64 bits are errors, never wrapped.
TEST(OpShapes, HugeAttributesAreErrors) {
  const Type x{DType::f32, Shape{3}};
  const auto infer = [&](const char* op, const Attrs& attrs) { return find_op(op)->infer(std::span(&x, 1), attrs); };
  const auto pad = [](int64_t low, int64_t high, int64_t interior) {
    return Attrs{{"low", std::vector{low}}, {"high", std::vector{high}}, {"interior", std::vector{interior}}};
  };
  EXPECT_THROW(infer("pad", pad(INT64_MAX, 1, 0)), Error);
  EXPECT_THROW(infer("pad", pad(0, INT64_MAX - 1, 0)), Error);
  EXPECT_THROW(infer("pad", pad(0, 0, INT64_MAX)), Error);
  EXPECT_THROW(infer("pad", pad(0, 2, INT64_MAX / 2 + 1)), Error);
  const Attrs wide_step{
      {"starts", std::vector<int64_t>{0}}, {"stops", std::vector<int64_t>{3}}, {"steps", std::vector{INT64_MAX}}};
  EXPECT_EQ(infer("slice", wide_step)[0].shape.str(), "[1]");
  EXPECT_THROW(infer("reduce_sum", {{"first_axis", INT64_MAX}, {"num_axes", int64_t{5}}}), Error);
}

}  // namespace ws
