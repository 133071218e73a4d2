#include <gtest/gtest.h>

#include <cmath>

#include "ir/graph.h"
#include "ir_local_ops.h"
#include "support/error.h"

namespace ws {
namespace {

std::string internal_error_of(const Graph& g) {
  try {
    verify(g);
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Fixture : testing::Test {
  Graph g;
  GraphBuilder b{g};
};
using GraphTest = Fixture;
using BuilderTest = Fixture;

TEST_F(GraphTest, AddNodeChecks) {
  const Value x = g.add_input("x", {DType::f32, {2}}), y = g.add_input("y", {DType::f32, {3}});
  EXPECT_THROW(b.op("add", {x, y}), Error);
  EXPECT_THROW(b.op("add", {x}), InternalError);
  EXPECT_THROW(b.op("nothing", {x}), InternalError);
  EXPECT_THROW(b.op("neg", {Value{7}}), InternalError);
  EXPECT_THROW(b.op("neg", {x}, {{"axis", int64_t{1}}}), InternalError);
  EXPECT_THROW(b.op("cast", {x}, {{"dtype", int64_t{1}}}), InternalError);
  EXPECT_EQ(g.num_values(), 2) << "a failed node leaves nothing behind";
  EXPECT_EQ(internal_error_of(g), "");
}

TEST_F(GraphTest, VerifyFindsBadOutputs) {
  const Value x = g.add_input("x", {DType::f32, {2}});
  g.add_input("y", {DType::f32, {3}});
  Graph bad = g;
  bad.add_output(Value{9}, "z");
  EXPECT_TRUE(contains(internal_error_of(bad), "output 'z' of graph main is %9"));
  bad = g;
  bad.add_output(x, "z", 1);
  EXPECT_TRUE(contains(internal_error_of(bad), "the input 1 it donates is f32[3]"));
  bad = g;
  bad.add_output(x, "z", 2);
  EXPECT_TRUE(contains(internal_error_of(bad), "donates input 2 of 2"));
  bad = g;
  bad.add_output(x, "z", 0);
  bad.add_output(x, "w", 0);
  EXPECT_TRUE(contains(internal_error_of(bad), "donated twice"));
}

TEST_F(GraphTest, VerifyRunsTheRules) {
  int calls = 0;
  OpDef fickle = test::elementwise("fickle", 1, [](const double* x) { return x[0]; });
  fickle.infer = [&](std::span<const Type> in, const Attrs&) {
    return std::vector<Type>{{++calls == 1 ? DType::f32 : DType::i32, in[0].shape}};
  };
  g.add_node(fickle, {g.add_input("x", {DType::f32, {2}})}, {}, "fc");
  EXPECT_TRUE(contains(internal_error_of(g), "node 0 (fickle @fc) of graph main: %1 is f32[2], the op's rule gives i32[2]"));
}

TEST_F(GraphTest, InputsBetweenNodes) {  // a trace finds a captured tensor late
  const Value x = g.add_input("x", {DType::f32, {2}});
  const Value y = b.neg(x);
  const Value late = g.add_input("late", {DType::f32, {2}});
  g.add_output(b.add(y, late), "z");
  EXPECT_EQ(internal_error_of(g), "");
  const std::string text = print(g);
  EXPECT_TRUE(contains(text, "(%0 \"x\": f32[2], %1 \"late\": f32[2])"));
  EXPECT_TRUE(contains(text, "%3 = add %2, %1 : f32[2]"));
  EXPECT_EQ(print(parse(text)), text);
}

TEST_F(BuilderTest, BroadcastsExplicitly) {
  const Value x = g.add_input("x", {DType::f32, {4, 3}}), y = g.add_input("y", {DType::f32, {3}});
  EXPECT_EQ(g.type_of(b.add(x, y)).str(), "f32[4, 3]");
  ASSERT_EQ(g.nodes().size(), 2u);
  EXPECT_EQ(g.nodes()[0].op->name, "broadcast");
  b.add(x, x);
  EXPECT_EQ(g.nodes().size(), 3u) << "no broadcast between equal shapes";
  EXPECT_EQ(b.cast(x, DType::f32), x);
  EXPECT_EQ(b.reshape(x, {4, 3}), x);
  EXPECT_EQ(b.broadcast_to(x, {4, 3}), x);
  EXPECT_EQ(g.type_of(b.filled({DType::bf16, {2, 2}}, 1)).str(), "bf16[2, 2]");
  EXPECT_EQ(g.type_of(b.select(g.add_input("c", {DType::boolean, {4, 1}}), x, y)).str(), "f32[4, 3]");
  EXPECT_THROW(b.add(x, g.add_input("z", {DType::f32, {4}})), Error);
}

TEST_F(BuilderTest, ReducesInnermostGroupFirst) {
  const Value x = g.add_input("x", {DType::f32, {2, 3, 4, 5, 6}});
  EXPECT_EQ(g.type_of(b.reduce_sum(x, {3, 0, -1}, false)).str(), "f32[3, 4]");
  ASSERT_EQ(g.nodes().size(), 2u);
  EXPECT_EQ(g.nodes()[0].attrs.integer("first_axis"), 3);
  EXPECT_EQ(g.nodes()[0].attrs.integer("num_axes"), 2);
  EXPECT_EQ(g.nodes()[1].attrs.integer("first_axis"), 0);
  EXPECT_EQ(g.type_of(b.reduce_max(x, {1, 2}, true)).str(), "f32[2, 1, 1, 5, 6]");
  EXPECT_EQ(b.reduce_sum(x, {}, false), x);
  EXPECT_THROW(b.reduce_sum(x, {5}, false), Error);
  EXPECT_THROW(b.reduce_sum(x, {1, -4}, false), Error);
}

TEST_F(BuilderTest, SumToUndoesBroadcast) {
  const Value x = g.add_input("x", {DType::f32, {2, 3, 1, 4}});
  EXPECT_EQ(g.type_of(b.sum_to(x, {1, 1, 4})).str(), "f32[1, 1, 4]");
  ASSERT_EQ(g.nodes().size(), 2u);  // one reduction over both axes, one reshape
  EXPECT_EQ(g.nodes()[0].attrs.integer("num_axes"), 2);
  EXPECT_EQ(b.sum_to(x, {2, 3, 1, 4}), x);
  EXPECT_EQ(g.type_of(b.sum_to(x, {})).str(), "f32[]");
  EXPECT_THROW(b.sum_to(x, {5}), InternalError);
}

TEST(Interpret, RoundsResults) {
  const Graph g = parse(R"(graph g(%x: f32[3], %n: i32[2]) {
    %h = cast %x {dtype = bf16} : bf16[3]
    %m = mul %n, %n : i32[2]
    %u = cast %m {dtype = u32} : u32[2]
    %b = cast %x {dtype = bool} : bool[3]
    %y = mul %x, %x : f32[3]
    return %h "h", %m "m", %u "u", %b "b", %y "y", %x "x"
  })");
  // 1 + 2^-8 is half way between two bf16 values: to even, so 1; 1 + 3*2^-8 goes up to 1 + 2^-6.
  const std::vector<RefArray> in{{{DType::f32, {3}}, {1 + 1 / 256.0, 1 + 3 / 256.0, std::nan("")}},
                                 {{DType::i32, {2}}, {65536, 50000}}};
  const auto out = interpret(g, in);
  ASSERT_EQ(out.size(), 6u);
  EXPECT_EQ(out[0].data[0], 1.0);
  EXPECT_EQ(out[0].data[1], 1 + 1 / 64.0);
  EXPECT_TRUE(std::isnan(out[0].data[2]));
  EXPECT_EQ(out[1].data, (std::vector<double>{0, -1794967296.0}));
  EXPECT_EQ(out[2].data, (std::vector<double>{0, 2500000000.0}));
  EXPECT_EQ(out[3].data[0], 1.0);
  EXPECT_EQ(out[4].data[0], (1 + 1 / 256.0) * (1 + 1 / 256.0)) << "f32 is not rounded";
  EXPECT_EQ(out[5].data[0], in[0].data[0]);
  const auto all = interpret_all(g, in);
  ASSERT_EQ(all.size(), 7u);
  EXPECT_EQ(all[3].data, out[1].data);
}

TEST(Interpret, ChecksInputsAndMemory) {
  const Graph g =
      parse("graph g(%x: f32[]) { %y = broadcast %x {shape = [1000000000000000]} : f32[1000000000000000] return %y \"y\" }");
  EXPECT_THROW(interpret(g, {}), Error);
  const std::vector<RefArray> wrong{{{DType::f32, {1}}, {1}}}, right{{{DType::f32, {}}, {1}}};
  EXPECT_THROW(interpret(g, wrong), Error);
  EXPECT_THROW(interpret(g, right), RuntimeError);
}

}  // namespace
}  // namespace ws
