# One file per ISA, each with its own flags. No contraction: FMAs are those that the source writes.
# g++ 12 warns of undefined values inside its own AVX-512 header.
set(WS_GEMM_FLAGS "-O3;-ffp-contract=off")
if(WS_SANITIZE)
  # The presets' -O1: instrumented, -O3 takes over ten minutes a file. Two checks of pointers take half of the rest; addresses are
  # checked where they are read.
  set(WS_GEMM_FLAGS "-ffp-contract=off;-Wno-uninitialized;-fno-sanitize=pointer-overflow,object-size")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(src/backend/cpu/gemm/gemm_avx2.cc PROPERTIES COMPILE_OPTIONS "${WS_GEMM_FLAGS};-mavx2;-mfma")
  set_source_files_properties(src/backend/cpu/gemm/gemm_avx512.cc PROPERTIES COMPILE_OPTIONS "${WS_GEMM_FLAGS};-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mfma;-Wno-maybe-uninitialized")
  set_source_files_properties(src/backend/cpu/gemm/gemm_avx512_bf16.cc PROPERTIES COMPILE_OPTIONS "${WS_GEMM_FLAGS};-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx512bf16;-mfma;-Wno-maybe-uninitialized")
  set_source_files_properties(src/backend/cpu/gemm/gemm_amx.cc PROPERTIES COMPILE_OPTIONS "${WS_GEMM_FLAGS};-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mamx-tile;-mamx-bf16;-mfma;-Wno-maybe-uninitialized")
endif()
