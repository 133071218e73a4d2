// Cost, memory, prediction, classification and profile of a small program with figures that can be checked by hand.
#include "analysis/reports.h"

#include <gtest/gtest.h>

#include <set>

#include "support/bytes.h"
#include "support/error.h"

namespace ws {
namespace {

constexpr const char* kText = R"(graph small(%0 "x": f32[64, 256], %1 "w": f32[256, 512]) {
  %2 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[64, 512]  @fc
  %3 = exp %2 : f32[64, 512]  @act
  %4 = reduce_sum %3 {first_axis = 1, num_axes = 1} : f32[64]  @sum
  return %4 "y"
}
)";

struct Small {
  std::unique_ptr<Executable> executable = compile();
  static std::unique_ptr<Executable> compile() {
    ExecutableOptions options;
    options.fuse = false;
    return Executable::compile(parse(kText), options);
  }
  const Program& program() const { return executable->program(); }
  const MemoryPlan& plan() const { return executable->plan(); }
};

Roofs roofs() {
  Roofs r;
  r.cpu = "test";
  r.fp32_flops_per_s = 1e11;
  r.memory_bytes_per_s = 1e10;
  r.levels = {{"L1", 32 << 10, 1e12, 1e12}, {"L2", 1 << 20, 1e11, 1e11}, {"L3", 8 << 20, 5e10, 5e10}, {"DRAM", 0, 1e10, 1e10}};
  r.rates = {{"matmul", 128, 5e10}, {"elementwise", 0, 1e10}, {"reduction", 0, 1e10}};
  r.barrier_ns = 1000;
  r.dispatch_ns = 10;
  return r;
}

TEST(Reports, CostByKernelAndKind) {
  const Small s;
  const CostAnalysis cost = analyse_cost(s.program());
  ASSERT_GE(cost.num_kernels, 3);
  EXPECT_EQ(cost.kinds[0].kind, "matmul");
  EXPECT_EQ(cost.kinds[0].flops, 2.0 * 64 * 256 * 512);
  double flops = 0, bytes = 0;
  for (const KernelCost& k : cost.kernels) flops += k.flops, bytes += k.bytes;
  EXPECT_EQ(cost.flops, flops);
  EXPECT_EQ(cost.bytes, bytes);
  EXPECT_EQ(cost.kernels[0].path, "fc");
  EXPECT_NE(cost.text().find("matmul"), std::string::npos);
  const Json json = parse_json(cost.json(), "cost");
  EXPECT_EQ(json["kernels"].size(), cost.kernels.size());
  EXPECT_EQ(json["flops"].get<double>(), flops);
}

TEST(Reports, MemoryByTensorAndItsMap) {
  const Small s;
  const MemoryAnalysis m = analyse_memory(s.program(), s.plan(), 0);
  int64_t arguments = 0;
  bool found = false;
  for (const TensorMemory& t : m.tensors) {
    if (t.role == "argument") arguments += t.bytes;
    if (t.role == "temporary" && t.path == "fc" && t.bytes == 64 * 512 * 4) found = true;
    if (t.offset >= 0) {
      EXPECT_LE(t.offset + t.bytes, m.arena_bytes);
    }
  }
  EXPECT_EQ(arguments, (64 * 256 + 256 * 512) * 4);
  EXPECT_EQ(arguments, m.argument_bytes);
  EXPECT_TRUE(found);
  EXPECT_NE(m.text().find("temporaries"), std::string::npos);
  const std::string svg = m.map_svg(), html = m.map_html("a < b");
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_NE(svg.find("@fc"), std::string::npos);
  EXPECT_NE(html.find("a &lt; b"), std::string::npos);
  EXPECT_NE(html.find("</html>"), std::string::npos);
  EXPECT_EQ(parse_json(m.json(), "memory")["tensors"].size(), m.tensors.size());
}

TEST(Reports, PredictionIsTheRoofOfEachKernel) {
  const Small s;
  const Prediction p = predict_time(s.program(), s.plan(), roofs());
  ASSERT_EQ(p.kernels.size(), s.program().calls.size());
  double seconds = 0;
  for (const auto& k : p.kernels) {
    EXPECT_DOUBLE_EQ(k.seconds, std::max(k.compute_seconds, k.memory_seconds) + k.dispatch_seconds);
    seconds += k.seconds;
  }
  EXPECT_DOUBLE_EQ(p.seconds, seconds);
  EXPECT_NEAR(p.compute_share + p.memory_share + p.dispatch_share, 1, 1e-12);
  EXPECT_DOUBLE_EQ(p.kernels[0].compute_seconds, 2.0 * 64 * 256 * 512 / 5e10);
  EXPECT_EQ(p.kernels[0].bound, "compute");
  Roofs slow = roofs();  // memory a thousand times slower
  for (auto& level : slow.levels) level.read_bytes_per_s /= 1000, level.copy_bytes_per_s /= 1000;
  EXPECT_GT(predict_time(s.program(), s.plan(), slow).memory_share, 0.99);
}

TEST(Reports, ClassificationNamesTheLimit) {
  const Small s;
  const auto classify = [&](const Roofs& r, double measured = 0) {
    return classify_step(s.program(), predict_time(s.program(), s.plan(), r), r, measured);
  };
  Roofs r = roofs();
  EXPECT_EQ(classify(r).bound, "compute");
  EXPECT_NE(classify(r).next_change.find("bf16"), std::string::npos);
  for (auto& level : r.levels) level.read_bytes_per_s /= 1000, level.copy_bytes_per_s /= 1000;
  EXPECT_EQ(classify(r).bound, "memory");
  r = roofs();
  r.barrier_ns = r.dispatch_ns = 1e8;
  EXPECT_EQ(classify(r).bound, "dispatch");
  EXPECT_NE(classify(r).next_change.find("batch"), std::string::npos);
  const Classification measured = classify(roofs(), 1e-3);
  EXPECT_TRUE(measured.measured);
  double flops = 0;
  for (const KernelCall& call : s.program().calls) flops += call.cost.flops;
  EXPECT_DOUBLE_EQ(measured.flops_per_s, flops / 1e-3);
  EXPECT_NE(measured.text().find("measured 1 ms"), std::string::npos) << measured.text();
  EXPECT_EQ(parse_json(measured.json(), "c")["bound"].get<std::string>(), measured.bound);
}

TEST(Reports, ProfileAgainstTheRoof) {
  const Small s;
  const Prediction p = predict_time(s.program(), s.plan(), roofs());
  std::vector<double> seconds(s.program().calls.size(), 1e-3);
  const Profile profile = make_profile(s.program(), seconds, p, roofs());
  EXPECT_NEAR(profile.seconds, 1e-3 * static_cast<double>(seconds.size()), 1e-12);
  EXPECT_DOUBLE_EQ(profile.kernels[0].flops_per_s, 2.0 * 64 * 256 * 512 / 1e-3);
  EXPECT_GT(profile.kernels[0].roof_share, 0);
  EXPECT_NE(profile.text().find("fc"), std::string::npos);

  const std::vector<Profile::Kind> kinds = profile.by_kind();
  Profile::Kind all;
  std::set<std::string> names;
  for (const Profile::Kind& k : kinds) {
    EXPECT_TRUE(names.insert(k.kind).second) << k.kind;
    all.kernels += k.kernels, all.seconds += k.seconds, all.flops += k.flops, all.least_seconds += k.least_seconds;
  }
  EXPECT_EQ(all.kernels, static_cast<int>(profile.kernels.size()));
  EXPECT_NEAR(all.seconds, profile.seconds, 1e-12);
  double flops = 0, least = 0;
  for (const Profile::Kernel& k : profile.kernels) flops += k.flops, least += k.least_seconds;
  EXPECT_DOUBLE_EQ(all.flops, flops);
  EXPECT_NEAR(all.least_seconds, least, 1e-12);
  EXPECT_GE(kinds.front().seconds, kinds.back().seconds);
  EXPECT_NE(profile.kinds_text().find("matmul"), std::string::npos) << profile.kinds_text();
  EXPECT_EQ(parse_json(profile.json(), "p")["kinds"].size(), kinds.size());
}

TEST(Bytes, AreReadAndWrittenAsPeopleDo) {
  EXPECT_EQ(parse_bytes("2GiB", "x"), int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5 MiB", "x"), 3 << 19);
  EXPECT_EQ(parse_bytes("64k", "x"), 64 << 10);
  EXPECT_EQ(parse_bytes("4096", "x"), 4096);
  for (const char* wrong : {"", "GiB", "-1", "0", "2XB", "2GiBs", "nan", "1e30"})
    EXPECT_THROW(parse_bytes(wrong, "x"), Error) << wrong;
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1.5 * (1 << 30)), "1.50 GiB");
}

}  // namespace
}  // namespace ws
