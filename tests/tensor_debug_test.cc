// What each DEBUG level adds.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/flags.h"
#include "support/log.h"
#include "tensor/program_cache.h"
#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

/// Notes of one compile and run of a function that no other test compiles.
std::string notes_at(int level) {
  FlagScope debug("debug", std::to_string(level));
  std::string notes;
  set_note_sink([&](std::string_view text) { notes += std::string(text) + '\n'; });
  {
    auto f = jit({.name = "debugged"}, [level](const Tensor& x) {
      PathScope scope("layer");
      Tensor y = exp(x) * static_cast<double>(level + 3);
      return exp(x) + y;
    });
    f(Tensor::ones({8, 8}));
  }
  set_note_sink({});
  return notes;
}

TEST(Debug, EachLevelAddsToTheOneBelow) {
  const char* const kSigns[] = {
      "", "compiled in", "no plan below", "eliminate_common_subexpressions leaves", "plan of debugged", "GFLOP/s", "define"};
  for (int level = 0; level <= 6; ++level) {
    const std::string notes = notes_at(level);
    for (int sign = 1; sign <= 6; ++sign)
      EXPECT_EQ(notes.find(kSigns[sign]) != std::string::npos, sign <= level) << "level " << level << ": " << kSigns[sign] << "\n"
                                                                              << notes;
  }
}

// What a program is compiled with it keeps: guards, and that each kernel is looked at.
TEST(Debug, ProgramsUnderChecksAreTheirOwn) {
  const auto compiled_by = [](std::string_view flag, std::string_view value) {
    const FlagScope scope(flag, value);
    const int64_t before = num_programs_compiled();
    auto f = jit({.name = "checked"}, [](const Tensor& x) { return exp(x) * 123.0; });
    EXPECT_NEAR(f(Tensor::zeros({3})).to_vector<float>()[0], 123, 1e-4);
    return num_programs_compiled() - before;
  };
  EXPECT_EQ(compiled_by("poison", "0"), 1);
  EXPECT_EQ(compiled_by("poison", "0"), 0);
  EXPECT_EQ(compiled_by("poison", "1"), 1);
  EXPECT_EQ(compiled_by("verify", "3"), 1);
  EXPECT_EQ(compiled_by("verify", "1"), 0);
}

// The reference computes in double precision, where these squares and their quotients stay finite.
TEST(Debug, VerifyKnowsWhatLeavesTheRange) {
  const FlagScope verify("verify", "3");
  auto f = jit([](const Tensor& x) {
    const Tensor square = x * x;
    return (square - square) + 1.0;
  });
  const std::vector<float> got = f(Tensor::from(std::vector{3e20f, 2.0f, 1e-30f}, {3})).to_vector<float>();
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], 1);
  EXPECT_EQ(got[2], 1);
  auto g = jit([](const Tensor& x) { return 1.0 / (x * x); });
  EXPECT_EQ(g(Tensor::from(std::vector{1e-30f}, {1})).to_vector<float>()[0], HUGE_VALF);
}

}  // namespace
}  // namespace ws
