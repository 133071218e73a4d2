# One file per ISA, each with its own flags; no contraction: FMAs are those that the source writes.
# g++ 12 warns of undefined values inside its own AVX-512 header.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(src/backend/cpu/attention/attention_avx2.cc PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=off;-mavx2;-mfma")
  set_source_files_properties(src/backend/cpu/attention/attention_avx512.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-ffp-contract=off;-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mfma;-Wno-maybe-uninitialized")
  set_source_files_properties(src/backend/cpu/attention/attention_avx512_bf16.cc PROPERTIES
    COMPILE_OPTIONS "-O3;-ffp-contract=off;-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx512bf16;-mfma;-Wno-maybe-uninitialized")
endif()
