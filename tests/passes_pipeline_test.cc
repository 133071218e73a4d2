#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "passes/pipeline.h"
#include "support/error.h"
#include "support/log.h"

namespace ws {
namespace {

int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (const Node& node : g.nodes()) n += node.op->name == op;
  return n;
}

Graph body(const std::string& text) { return parse("graph g(%x: f32[2], %i: i32[2], %k: u32[4]) {\n" + text + "\n}"); }

TEST(CommonSubexpressions, MergesEqualNodes) {
  const Graph g =
      run_pipeline(body("%1 = exp %x : f32[2]  @first %2 = exp %x : f32[2]  @second %3 = sub %1, %2 : f32[2] return %3 \"y\""))
          .graph;
  ASSERT_EQ(g.nodes().size(), 2u);
  EXPECT_EQ(g.nodes()[0].path, "first");
  EXPECT_EQ(g.nodes()[1].inputs[0], g.nodes()[1].inputs[1]);
}

TEST(CommonSubexpressions, Commutes) {
  const Graph g = run_pipeline(body("%1 = exp %x : f32[2] %2 = add %x, %1 : f32[2] %3 = add %1, %x : f32[2] %4 = sub %x, %1 : "
                                    "f32[2] %5 = sub %1, %x : f32[2] "
                                    "return %2 \"a\", %3 \"b\", %4 \"c\", %5 \"d\""),
                               {.verify = 2})
                      .graph;
  EXPECT_EQ(count(g, "add"), 1);
  EXPECT_EQ(count(g, "sub"), 2);
  EXPECT_EQ(g.outputs()[0].value, g.outputs()[1].value);
  EXPECT_EQ(g.outputs()[1].name, "b");
}

TEST(CommonSubexpressions, AttributesAndStreamsCount) {
  const Graph g =
      run_pipeline(body("%1 = constant {dtype = f32, value = 0.0} : f32[] %2 = constant {dtype = f32, value = -0.0} : f32[] "
                        "%3 = random_bits %k, %k {offset = 0, stream = 0} : u32[4] %4 = random_bits %k, %k {offset = 0, stream = "
                        "1} : u32[4] "
                        "%5 = random_bits %k, %k {offset = 0, stream = 1} : u32[4] return %1 \"a\", %2 \"b\", %3 \"c\", %4 "
                        "\"d\", %5 \"e\""))
          .graph;
  EXPECT_EQ(count(g, "constant"), 2) << "0 and -0 differ";
  EXPECT_EQ(count(g, "random_bits"), 2);
  EXPECT_EQ(g.outputs()[3].value, g.outputs()[4].value);
}

TEST(Effects, StayAndMergeOnlyWhereEqual) {
  const Graph g = run_pipeline(body("%1 = neg %i : i32[2] %2 = check_range %1 {high = 5, low = 0, what = \"label\"} : i32[2] "
                                    "%3 = check_range %1 {high = 5, low = 0, what = \"token\"} : i32[2] %4 = check_range %1 "
                                    "{high = 5, low = 0, what = \"label\"} : i32[2] "
                                    "%5 = exp %x : f32[2] return %x \"y\""),
                               {.verify = 2})
                      .graph;
  EXPECT_EQ(count(g, "check_range"), 2);
  EXPECT_EQ(count(g, "neg"), 1) << "a check needs its input";
  EXPECT_EQ(count(g, "exp"), 0);
}

TEST(Pipeline, KeepsSignatureNamesAndDonations) {
  const Graph g = parse(R"(graph step(%0 "x": f32[2], %1 "w": f32[2], %2 "unused": f32[3], %3 "v": f32[2]) {
  %4 = stop_gradient %0 : f32[2]
  %5 = add %1, %4 : f32[2]  @opt
  %6 = add %1, %0 : f32[2]
  return %5 "w" donates 1, %6 "v" donates 3, %4 "echo"
})");
  const Graph after = run_pipeline(g, {.verify = 2}).graph;
  EXPECT_EQ(print(after), R"(graph step(%0 "x": f32[2], %1 "w": f32[2], %2 "unused": f32[3], %3 "v": f32[2]) {
  %4 = add %1, %0 : f32[2]  @opt
  return %4 "w" donates 1, %4 "v" donates 3, %0 "echo"
}
)");
}

TEST(Pipeline, StatisticsSwitchesAndNames) {
  const Graph g = body("%1 = exp %x : f32[2] %2 = exp %x : f32[2] %3 = add %1, %2 : f32[2] %4 = log %x : f32[2] return %3 \"y\"");
  const PipelineResult all = run_pipeline(g);
  EXPECT_EQ(all.graph.nodes().size(), 2u);
  EXPECT_EQ(all.passes.size(), 6u) << "two rounds: the second finds nothing";
  EXPECT_EQ(all.passes[1].hits.at("merged"), 1);
  EXPECT_EQ(all.passes[2].hits.at("dead"), 1);
  EXPECT_EQ(all.passes[2].num_nodes, 2);
  EXPECT_EQ(run_pipeline(g, {.disabled = {"eliminate_dead_code"}}).graph.nodes().size(), 3u);
  EXPECT_EQ(run_pipeline(g, {.disabled = {"eliminate_common_subexpressions"}}).graph.nodes().size(), 3u);
  const auto names = pass_and_rule_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_NE(std::find(names.begin(), names.end(), "merge_reshapes"), names.end());
}

TEST(Pipeline, DumpsAndTimes) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("wholestep_passes_{}", getpid());
  std::vector<std::string> notes;
  set_note_sink([&](std::string_view line) { notes.emplace_back(line); });
  Graph g = body("%1 = exp %x : f32[2] return %x \"y\"");
  g.name = "a/g";
  run_pipeline(g, {.dump_directory = folder.string(), .time = true});
  set_note_sink({});
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.insert(entry.path().filename().string());
  EXPECT_EQ(files, (std::set<std::string>{"a_g.00_trace.ir", "a_g.01_simplify.ir", "a_g.02_eliminate_common_subexpressions.ir",
                                          "a_g.03_eliminate_dead_code.ir"}));
  std::stringstream text;
  text << std::ifstream(folder / "a_g.00_trace.ir").rdbuf();
  EXPECT_EQ(text.str(), print(g));
  EXPECT_EQ(notes.size(), 6u);
  std::filesystem::remove_all(folder);
}

TEST(Pipeline, VerifyNamesThePass) {
  Graph g = body("return %x \"y\"");
  g.add_output(Value{99}, "bad");
  try {
    run_pipeline(g, {.verify = 1});
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("after pass trace"), std::string::npos);
  }
}

}  // namespace
}  // namespace ws
