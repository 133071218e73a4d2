#include "analysis/roofs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "backend/cpu/isa.h"
#include "support/error.h"

namespace ws {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kInstrumented = true;  // each access is checked: the checks take the time, whatever level answers
#else
constexpr bool kInstrumented = false;
#endif
constexpr double kMostSeconds = kInstrumented ? 60 : 6;

TEST(Roofs, AreInOrderAndQuick) {
  const std::clock_t start = std::clock();
  const Roofs roofs = measure_roofs(2);
  // Processor time of both threads, so that neighbours do not count: about two seconds each.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kMostSeconds);
  ASSERT_FALSE(roofs.peaks.empty());
  for (const auto& peak : roofs.peaks) {
    EXPECT_GT(peak.one_thread_flops_per_s, 1e9);
    EXPECT_GE(peak.flops_per_s, peak.one_thread_flops_per_s);
    EXPECT_LT(peak.one_thread_flops_per_s, 1e12);
  }
  EXPECT_EQ(roofs.bf16_flops_per_s > 0, cpu::supports(cpu::Isa::avx512_bf16));
  if (roofs.bf16_flops_per_s > 0) {
    EXPECT_GT(roofs.bf16_flops_per_s, 1e9);
  }
  ASSERT_EQ(roofs.levels.size(), 4u);
  if (!kInstrumented) {
    EXPECT_GT(roofs.levels[0].read_bytes_per_s, roofs.levels[3].read_bytes_per_s);  // L1 against DRAM: an order of magnitude
  }
  EXPECT_GT(roofs.levels[3].read_bytes_per_s, 5e8);
  EXPECT_GT(roofs.barrier_ns, roofs.dispatch_ns);
  EXPECT_LT(roofs.dispatch_ns, 10000);
  EXPECT_NE(roofs.text().find("DRAM"), std::string::npos);
}

TEST(Roofs, BandwidthByWorkingSet) {
  Roofs roofs;
  roofs.threads = 2;
  roofs.levels = {{"L1", 100, 8, 4}, {"L2", 1000, 6, 3}, {"L3", 5000, 4, 2}, {"DRAM", 0, 2, 1}};
  EXPECT_EQ(roofs.bytes_per_s(200), 8);
  EXPECT_EQ(roofs.bytes_per_s(201), 6);
  EXPECT_EQ(roofs.bytes_per_s(2001), 4);
  EXPECT_EQ(roofs.bytes_per_s(5001), 2);
}

TEST(Roofs, RateOfAKernelByKindAndSize) {
  Roofs roofs;
  roofs.fp32_flops_per_s = 100;
  roofs.rates = {{"matmul", 16, 10}, {"matmul", 64, 50}, {"reduction", 0, 5}};
  EXPECT_EQ(roofs.flops_per_s("matmul", 8), 10);
  EXPECT_NEAR(roofs.flops_per_s("matmul", 32), 30, 1e-9);  // halfway in the logarithm
  EXPECT_EQ(roofs.flops_per_s("matmul", 1000), 50);
  EXPECT_EQ(roofs.flops_per_s("reduction"), 5);
  EXPECT_EQ(roofs.flops_per_s("attention"), 100);
}

TEST(Roofs, AreCachedForThisMachineOnly) {
  const auto folder = std::filesystem::temp_directory_path() / ("wholestep_roofs_" + std::to_string(getpid()));
  const std::string file = (folder / "new" / "roofs.json").string();
  const Roofs first = cached_roofs(file, 1);
  const Roofs second = cached_roofs(file, 1);
  EXPECT_EQ(to_json(first).dump(), to_json(second).dump());  // read back, not measured again
  {
    Json other = to_json(first);
    other["cpu"] = "another machine";
    other["barrier_ns"] = -1;
    std::ofstream(file) << other.dump();
  }
  EXPECT_GE(cached_roofs(file, 1).barrier_ns, 0);
  std::ofstream(file) << "{ cut";
  EXPECT_GE(cached_roofs(file, 1).barrier_ns, 0);
  EXPECT_THROW(roofs_from_json(Json::parse(R"({"cpu": 3})"), "r.json"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ws
