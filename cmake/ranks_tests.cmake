# tests/ranks_*.cc: one program that runs under mpirun, on as many ranks as the test says. As root, with more ranks than cores and
# without a network it works too.
find_program(WS_MPIRUN mpirun)
file(GLOB ranks_sources CONFIGURE_DEPENDS tests/ranks_*.cc)
add_executable(test_ranks ${ranks_sources})
target_link_libraries(test_ranks PRIVATE ${WS_OBJECTS} GTest::gmock GTest::gtest)
set(ranks_environment
  "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_btl=self,vader;OMPI_MCA_mpi_yield_when_idle=1;WHOLESTEP_THREADS=1")
foreach(count 1 2 4)
  add_test(NAME ranks_${count} COMMAND ${WS_MPIRUN} -q --oversubscribe --bind-to none -n ${count} $<TARGET_FILE:test_ranks> --gtest_brief=1)
  set_tests_properties(ranks_${count} PROPERTIES TIMEOUT ${WS_TEST_SECONDS} PROCESSORS 2 ENVIRONMENT "${ranks_environment}")
endforeach()
# A failure of one rank does not leave the others waiting.
add_test(NAME ranks_failing COMMAND ${WS_MPIRUN} -q --oversubscribe --bind-to none -n 2 $<TARGET_FILE:test_ranks> --gtest_brief=1
  --gtest_also_run_disabled_tests --gtest_filter=FailingRank.*)
set_tests_properties(ranks_failing PROPERTIES TIMEOUT 60 PROCESSORS 2 ENVIRONMENT "${ranks_environment}"
  PASS_REGULAR_EXPRESSION "rank 1: a test failed, which ends all ranks")
# Guards around every buffer, freed memory poisoned, gradients in flight included.
add_test(NAME ranks_poisoned COMMAND ${WS_MPIRUN} -q --oversubscribe --bind-to none -n 2 $<TARGET_FILE:test_ranks> --gtest_brief=1
  --gtest_filter=DataParallel.*:Overlap.*:ShardedOptimizer.*)
set_tests_properties(ranks_poisoned PROPERTIES TIMEOUT ${WS_TEST_SECONDS} PROCESSORS 2 ENVIRONMENT
  "WHOLESTEP_POISON=1;${ranks_environment}")
