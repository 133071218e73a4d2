# Finds LLVM 19 by its headers and its shared library. LLVM's own package file asks for the development files of everything
# that LLVM was built with (zlib, zstd, libxml2, libedit, curses); a program that links libLLVM needs none of them.
# Defines the target LLVM19::LLVM.
find_path(LLVM19_INCLUDE_DIR llvm/ExecutionEngine/Orc/LLJIT.h
  HINTS ${LLVM19_ROOT}/include /usr/lib/llvm-19/include /usr/local/opt/llvm@19/include NO_CMAKE_SYSTEM_PATH)
find_library(LLVM19_LIBRARY NAMES LLVM-19 LLVM
  HINTS ${LLVM19_ROOT}/lib /usr/lib/llvm-19/lib /usr/local/opt/llvm@19/lib NO_CMAKE_SYSTEM_PATH)
if(LLVM19_INCLUDE_DIR)
  file(STRINGS ${LLVM19_INCLUDE_DIR}/llvm/Config/llvm-config.h LLVM19_VERSION REGEX "#define LLVM_VERSION_STRING ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" LLVM19_VERSION "${LLVM19_VERSION}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LLVM19 REQUIRED_VARS LLVM19_LIBRARY LLVM19_INCLUDE_DIR VERSION_VAR LLVM19_VERSION
  REASON_FAILURE_MESSAGE "install llvm-19-dev, or give -DLLVM19_ROOT=PREFIX")
mark_as_advanced(LLVM19_INCLUDE_DIR LLVM19_LIBRARY)
if(LLVM19_FOUND AND NOT TARGET LLVM19::LLVM)
  add_library(LLVM19::LLVM SHARED IMPORTED)
  set_target_properties(LLVM19::LLVM PROPERTIES IMPORTED_LOCATION "${LLVM19_LIBRARY}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LLVM19_INCLUDE_DIR}" INTERFACE_INCLUDE_DIRECTORIES "${LLVM19_INCLUDE_DIR}")
endif()
