// What each DEBUG level adds.
#include <gtest/gtest.h>

#include "support/flags.h"
#include "support/log.h"
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

}  // namespace
}  // namespace ws
