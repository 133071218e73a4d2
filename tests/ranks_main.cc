// The tests that run under mpirun: every rank runs all of them, in one order.
#include <gtest/gtest.h>

#include "wholestep/distributed.h"

namespace ws {
namespace {

/// Ends every rank at the first failure of one, whose message has been printed by then: the others may be waiting for it.
class EndsAllRanks : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed() && distributed::size() > 1) distributed::abort("a test failed, which ends all ranks");
  }
};

// Shows that it does: run by a test of its own (cmake/ranks_tests.cmake).
TEST(FailingRank, DISABLED_EndsTheOthers) {
  if (distributed::rank() == 1) FAIL() << "on purpose";
  distributed::barrier();
}

}  // namespace
}  // namespace ws

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ws::distributed::Job job;
  testing::UnitTest::GetInstance()->listeners().Append(new ws::EndsAllRanks);  // which owns it
  return RUN_ALL_TESTS();
}
