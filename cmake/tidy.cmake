# `ninja tidy`: clang-tidy over the library and the command line. Slower than all the tests, so not part of ./check.
# Left out: files whose inline assembly clang takes for an error outside a function of that instruction set.
find_program(RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(RUN_CLANG_TIDY)
  add_custom_target(tidy COMMAND ${RUN_CLANG_TIDY} -quiet -p ${CMAKE_BINARY_DIR} "${CMAKE_CURRENT_SOURCE_DIR}/(src|cli)/(?!analysis/roof_probes|analysis/rate_probes).*"
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} USES_TERMINAL)
endif()
