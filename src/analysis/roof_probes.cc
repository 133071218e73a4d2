#include "analysis/roof_probes.h"

#include <immintrin.h>

namespace ws {
namespace {

// Keeps a value alive without storing it.
template <class T>
void keep(T& value) {
  asm volatile("" : "+v"(value));
}

// As many chains as hide the latency of an FMA on two ports and leave registers for the factors.
constexpr int kChains = 12;

__attribute__((target("avx2,fma"))) double fma_avx2(int64_t rounds) {
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(1e-3f);
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) {
    chain[i] = _mm256_set1_ps(1.0f);
    keep(chain[i]);  // else equal chains become one
  }
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm256_fmadd_ps(chain[i], factor, term);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) keep(chain[i]);
  return static_cast<double>(rounds) * kChains * 8 * 2;
}

__attribute__((target("avx512f"))) double fma_avx512(int64_t rounds) {
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(1e-3f);
  __m512 chain[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) {
    chain[i] = _mm512_set1_ps(1.0f);
    keep(chain[i]);  // else equal chains become one
  }
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_fmadd_ps(chain[i], factor, term);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) keep(chain[i]);
  return static_cast<double>(rounds) * kChains * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) double dot_avx512(int64_t rounds) {
  const __m512bh factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F003E80));
  __m512 chain[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) {
    chain[i] = _mm512_set1_ps(1.0f);
    keep(chain[i]);  // else equal chains become one
  }
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_dpbf16_ps(chain[i], factor, factor);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) keep(chain[i]);
  return static_cast<double>(rounds) * kChains * 32 * 2;
}

__attribute__((target("avx2"))) void read_avx2(const float* data, int64_t n, int64_t rounds) {
  __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t r = 0; r < rounds; ++r)
    for (int64_t i = 0; i < n; i += 32)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[j] = _mm256_xor_ps(sum[j], _mm256_load_ps(data + i + j * 8));
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) keep(sum[j]);
}

__attribute__((target("avx512f,avx512dq"))) void read_avx512(const float* data, int64_t n, int64_t rounds) {
  __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t r = 0; r < rounds; ++r)
    for (int64_t i = 0; i < n; i += 64)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[j] = _mm512_xor_ps(sum[j], _mm512_load_ps(data + i + j * 16));
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) keep(sum[j]);
}

__attribute__((target("avx2"))) void copy_avx2(float* to, const float* from, int64_t n, int64_t rounds) {
  for (int64_t r = 0; r < rounds; ++r) {
    for (int64_t i = 0; i < n; i += 32)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) _mm256_store_ps(to + i + j * 8, _mm256_load_ps(from + i + j * 8));
    asm volatile("" : : "r"(to) : "memory");
  }
}

__attribute__((target("avx512f"))) void copy_avx512(float* to, const float* from, int64_t n, int64_t rounds) {
  for (int64_t r = 0; r < rounds; ++r) {
    for (int64_t i = 0; i < n; i += 64)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) _mm512_store_ps(to + i + j * 16, _mm512_load_ps(from + i + j * 16));
    asm volatile("" : : "r"(to) : "memory");
  }
}

}  // namespace

double fma_probe(cpu::Isa isa, int64_t rounds) { return isa == cpu::Isa::avx512 ? fma_avx512(rounds) : fma_avx2(rounds); }

double bf16_probe(int64_t rounds) { return dot_avx512(rounds); }

void read_probe(cpu::Isa isa, const float* data, int64_t n, int64_t rounds) {
  if (isa == cpu::Isa::avx512)
    read_avx512(data, n, rounds);
  else
    read_avx2(data, n, rounds);
}

void copy_probe(cpu::Isa isa, float* to, const float* from, int64_t n, int64_t rounds) {
  if (isa == cpu::Isa::avx512)
    copy_avx512(to, from, n, rounds);
  else
    copy_avx2(to, from, n, rounds);
}

}  // namespace ws
