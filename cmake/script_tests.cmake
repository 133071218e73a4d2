# Tests that are scripts: which folder includes which, the installed package, the command line, the documents.
find_program(WS_BASH bash REQUIRED)
function(ws_add_script_test name)
  add_test(NAME ${name} COMMAND ${WS_BASH} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${WS_TEST_SECONDS} ENVIRONMENT
    "WS_SOURCE=${CMAKE_CURRENT_SOURCE_DIR};WS_BUILD=${CMAKE_BINARY_DIR};WS=${CMAKE_BINARY_DIR}/wholestep")
endfunction()
file(GLOB script_tests CONFIGURE_DEPENDS tests/scripts/*_test.sh)
foreach(script IN LISTS script_tests)
  get_filename_component(name ${script} NAME_WE)
  string(REPLACE "_test" "" name ${name})
  ws_add_script_test(${name} ${script})
endforeach()
