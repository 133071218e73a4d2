// Modules: names, keys, ties, freezing, errors that name the layer.
#include "api_util.h"

namespace ws::testing {
namespace {

struct Pair : Module {
  Linear a{*this, "a", 3, 4};
  Linear b{*this, "b", 4, 2};
  explicit Pair(Key key) : Module(key) {}
  Pair(Module& parent, const std::string& name) : Module(parent, name) {}
  Tensor forward(const Tensor& x) const override { return b(relu(a(x))); }
};
struct SwappedPair : Module {  // the same members in another order, and one more
  Linear b{*this, "b", 4, 2};
  Linear extra{*this, "extra", 2, 2};
  Linear a{*this, "a", 3, 4};
  explicit SwappedPair(Key key) : Module(key) {}
};
struct Nested : Module {
  Pair first{*this, "first"};
  ModuleList list{*this, "list"};
  explicit Nested(Key key) : Module(key) {
    list.add<Pair>();
    list.add(layer<Linear>(2, 5, LinearOptions{.bias = false}));
  }
};

std::vector<std::string> names(const Module& m) {
  std::vector<std::string> result;
  for (const auto& [name, variable] : m.named_parameters()) {
    EXPECT_EQ(name, variable.name());
    result.push_back(name);
  }
  return result;
}

TEST(Module, DottedNamesInOrder) {
  Nested m(Key(0));
  EXPECT_EQ(names(m),
            (std::vector<std::string>{"first.a.weight", "first.a.bias", "first.b.weight", "first.b.bias", "list.0.a.weight",
                                      "list.0.a.bias", "list.0.b.weight", "list.0.b.bias", "list.1.weight"}));
  EXPECT_EQ(m.num_parameters(), 2 * (12 + 4 + 8 + 2) + 10);
  EXPECT_EQ(m.find("list.1.weight").value().shape(), (Shape{2, 5}));
  EXPECT_TRUE(mentions(error_of([&] { (void)m.find("list.weight"); }), {"list.weight", "list.1.weight"}));
}

TEST(Module, InitialValuesDependOnKeyAndNameOnly) {
  Pair m(Key(7));
  SwappedPair swapped(Key(7));
  EXPECT_EQ(bytes(m.a.weight), bytes(swapped.a.weight));
  EXPECT_EQ(bytes(m.b.weight), bytes(swapped.b.weight));
  EXPECT_NE(bytes(m.a.weight), bytes(Pair(Key(8)).a.weight));
  Nested nested(Key(7));
  EXPECT_NE(bytes(nested.find("first.a.weight")), bytes(nested.find("list.0.a.weight")));
}

TEST(Module, RejectsBadNames) {
  Weights w;
  w.add("x", {1});
  EXPECT_TRUE(mentions(error_of([&] { w.add("x", {1}); }), {"'x'", "already"}));
  EXPECT_TRUE(mentions(error_of([&] { w.add("a.b", {1}); }), {"a.b", "letters"}));
  EXPECT_NE(error_of([&] { w.add("", {1}); }), "");
}

TEST(Module, TiedParameterIsOne) {
  Weights w;
  Variable x = w.add("x", {1, 2});
  w.tie("again", x);
  EXPECT_EQ(w.parameters().size(), 1U);
  EXPECT_EQ(w.num_parameters(), 2);
}

TEST(Module, ModesReachTheTree) {
  Nested m(Key(0));
  EXPECT_TRUE(m.first.b.training());
  m.eval();
  EXPECT_FALSE(m.first.b.training());
  EXPECT_FALSE(m.list[1].training());
  m.train();
  EXPECT_TRUE(m.list[1].training());
}

TEST(Module, SequentialAndResidual) {
  Sequential net(Key(0), {layer<Linear>(3, 3), layer<ReLU>(), layer<Residual>(layer<Linear>(3, 3))});
  EXPECT_EQ(names(net), (std::vector<std::string>{"0.weight", "0.bias", "2.inner.weight", "2.inner.bias"}));
  Tensor x = random_floats({2, 3}, 1);
  Tensor h = relu(matmul(x, net.find("0.weight")) + net.find("0.bias"));
  Tensor right = h + (matmul(h, net.find("2.inner.weight")) + net.find("2.inner.bias"));
  EXPECT_EQ(bytes(net(x)), bytes(right));
}

TEST(Module, ErrorsNameLayerShapeAndFix) {
  Nested m(Key(0));
  EXPECT_TRUE(mentions(error_of([&] { m.first(Tensor::zeros({2, 5})); }), {"first.a", "[2, 5]", "3"}));
  EXPECT_TRUE(mentions(error_of([&] { Sequential(Key(0), {layer<SelfAttention>(10, 3)}); }), {"10", "3 heads", "multiple"}));
  EXPECT_TRUE(mentions(error_of([&] { Sequential(Key(0), {layer<Linear>(0, 3)}); }), {"at least 1"}));
  EXPECT_TRUE(mentions(error_of([&] {
                         Sequential(Key(0), {layer<Residual>(layer<Linear>(3, 4))})(Tensor::zeros({2, 3}));
                       }),
                       {"[2, 3]", "[2, 4]"}));
  EXPECT_TRUE(mentions(error_of([&] { Weights()(Tensor::zeros({1})); }), {"forward"}));
  EXPECT_TRUE(mentions(error_of([&] { m.find("first.a.wieght"); }), {"'first.a.wieght'", "is first.a.weight meant?"}));
  EXPECT_TRUE(mentions(error_of([&] { m.find("zebra"); }), {"'zebra'; there are ", ", the first is "}));
}

}  // namespace
}  // namespace ws::testing
