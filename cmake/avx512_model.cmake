# AVX-512's kernels on a model of its instructions (tests/avx512_model), for the tests that ask for instruction sets by name.
if(WS_TESTS AND TARGET test_backend AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB models CONFIGURE_DEPENDS tests/avx512_model/*.cc)
  add_library(ws_avx512_model OBJECT ${models})
  target_include_directories(ws_avx512_model PRIVATE include src)
  target_link_libraries(ws_avx512_model PRIVATE fmt::fmt)
  # Little optimized: the compiler has most of the work. Attributes of register types are left out of templates' arguments, as meant.
  target_compile_options(ws_avx512_model PRIVATE -O1 -mavx2 -mfma -Wno-psabi -Wno-ignored-attributes)
  foreach(program test_backend test_runtime)
    target_link_libraries(${program} PRIVATE ws_avx512_model)
  endforeach()
endif()
