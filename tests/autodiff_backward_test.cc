// The walk itself: order of sums, what is asked of vjps, what has no gradient, errors, and dtypes of gradients.
#include <gtest/gtest.h>

#include "autodiff_util.h"
#include "support/error.h"

namespace ws {
namespace {

using test::array;
using test::sum_all;
using test::tape_of;

struct Fixture {
  Graph g;
  GraphBuilder b{g};
  Value input(const char* name, Shape shape, DType dtype = DType::f32) { return g.add_input(name, {dtype, shape}); }
  std::vector<Value> grads(Value loss, std::vector<Value> wrt) { return backward(b, tape_of(g), loss, wrt); }
  const Node& node_of(Value v) const { return g.nodes()[static_cast<size_t>(g.producer_of(v))]; }
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Backward, GradientsOfAValueUsedOftenAddInReverseProgramOrder) {
  Fixture f;
  const Value x = f.input("x", {});
  const Value first = f.b.op("exp", {x}), second = f.b.op("sin", {x}), third = f.b.op("tanh", {x});
  const Value loss = f.b.add(f.b.add(first, second), third);
  const Value grad = f.grads(loss, {x})[0];
  // (d tanh + d sin) + d exp
  const Node& outer = f.node_of(grad);
  ASSERT_EQ(outer.op->name, "add");
  const Node& inner = f.node_of(outer.inputs[0]);
  ASSERT_EQ(inner.op->name, "add");
  EXPECT_EQ(f.node_of(outer.inputs[1]).inputs[1], first);  // g * exp(x)
  EXPECT_EQ(f.node_of(inner.inputs[0]).op->name, "mul");   // g * (1 - tanh^2)
  EXPECT_EQ(f.node_of(f.node_of(inner.inputs[0]).inputs[1]).op->name, "sub");
  EXPECT_EQ(f.node_of(f.node_of(inner.inputs[1]).inputs[1]).op->name, "cos");
}

TEST(Backward, OneValueTwiceInOneOp) {
  Fixture f;
  const Value x = f.input("x", {});
  f.g.add_output(f.grads(f.b.mul(x, x), {x})[0], "grad");
  EXPECT_EQ(interpret(f.g, std::vector<RefArray>{array({}, {3})})[0].data[0], 6);
}

TEST(Backward, NoGradientWhereTheLossDoesNotDepend) {
  Fixture f;
  const Value x = f.input("x", {}), y = f.input("y", {}), z = f.input("z", {}), k = f.input("k", {}, DType::i32);
  f.b.op("exp", {y});  // computed, not used
  const Value stopped = f.b.op("stop_gradient", {z});
  const auto grads = f.grads(f.b.add(x, stopped), {x, y, z, k});
  EXPECT_TRUE(grads[0]);
  EXPECT_FALSE(grads[1]);
  EXPECT_FALSE(grads[2]);
  EXPECT_FALSE(grads[3]);
}

TEST(Backward, TheLossItselfAndDuplicates) {
  Fixture f;
  const Value x = f.input("x", {});
  const Value loss = f.b.op("exp", {x});
  const auto grads = f.grads(loss, {loss, x, x});
  f.g.add_output(grads[0], "of_loss");
  f.g.add_output(grads[1], "of_x");
  EXPECT_EQ(grads[1], grads[2]);
  const auto out = interpret(f.g, std::vector<RefArray>{array({}, {0})});
  EXPECT_EQ(out[0].data[0], 1);
  EXPECT_EQ(out[1].data[0], 1);
}

// Only what someone asks for is computed: no product for the gradient of data, none of a constant factor.
TEST(Backward, ComputesOnlyWantedGradients) {
  Fixture f;
  const Value x = f.input("x", {4, 3}), w = f.input("w", {3, 2});
  const Value y = f.b.op("matmul", {x, w}, {{"transpose_a", false}, {"transpose_b", false}, {"out_dtype", DType::f32}});
  const Value loss = sum_all(f.b, f.b.mul(y, f.b.constant(DType::f32, 2)));
  const size_t before = f.g.nodes().size();
  const Value grad = f.grads(loss, {w})[0];
  int products = 0, sums = 0;
  for (size_t i = before; i < f.g.nodes().size(); ++i) {
    products += f.g.nodes()[i].op->name == "matmul" ? 1 : 0;
    sums += f.g.nodes()[i].op->name == "reduce_sum" ? 1 : 0;
  }
  EXPECT_EQ(products, 1);
  EXPECT_EQ(sums, 0);
  EXPECT_EQ(f.node_of(grad).inputs[0], x);
}

TEST(Backward, TellsWhichEntriesAreDoneLastToFirst) {
  Fixture f;
  const Value x = f.input("x", {});
  const Value loss = f.b.op("exp", {f.b.op("sin", {f.b.neg(x)})});
  std::vector<size_t> done;
  backward(f.b, tape_of(f.g), loss, std::vector<Value>{x}, [&](size_t i) { done.push_back(i); });
  EXPECT_EQ(done, (std::vector<size_t>{2, 1, 0}));
}

TEST(Backward, Errors) {
  Fixture f;
  const Value x = f.input("x", {2}), k = f.input("k", {}, DType::i32);
  EXPECT_NE(error_of([&] { f.grads(x, {x}); }).find("f32[2]"), std::string::npos);
  EXPECT_NE(error_of([&] { f.grads(k, {x}); }).find("i32[]"), std::string::npos);
}

TEST(Backward, SecondDerivativeOfAttentionSaysThatThereIsNone) {
  Fixture f;
  const Value q = f.input("q", {1, 2, 1, 2});
  const Value in[] = {q, q, q};
  const Value out = f.b.apply(*find_op("attention"), in, {{"causal", true}, {"scale", 1.0}})[0];
  const Value first = f.grads(sum_all(f.b, f.b.mul(out, out)), {q})[0];
  const std::string error = error_of([&] { f.grads(sum_all(f.b, first), {q}); });
  EXPECT_NE(error.find("attention_grad is not differentiable"), std::string::npos) << error;
}

TEST(Backward, RowSumsOfAttentionHaveNoGradient) {
  Fixture f;
  const Value q = f.input("q", {1, 2, 1, 2});
  const Value in[] = {q, q, q};
  const Value sums = f.b.apply(*find_op("attention"), in, {{"causal", true}, {"scale", 1.0}})[2];
  const std::string error = error_of([&] { f.grads(sum_all(f.b, sums), {q}); });
  EXPECT_NE(error.find("row_sum"), std::string::npos) << error;
}

// A bf16 copy of an fp32 parameter: its gradient leaves the product in f32 and is never rounded.
TEST(Backward, GradientsOfMastersAreNeverRoundedToBf16) {
  Fixture f;
  const Value x = f.input("x", {4, 3}), w = f.input("w", {3, 2});
  const Value low_x = f.b.cast(x, DType::bf16), low_w = f.b.cast(w, DType::bf16);
  const Value y = f.b.op("matmul", {low_x, low_w}, {{"transpose_a", false}, {"transpose_b", false}, {"out_dtype", DType::f32}});
  const Value grad = f.grads(sum_all(f.b, f.b.mul(y, y)), {w})[0];
  const Node& product = f.node_of(grad);
  EXPECT_EQ(product.op->name, "matmul");
  EXPECT_EQ(f.g.type_of(grad).dtype, DType::f32);
  EXPECT_EQ(f.g.type_of(product.inputs[0]).dtype, DType::bf16);
  EXPECT_EQ(f.g.type_of(product.inputs[1]).dtype, DType::bf16);  // the one rounding: of the gradient that enters the product
}

// bf16 arithmetic and views mixed: dtypes fit everywhere, and a bf16 input gets a bf16 gradient.
TEST(Backward, MixedBf16Graphs) {
  Fixture f;
  const Value x = f.input("x", {2, 1}, DType::bf16), y = f.input("y", {2, 3}, DType::bf16),
              table = f.input("table", {4, 3}, DType::bf16), k = f.input("k", {2}, DType::i32);
  const Value wide = f.b.broadcast_to(x, {2, 3});
  const Value product = f.b.mul(f.b.op("tanh", {wide}), f.b.add(y, wide));
  const Value rows = f.b.op("gather", {table, k});
  const Value loss = sum_all(f.b, f.b.cast(f.b.mul(product, rows), DType::f32));
  const auto grads = f.grads(loss, {x, y, table});
  for (size_t i = 0; i < grads.size(); ++i) {
    EXPECT_EQ(f.g.type_of(grads[i]).dtype, DType::bf16);
    f.g.add_output(grads[i], fmt::format("grad{}", i));
  }
  verify(f.g);
  const auto out = interpret(
      f.g, std::vector<RefArray>{array({2, 1}, {1, 0.5}, DType::bf16), array({2, 3}, {1, 2, 3, 4, 5, 6}, DType::bf16),
                                 array({4, 3}, std::vector<double>(12, 1), DType::bf16), array({2}, {1, 1}, DType::i32)});
  // d/dy = tanh(x) * row = 0.76, 0.46; of the table only row 1, twice
  EXPECT_NEAR(out[1].data[0], std::tanh(1), 4e-3);
  EXPECT_NEAR(out[1].data[5], std::tanh(0.5), 2e-3);
  EXPECT_EQ(out[2].data[0], 0);
  EXPECT_NEAR(out[2].data[3], std::tanh(1) * 2 + std::tanh(0.5) * 4.5, 0.03);
}

}  // namespace
}  // namespace ws
