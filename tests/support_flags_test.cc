#include "support/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error.h"

namespace ws {
namespace {

std::string error_of(std::string_view name, std::string_view value) {
  try {
    FlagScope scope(name, value);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Flags, EachIsSetFromTextAndRestored) {
  const Flags before = flags();
  {
    FlagScope a("debug", "3"), b("nan_check", "1"), c("disable", "fuse,,fold_constants"), d("isa", "avx2");
    EXPECT_EQ(flags().debug, 3);
    EXPECT_TRUE(flags().nan_check);
    EXPECT_THAT(flags().disable, testing::ElementsAre("fuse", "fold_constants"));
    EXPECT_TRUE(flags().disabled("fuse"));
    EXPECT_FALSE(flags().disabled("fus"));
    EXPECT_EQ(flags().isa, "avx2");
  }
  EXPECT_EQ(flags().debug, before.debug);
  EXPECT_EQ(flags().isa, before.isa);
}

TEST(Flags, BadValuesNameTheSourceAndWhatIsAllowed) {
  EXPECT_EQ(error_of("debug", "7"), "debug must be a whole number from 0 to 6, not '7'");
  EXPECT_EQ(error_of("debug", "1x"), "debug must be a whole number from 0 to 6, not '1x'");
  EXPECT_EQ(error_of("debug", ""), "debug must be a whole number from 0 to 6, not ''");
  EXPECT_EQ(error_of("threads", "99999999999"), "threads must be a whole number from 0 to 1024, not '99999999999'");
  EXPECT_EQ(error_of("cache", "maybe"), "cache must be 0 or 1, not 'maybe'");
  EXPECT_EQ(error_of("speed", "1"), "there is no flag 'speed'");
}

TEST(Flags, NamesFollowFromTheTable) {
  for (const FlagSpec& spec : flag_specs()) {
    EXPECT_THAT(spec.environment, testing::StartsWith("WHOLESTEP_"));
    EXPECT_THAT(spec.option, testing::StartsWith("--"));
    EXPECT_FALSE(spec.help.empty());
    if (spec.name == "nan_check") {
      EXPECT_EQ(spec.environment, "WHOLESTEP_NAN_CHECK");
      EXPECT_EQ(spec.option, "--nan-check");
    }
  }
}

TEST(Flags, ThreadsDefaultToTheUsableCores) {
  EXPECT_GE(configured_threads(), 1);
  FlagScope scope("threads", "7");
  EXPECT_EQ(configured_threads(), 7);
}

}  // namespace
}  // namespace ws
