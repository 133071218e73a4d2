#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/graph.h"
#include "ir_local_ops.h"
#include "support/error.h"

namespace ws {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse(text, "t.ir");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

const char* const kSample = R"(graph main(%0 "x": f32[4, 8], %1 "fc.weight": f32[4, 8]) {
  %2 = add %0, %1 : f32[4, 8]  @fc  checkpoint 2
  %3 = constant {dtype = f32, value = 0.1} : f32[]
  %4, %5 = odd %2, %0 {axes = [1, -2], dtype = bf16, flag = true, n = -3, text = "a \"b\"\n", x = -0.0} : f32[4, 8], bf16[]  @"odd path"
  %6 = mul %4, %1 : f32[4, 8]  @blocks.0.ffn  checkpoint -2
  return %5 "y", %6 "fc.weight" donates 1
}
)";

TEST(Text, RoundTrip) {
  const Graph g = parse(kSample, "sample.ir");
  EXPECT_EQ(print(g), kSample);
  verify(g);
  EXPECT_EQ(g.nodes()[2].attrs.text("text"), "a \"b\"\n");
  EXPECT_TRUE(std::signbit(g.nodes()[2].attrs.number("x")));
  EXPECT_EQ(g.nodes()[3].path, "blocks.0.ffn");
  EXPECT_EQ(g.outputs()[1].donates_input, 1);
  EXPECT_EQ(g.producer_of(Value{5}), 2);
  EXPECT_EQ(g.nodes()[0].checkpoint, 2);
  EXPECT_EQ(g.nodes()[1].checkpoint, 0);
  EXPECT_EQ(g.nodes()[3].checkpoint, -2);
}

TEST(Text, AnyBitsAndAnyNames) {
  std::mt19937_64 random(7);
  Graph g;
  g.name = "a graph {\"}\x02";
  const Value x = g.add_input("weird \"name\\\" \n, %0", {DType::u32, {0, 3}});
  g.add_input("", {DType::boolean, {}});
  for (int i = 0; i < 400; ++i) {
    const auto bits = random();
    std::string text(random() % 12, ' ');
    for (char& c : text) c = static_cast<char>(random());
    g.add_node(*find_op("odd"), {x},
               {{"axes", std::vector<int64_t>{INT64_MIN, INT64_MAX}},
                {"dtype", DType::f64},
                {"flag", false},
                {"n", static_cast<int64_t>(bits)},
                {"text", text},
                {"x", i % 2 ? std::bit_cast<double>(bits) : std::bit_cast<double>(bits | 0x7ff0000000000000u)}},
               text);
  }
  g.add_output(x, "out % put");
  const std::string text = print(g);
  const Graph again = parse(text);
  EXPECT_EQ(print(again), text);
  EXPECT_EQ(again.name, g.name);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    ASSERT_EQ(g.nodes()[i].attrs, again.nodes()[i].attrs);
    ASSERT_EQ(g.nodes()[i].path, again.nodes()[i].path);
  }
}

TEST(Text, ByHand) {  // names instead of numbers, comments, integers for numbers, no spaces
  const Graph g = parse(
      "# made by hand\ngraph \"g\"(%x:f32[2],%b:f32[2]){%sum=add %x,%b:f32[2] # sum\n%c=constant{dtype=f32,value=2}:f32[] return "
      "%sum\"y\"}");
  EXPECT_EQ(g.inputs()[1].name, "b");
  EXPECT_EQ(g.nodes()[1].attrs.number("value"), 2.0);
  EXPECT_EQ(print(parse("graph e() {\n return\n}")), "graph e() {\n  return\n}\n");
}

TEST(Text, MessagesNameThePlace) {
  const auto starts = [](std::string_view text, std::string_view wanted) {
    EXPECT_EQ(error_of(text).substr(0, wanted.size()), wanted) << error_of(text);
  };
  starts("", "t.ir:1:1: expected 'graph', found the end of the text");
  starts("graph g(%0 \"x\": f32[2]) {\n  %1 = ad %0 : f32[2]\n}", "t.ir:2:8: no op is named 'ad'");
  starts("graph g(%0: f32[2]) {\n  %1 = add %0 : f32[2]\n}", "t.ir:2:8: add takes 2 inputs, 1 given");
  starts("graph g(%0: f32[2]) {\n  %1 = neg %2 : f32[2]\n}", "t.ir:2:12: %2 is used before it is defined");
  starts("graph g(%0: f32[2]) {\n  %1 = neg %0 : f32[3]\n}", "t.ir:2:17: neg gives f32[2] here, not f32[3]");
  starts("graph g(%0: f32[2], %0: f32[2])", "t.ir:1:21: %0 is defined twice");
  starts("graph g(%0 \"x\": f32[2], %1 \"x\": f32[2])", "t.ir:1:25: a second input is named \"x\"");
  starts("graph g(%0: f32[2], %1: f32[3]) {\n %2 = add %0, %1 : f32[2]", "t.ir:2:7: add: f32[3] against f32[2]");
  starts("graph g(%0: f33[2])", "t.ir:1:13: expected a type");
  starts("graph g(%0: f32[2, 2, 2, 2, 2, 2, 2, 2, 2])", "t.ir:1:41: more than 8 entries");
  starts("graph g(%0: f32[4611686018427387904, 4611686018427387904])", "t.ir:1:13: the shape");
  starts("graph g(%0: f32[4611686018427387904])", "t.ir:1:9: input '0': a value of type");
  starts("graph g(%0: f32[99999999999999999999])", "t.ir:1:17: the integer");
  starts("graph g(%0: f32[-1])", "t.ir:1:13: a shape with the negative dim -1");
  starts("graph g() {\n %1 = constant {dtype = f32} : f32[]", "t.ir:2:7: constant needs the attribute 'value' (number)");
  starts("graph g() {\n %1 = constant {dtype = f32, value = true} : f32[]",
         "t.ir:2:7: attribute 'value' of constant is a number, not a flag");
  starts("graph g() {\n %1 = constant {dtype = f32, volume = 1} : f32[]", "t.ir:2:30: constant has no attribute 'volume'");
  starts("graph g() {\n %1 = constant {dtype = f32, dtype = f32} : f32[]", "t.ir:2:30: attribute 'dtype' is given twice");
  starts("graph g() {\n %1 = constant {dtype = f32, value = 1.5.5} : f32[]", "t.ir:2:38: '1.5.5' is not a number");
  starts("graph g() {\n %1 = constant {dtype = f32, value = nan(0x1)} : f32[]", "t.ir:2:42: expected the 64 bits of a NaN");
  starts("graph g(%0: f32[2]) { %1 = add %0, %0 : f32[2] checkpoint 0 return }",
         "t.ir:1:59: the number of a checkpoint is not 0");
  starts("graph g(%0: f32[2]) { return %0 \"a\" donates 1 }", "t.ir:1:45: there is no input 1");
  starts("graph g(%0: f32[2]) { return %0 \"a\" donates 0, %0 \"b\" donates 0 }", "t.ir:1:63: input 0 is donated twice");
  starts("graph g(%0: f32[2], %1: f32[3]) { return %0 \"a\" donates 1 }", "t.ir:1:57: input 1 is f32[3], the output f32[2]");
  starts("graph g() { return } x", "t.ir:1:22: expected the end of the text, found 'x'");
  starts("graph g(%0 \"x", "t.ir:1:12: this string has no closing");
  starts("graph g(%0 \"\\q\"", "t.ir:1:12: unknown escape");
  starts("graph \xff", "t.ir:1:7: unexpected byte 0xff");
}

// Cut, changed and shuffled texts must give ws::Error or a graph, nothing else.
TEST(Text, GarbageIsAnError) {
  std::mt19937 random(1);
  const std::string sample = kSample;
  for (size_t n = 0; n < sample.size() - 2; ++n) EXPECT_NE(error_of(sample.substr(0, n)), "no error") << n;
  int errors = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = sample;
    for (unsigned k = 0; k < 1 + random() % 4; ++k) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 8); break;
        case 2: text.insert(at, std::string(1, "%,:={}[]\"@-0e"[random() % 13])); break;
        default: text.insert(at, sample.substr(random() % sample.size(), random() % 20));
      }
    }
    try {
      verify(parse(text));
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 15000);
  EXPECT_NE(error_of(std::string(1 << 20, '[')), "no error");
  EXPECT_NE(error_of("graph g(%0: f32" + std::string(1 << 20, '[')), "no error");
}

}  // namespace
}  // namespace ws
