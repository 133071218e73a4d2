// The tests that run under mpirun: every rank runs all of them, in one order.
#include <gtest/gtest.h>

#include "wholestep/distributed.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ws::distributed::Job job;
  return RUN_ALL_TESTS();
}
