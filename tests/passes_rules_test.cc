// Every rule: a graph that it rewrites, the result in text, its off switch, and the same bits before and after.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "passes/pipeline.h"
#include "passes/rules.h"
#include "support/error.h"

namespace ws {
namespace {

std::vector<RefArray> random_inputs(const Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<RefArray> inputs;
  for (const GraphInput& input : g.inputs()) {
    RefArray a{g.type_of(input.value), {}};
    for (int64_t i = 0; i < a.type.shape.num_elements(); ++i) {
      const double x = static_cast<double>(random() % 64) - 32;
      a.data.push_back(a.type.dtype == DType::boolean ? static_cast<double>(random() % 2) : random() % 8 ? x / 8 : -0.0);
    }
    inputs.push_back(std::move(a));
  }
  return inputs;
}

void expect_same_bits(const Graph& a, const Graph& b, unsigned seed) {
  const auto inputs = random_inputs(a, seed);
  const auto x = interpret(a, inputs), y = interpret(b, inputs);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(x[i].type, y[i].type);
    ASSERT_EQ(std::memcmp(x[i].data.data(), y[i].data.data(), x[i].data.size() * sizeof(double)), 0) << print(a) << print(b);
  }
}

struct Case {
  std::string rule, before, after;  // bodies without "graph g" and the closing brace's line
};

const std::string kX = "(%x: f32[2, 3]) {\n", kMatrices = "(%a: f32[2, 3, 4], %b: f32[3, 5]) {\n",
                  kMask = "(%c: bool[2], %x: f32[2], %y: f32[2]) {\n";

std::vector<Case> cases() {
  return {
      {"reshape_to_same", kX + "%1 = reshape %x {shape = [2, 3]} : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"merge_reshapes",
       kX + "%1 = reshape %x {shape = [6]} : f32[6] %2 = reshape %1 {shape = [3, 2]} : f32[3, 2] return %2 \"y\"",
       kX + "%1 = reshape %x {shape = [3, 2]} : f32[3, 2] return %1 \"y\""},
      {"reshape_of_splat",
       "(%x: f32[1]) {\n%1 = broadcast %x {shape = [2, 3]} : f32[2, 3] %2 = reshape %1 {shape = [6]} : f32[6] return %2 \"y\"",
       "(%x: f32[1]) {\n%1 = reshape %x {shape = []} : f32[] %2 = broadcast %1 {shape = [6]} : f32[6] return %2 \"y\""},
      {"transpose_identity", kX + "%1 = transpose %x {permutation = [0, 1]} : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"merge_transposes",
       "(%x: f32[2, 3, 4]) {\n%1 = transpose %x {permutation = [1, 2, 0]} : f32[3, 4, 2] %2 = transpose %1 {permutation = [0, 2, "
       "1]} : f32[3, 2, 4] return %2 \"y\"",
       "(%x: f32[2, 3, 4]) {\n%1 = transpose %x {permutation = [1, 0, 2]} : f32[3, 2, 4] return %1 \"y\""},
      {"transpose_unit_dims", "(%x: f32[2, 1, 3]) {\n%1 = transpose %x {permutation = [1, 0, 2]} : f32[1, 2, 3] return %1 \"y\"",
       "(%x: f32[2, 1, 3]) {\n%1 = reshape %x {shape = [1, 2, 3]} : f32[1, 2, 3] return %1 \"y\""},
      {"transpose_of_splat",
       "(%x: f32[]) {\n%1 = broadcast %x {shape = [2, 3]} : f32[2, 3] %2 = transpose %1 {permutation = [1, 0]} : f32[3, 2] "
       "return %2 \"y\"",
       "(%x: f32[]) {\n%1 = broadcast %x {shape = [3, 2]} : f32[3, 2] return %1 \"y\""},
      {"broadcast_to_same", kX + "%1 = broadcast %x {shape = [2, 3]} : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"merge_broadcasts",
       "(%x: f32[3, 1]) {\n%1 = broadcast %x {shape = [3, 2]} : f32[3, 2] %2 = broadcast %1 {shape = [4, 3, 2]} : f32[4, 3, 2] "
       "return %2 \"y\"",
       "(%x: f32[3, 1]) {\n%1 = broadcast %x {shape = [4, 3, 2]} : f32[4, 3, 2] return %1 \"y\""},
      {"broadcast_unit_dims", kX + "%1 = broadcast %x {shape = [1, 2, 3]} : f32[1, 2, 3] return %1 \"y\"",
       kX + "%1 = reshape %x {shape = [1, 2, 3]} : f32[1, 2, 3] return %1 \"y\""},
      {"broadcast_of_leading_ones",
       kX + "%1 = reshape %x {shape = [1, 2, 3]} : f32[1, 2, 3] %2 = broadcast %1 {shape = [4, 2, 3]} : f32[4, 2, 3] return %2 "
            "\"y\"",
       kX + "%1 = broadcast %x {shape = [4, 2, 3]} : f32[4, 2, 3] return %1 \"y\""},
      {"slice_everything", kX + "%1 = slice %x {starts = [0, 0], steps = [1, 1], stops = [2, 3]} : f32[2, 3] return %1 \"y\"",
       kX + "return %x \"y\""},
      {"merge_slices",
       "(%x: f32[20]) {\n%1 = slice %x {starts = [3], steps = [2], stops = [18]} : f32[8] %2 = slice %1 {starts = [1], steps = "
       "[3], stops = [8]} : f32[3] return %2 \"y\"",
       "(%x: f32[20]) {\n%1 = slice %x {starts = [5], steps = [6], stops = [18]} : f32[3] return %1 \"y\""},
      {"slice_of_splat",
       "(%x: f32[]) {\n%1 = broadcast %x {shape = [8]} : f32[8] %2 = slice %1 {starts = [1], steps = [2], stops = [6]} : f32[3] "
       "return %2 \"y\"",
       "(%x: f32[]) {\n%1 = broadcast %x {shape = [3]} : f32[3] return %1 \"y\""},
      {"concatenate_one", kX + "%1 = concatenate %x {axis = 0} : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"pad_nothing", kX + "%1 = pad %x {high = [0, 0], interior = [0, 0], low = [0, 0]} : f32[2, 3] return %1 \"y\"",
       kX + "return %x \"y\""},
      {"add_neighbouring_pads",
       "(%x: f32[2, 3], %y: f32[2, 1]) {\n%2 = pad %x {high = [0, 0], interior = [0, 0], low = [0, 2]} : f32[2, 5]\n"
       "%3 = pad %y {high = [0, 3], interior = [0, 0], low = [0, 1]} : f32[2, 5] %4 = add %2, %3 : f32[2, 5] return %4 \"y\"",
       "(%x: f32[2, 3], %y: f32[2, 1]) {\n%2 = constant {dtype = f32, value = 0} : f32[] %3 = broadcast %2 {shape = [2, 1]} : "
       "f32[2, 1] %4 = add %y, %3 : f32[2, 1]\n"
       "%5 = broadcast %2 {shape = [2, 3]} : f32[2, 3] %6 = add %x, %5 : f32[2, 3]\n"
       "%7 = concatenate %4, %6 {axis = 1} : f32[2, 4] %8 = pad %7 {high = [0, 0], interior = [0, 0], low = [0, 1]} : f32[2, 5] "
       "return %8 \"y\""},
      {"narrow_pieces",
       "(%x: f32[2, 3], %y: f32[2, 1]) {\n%2 = concatenate %x, %y {axis = 1} : f32[2, 4] %3 = reshape %2 {shape = [8]} : f32[8]\n"
       "%4 = cast %3 {dtype = bf16} : bf16[8] return %4 \"y\"",
       "(%x: f32[2, 3], %y: f32[2, 1]) {\n%2 = cast %x {dtype = bf16} : bf16[2, 3] %3 = cast %y {dtype = bf16} : bf16[2, 1]\n"
       "%4 = concatenate %2, %3 {axis = 1} : bf16[2, 4] %5 = reshape %4 {shape = [8]} : bf16[8] return %5 \"y\""},
      {"cast_to_same", kX + "%1 = cast %x {dtype = f32} : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"cast_back",
       "(%x: f32[2], %c: bool[2]) {\n%2 = cast %x {dtype = bf16} : bf16[2] %3 = constant {dtype = bf16, value = 0.0} : bf16[] "
       "%4 = broadcast %3 {shape = [2]} : bf16[2] %5 = select %c, %2, %4 : bf16[2] %6 = cast %5 {dtype = f32} : f32[2]\n"
       "%7 = exp %6 : f32[2] %8 = cast %6 {dtype = bf16} : bf16[2] return %7 \"e\", %8 \"y\"",
       "(%x: f32[2], %c: bool[2]) {\n%2 = cast %x {dtype = bf16} : bf16[2] %3 = constant {dtype = bf16, value = 0.0} : bf16[] "
       "%4 = broadcast %3 {shape = [2]} : bf16[2] %5 = select %c, %2, %4 : bf16[2] %6 = cast %5 {dtype = f32} : f32[2]\n"
       "%7 = exp %6 : f32[2] return %7 \"e\", %5 \"y\""},
      {"cancel_neg", kX + "%1 = neg %x : f32[2, 3] %2 = neg %1 : f32[2, 3] return %2 \"y\"", kX + "return %x \"y\""},
      {"cancel_not", "(%c: bool[2]) {\n%1 = logical_not %c : bool[2] %2 = logical_not %1 : bool[2] return %2 \"y\"",
       "(%c: bool[2]) {\nreturn %c \"y\""},
      {"cancel_swap_pairs", "(%x: f32[4]) {\n%1 = swap_pairs %x : f32[4] %2 = swap_pairs %1 : f32[4] return %2 \"y\"",
       "(%x: f32[4]) {\nreturn %x \"y\""},
      {"select_same", kMask + "%3 = select %c, %x, %x : f32[2] return %3 \"y\"", kMask + "return %x \"y\""},
      {"select_not", kMask + "%3 = logical_not %c : bool[2] %4 = select %3, %x, %y : f32[2] return %4 \"y\"",
       kMask + "%3 = select %c, %y, %x : f32[2] return %3 \"y\""},
      {"drop_stop_gradient", kX + "%1 = stop_gradient %x : f32[2, 3] return %1 \"y\"", kX + "return %x \"y\""},
      {"fold_transpose_a",
       kMatrices + "%2 = transpose %a {permutation = [0, 2, 1]} : f32[2, 4, 3]\n%3 = matmul %2, %b {out_dtype = f32, transpose_a "
                   "= false, transpose_b = false} : f32[2, 4, 5] return %3 \"y\"",
       kMatrices +
           "%2 = matmul %a, %b {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[2, 4, 5] return %2 \"y\""},
      {"fold_transpose_b",
       kMatrices + "%2 = transpose %b {permutation = [1, 0]} : f32[5, 3]\n%3 = matmul %a, %2 {out_dtype = f32, transpose_a = "
                   "true, transpose_b = true} : f32[2, 4, 5] return %3 \"y\"",
       kMatrices +
           "%2 = matmul %a, %b {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[2, 4, 5] return %2 \"y\""},
  };
}

Graph graph_of(const std::string& body) { return parse("graph g" + body + "\n}"); }

TEST(Rules, EachRewritesAndSwitchesOff) {
  std::set<std::string> covered;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.rule);
    covered.insert(c.rule);
    const Graph before = graph_of(c.before);
    const PipelineResult result = run_pipeline(before, {.verify = 2});
    EXPECT_EQ(print(result.graph), print(graph_of(c.after)));
    EXPECT_EQ(result.passes[0].hits.at(c.rule), 1);
    expect_same_bits(before, result.graph, 1);

    const PipelineResult off = run_pipeline(before, {.disabled = {c.rule}, .verify = 2});
    EXPECT_EQ(print(off.graph), print(before));
    EXPECT_FALSE(off.passes[0].changed);
    const PipelineResult no_pass = run_pipeline(before, {.disabled = {"simplify"}});
    EXPECT_EQ(print(no_pass.graph), print(before));
  }
  for (const Rule& rule : all_rules()) EXPECT_TRUE(covered.count(std::string(rule.name))) << "no test for rule " << rule.name;
}

// Near misses: what looks like a rule's pattern and must stay.
TEST(Rules, LeaveTheRestAlone) {
  for (const std::string& body : {
           std::string("(%x: f32[2], %z: f32[2]) {\n %2 = add %x, %z : f32[2] %3 = mul %2, %2 : f32[2] return %3 \"y\""),
           std::string(
               "(%x: f32[2]) {\n %1 = cast %x {dtype = bf16} : bf16[2] %2 = cast %1 {dtype = f32} : f32[2] return %2 \"y\""),
           std::string(
               "(%x: bf16[2]) {\n %1 = cast %x {dtype = f32} : f32[2] %2 = cast %1 {dtype = bf16} : bf16[2] return %2 \"y\""),
           std::string(
               "(%x: bf16[2, 1]) {\n %1 = reshape %x {shape = [2]} : bf16[2] %2 = cast %1 {dtype = f32} : f32[2] %3 = cast %2 "
               "{dtype = bf16} : bf16[2] return %3 \"y\""),
           std::string(
               "(%x: f64[2]) {\n %1 = cast %x {dtype = f32} : f32[2] %2 = cast %1 {dtype = f64} : f64[2] return %2 \"y\""),
           std::string("(%x: f32[2, 1]) {\n %1 = reduce_sum %x {first_axis = 1, num_axes = 1} : f32[2] return %1 \"y\""),
           std::string("(%x: f32[2, 3]) {\n %1 = reshape %x {shape = [2, 1, 3]} : f32[2, 1, 3] %2 = broadcast %1 {shape = [2, 4, "
                       "3]} : f32[2, 4, 3] return %2 \"y\""),
           std::string("(%x: f32[2], %y: f32[2]) {\n %2 = pad %x {high = [3], interior = [0], low = [0]} : f32[5] %3 = pad %y "
                       "{high = [0], interior = [0], low = [3]} : f32[5] "
                       "%4 = add %2, %3 : f32[5] return %4 \"y\""),
           std::string("(%x: f32[2], %y: f32[2]) {\n %2 = pad %x {high = [1], interior = [0], low = [0]} : f32[3] %3 = pad %y "
                       "{high = [0], interior = [0], low = [1]} : f32[3] "
                       "%4 = add %2, %3 : f32[3] return %4 \"y\""),
           std::string("(%x: f32[2]) {\n %1 = maximum %x, %x : f32[2] return %1 \"y\""),
           std::string(
               "(%x: f32[4, 2, 3], %b: f32[4, 5]) {\n %1 = transpose %x {permutation = [2, 1, 0]} : f32[3, 2, 4] "
               "%2 = matmul %1, %b {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[3, 2, 5] return %2 \"y\""),
           std::string("(%x: f32[2]) {\n %1 = neg %x : f32[2] %2 = abs %1 : f32[2] %3 = neg %2 : f32[2] return %3 \"y\""),
       }) {
    const Graph g = graph_of(body);
    EXPECT_EQ(print(run_pipeline(g).graph), print(g));
  }
}

// What a split into q, k and v leaves in the backward pass: three pads become one concatenation, whole.
TEST(Rules, SumsOfPadsJoin) {
  for (unsigned order = 0; order < 3; ++order) {
    Graph g;
    GraphBuilder b(g);
    const int64_t sizes[] = {2, 1, 3};
    Value sum;
    for (unsigned i = 0; i < 3; ++i) {
      const unsigned part = (i + order) % 3;  // orders 0,1,2 and 1,2,0 are neighbours at each step; 2,0,1 leaves a gap first
      const int64_t low = part == 0 ? 0 : part == 1 ? 2 : 3;
      const Value x = g.add_input(fmt::format("x{}", part), {DType::f32, {4, sizes[part]}});
      const Value p = b.op("pad", {x},
                           {{"low", std::vector<int64_t>{0, low}},
                            {"high", std::vector<int64_t>{0, 6 - low - sizes[part]}},
                            {"interior", std::vector<int64_t>{0, 0}}});
      sum = i == 0 ? p : b.add(sum, p);
    }
    g.add_output(sum, "y");
    const Graph after = run_pipeline(g, {.verify = 2}).graph;
    int pads = 0, joins = 0, adds = 0;
    for (const Node& node : after.nodes()) {
      pads += node.op->name == "pad";
      joins += node.op->name == "concatenate";
      adds += node.op->name == "add";
    }
    EXPECT_EQ(pads, order == 2 ? 3 : 0) << print(after);
    EXPECT_EQ(joins, order == 2 ? 0 : 1);
    EXPECT_EQ(adds, order == 2 ? 2 : 3);
    for (unsigned seed = 0; seed < 20; ++seed) expect_same_bits(g, after, seed);
  }
}

TEST(Rules, WorkThroughChains) {
  // Ten reshapes, negations and transposes of one value come down to nothing.
  Graph g;
  GraphBuilder b(g);
  const Value x = g.add_input("x", {DType::f32, {6, 4}});
  Value v = x;
  for (int i = 0; i < 10; ++i) {
    v = b.neg(b.transpose(v, {1, 0}));
    v = b.neg(v);
    v = b.transpose(b.reshape(b.reshape(v, {24}), {4, 6}), {1, 0});
    v = b.op("stop_gradient", {v});
  }
  g.add_output(v, "y");
  const PipelineResult result = run_pipeline(g, {.verify = 2});
  EXPECT_TRUE(result.graph.nodes().empty()) << print(result.graph);
  EXPECT_EQ(result.graph.outputs()[0].value, result.graph.inputs()[0].value);
}

// Random graphs of everything the passes touch: the same bits, and a second run finds nothing.
TEST(Rules, RandomGraphsKeepTheirBits) {
  std::map<std::string, int> hits;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    Graph g;
    GraphBuilder b(g);
    std::vector<Value> pool{g.add_input("x", {DType::f32, {2, 3, 4}}), g.add_input("s", {DType::f32, {}}),
                            g.add_input("m", {DType::f32, {4, 4}})};
    const Value mask = g.add_input("mask", {DType::boolean, {}});
    Value condition = mask;
    for (int i = 0; i < 40; ++i) {
      const Value x = pool[random() % pool.size()], y = pool[random() % pool.size()];
      const Shape shape = b.type_of(x).shape;
      std::vector<int64_t> dims(shape.begin(), shape.end()), order(dims.size());
      for (size_t k = 0; k < order.size(); ++k) order[k] = static_cast<int64_t>(k);
      Value v = x;
      switch (random() % 13) {
        case 0: v = b.neg(x); break;
        case 1:
          if (random() % 2)
            std::rotate(order.begin(), order.begin() + (order.empty() ? 0 : 1), order.end());
          else if (order.size() > 1)
            std::swap(order[order.size() - 1], order[order.size() - 2]);
          v = b.transpose(x, order);
          break;
        case 2: v = b.reshape(x, {shape.num_elements()}); break;
        case 3:
          dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(random() % (dims.size() + 1)), 1);
          if (dims.size() < 5) v = b.reshape(x, Shape(dims));
          break;
        case 4:
          for (int64_t& d : dims)
            if (d == 1 && random() % 2) d = 2;
          if (random() % 2 && dims.size() < 4) dims.insert(dims.begin(), static_cast<int64_t>(1 + random() % 2));
          if (Shape(dims).num_elements() < 500) v = b.op("broadcast", {x}, {{"shape", dims}});
          break;
        case 5: {
          std::vector<int64_t> starts, steps;
          for (int64_t d : dims) {
            starts.push_back(d > 2 && random() % 2 ? 1 : 0);
            steps.push_back(d > 3 && random() % 2 ? 2 : 1);
          }
          v = b.op("slice", {x}, {{"starts", starts}, {"stops", dims}, {"steps", steps}});
          break;
        }
        case 6: v = b.op("stop_gradient", {x}); break;
        case 7:
          if (b.type_of(x) == b.type_of(y)) v = b.select(condition, x, y);
          break;
        case 8: condition = b.op("logical_not", {condition}); break;
        case 9:
          if (b.type_of(x) == b.type_of(y)) v = random() % 2 ? b.add(x, y) : b.mul(y, x);
          break;
        case 10: v = b.cast(b.cast(x, DType::bf16), DType::f32); break;
        case 11:
          v = b.op("pad", {x},
                   {{"low", std::vector<int64_t>(dims.size())},
                    {"high", std::vector<int64_t>(dims.size())},
                    {"interior", std::vector<int64_t>(dims.size())}});
          break;
        default:
          if (dims.size() >= 2 && dims.back() == 4)
            v = b.op("matmul", {x, random() % 2 ? b.transpose(pool[2], {1, 0}) : pool[2]},
                     {{"transpose_a", false}, {"transpose_b", random() % 2 == 0}, {"out_dtype", DType::f32}});
      }
      if (v != x) pool.push_back(v);
    }
    for (int i = 0; i < 5; ++i) g.add_output(pool[random() % pool.size()], fmt::format("y{}", i));
    verify(g);
    const PipelineResult result = run_pipeline(g, {.verify = 2});
    for (const auto& pass : result.passes)
      for (const auto& [name, count] : pass.hits) hits[name] += count;
    expect_same_bits(g, result.graph, seed);
    ASSERT_LE(result.graph.nodes().size(), g.nodes().size() + 2);
    for (const PassStatistics& pass : run_pipeline(result.graph).passes) EXPECT_FALSE(pass.changed) << pass.name;
    ASSERT_EQ(print(parse(print(result.graph))), print(result.graph));
  }
  for (const char* name : {"merge_reshapes", "merge_transposes", "merge_slices", "merge_broadcasts", "fold_transpose_b",
                           "select_not", "merged", "dead"})
    EXPECT_GT(hits[name], 5) << name << ": the random graphs should reach this";
}

}  // namespace
}  // namespace ws
