# tests/ranks_*.cc: one program that runs under mpirun, on as many ranks as the test says. As root, with more ranks than cores and
# without a network it works too.
find_program(WS_MPIRUN mpirun)
file(GLOB ranks_sources CONFIGURE_DEPENDS tests/ranks_*.cc)
add_executable(test_ranks ${ranks_sources})
target_link_libraries(test_ranks PRIVATE ${WS_OBJECTS} GTest::gmock GTest::gtest)
foreach(count 2 4)
  add_test(NAME ranks_${count} COMMAND ${WS_MPIRUN} -q --oversubscribe --bind-to none -n ${count} $<TARGET_FILE:test_ranks> --gtest_brief=1)
  set_tests_properties(ranks_${count} PROPERTIES TIMEOUT 300 PROCESSORS 2 ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_btl=self,vader;OMPI_MCA_mpi_yield_when_idle=1;WHOLESTEP_THREADS=1")
endforeach()
