// AVX2 with FMA registers of floats, as GEMM's and attention's register tiles use them. Only for files compiled for that instruction set;
// each has its own copy (unnamed namespace), so that no other file can be linked to its code.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

struct Avx2Registers {
  static constexpr int kLanes = 8;
  using Reg = __m256;
  static Reg zero() { return _mm256_setzero_ps(); }
  static Reg load(const float* p) { return _mm256_loadu_ps(p); }
  static __m256i mask(int lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg load_part(const float* p, int lanes) { return _mm256_maskload_ps(p, mask(lanes)); }
  static Reg load(const ws::Bf16* p) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  }
  static Reg load_part(const ws::Bf16* p, int lanes) {
    ws::Bf16 part[kLanes] = {};
    std::memcpy(part, p, static_cast<size_t>(lanes) * sizeof(ws::Bf16));
    return load(part);
  }
  static Reg broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Reg fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static void store(float* p, Reg r) { _mm256_storeu_ps(p, r); }
  static void store_part(float* p, Reg r, int lanes) { _mm256_maskstore_ps(p, mask(lanes), r); }
};

}  // namespace
}  // namespace ws::cpu
