// AVX-512's instructions, as far as the kernels use them, in AVX2 and plain C++, lane for lane: so that the kernels' blocking, masks and
// shuffles are tested on machines without them. Included before a kernel's source, in whose namespace these functions hide those of
// immintrin.h; one that is missing here does not compile, since the file is built for AVX2. Sources: Intel's Software Developer's
// Manual, and for the order of a dot product's terms isa.cc, which asks the processor.
#pragma once
#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "support/error.h"

// Without optimization these are macros there.
#undef _mm512_cmp_ps_mask
#undef _mm512_rol_epi32
#undef _mm512_shuffle_f32x4
#undef _mm512_shuffle_ps
#undef _mm512_slli_epi32
#undef _mm512_srli_epi32

// Lane by lane: inlined, they take the compiler ten minutes.
#define WS_CALL [[gnu::noinline, maybe_unused]]

namespace ws::cpu {
namespace {

template <class T>
using Lanes512 [[gnu::vector_size(64)]] = T;
using Floats512 = Lanes512<float>;
using Words512 = Lanes512<uint32_t>;
using Halves512 = Lanes512<uint16_t>;
using Halves256 [[gnu::vector_size(32)]] = uint16_t;

template <class To, class From>
To as(From x) {
  return std::bit_cast<To>(x);
}
template <class V, class F>
V each_lane(const F& lane) {
  V r{};
  for (size_t i = 0; i < sizeof(V) / sizeof(r[0]); ++i) r[i] = lane(i);
  return r;
}
bool in(uint64_t mask, size_t lane) { return ((mask >> lane) & 1u) != 0; }

/// What is not in the mask is neither read nor written.
template <class V, class T>
V load_masked(uint64_t mask, const T* from) {
  return each_lane<V>([&](size_t i) { return in(mask, i) ? from[i] : T{}; });
}
template <class V, class T>
void store_masked(uint64_t mask, T* to, V x) {
  for (size_t i = 0; i < sizeof(V) / sizeof(T); ++i)
    if (in(mask, i)) to[i] = x[i];
}

inline __m512 _mm512_setzero_ps() { return __m512{}; }
inline __m512i _mm512_setzero_si512() { return __m512i{}; }
inline __m512i _mm512_set1_epi32(int x) { return as<__m512i>(Words512{} + static_cast<uint32_t>(x)); }
/// As bits: a pair of bf16 may look like a NaN that signals.
inline __m512 _mm512_set1_ps(float x) { return as<__m512>(_mm512_set1_epi32(std::bit_cast<int>(x))); }
WS_CALL __m512i _mm512_set1_epi16(int x) {
  return as<__m512i>(each_lane<Halves512>([&](size_t) { return static_cast<uint16_t>(x); }));
}
template <class... Words>
WS_CALL __m512i _mm512_set_epi32(Words... from_last) {
  const uint32_t words[] = {static_cast<uint32_t>(from_last)...};
  return as<__m512i>(each_lane<Words512>([&](size_t i) { return words[15 - i]; }));
}

inline __m512 _mm512_castsi512_ps(__m512i x) { return as<__m512>(x); }
inline __m512i _mm512_castps_si512(__m512 x) { return as<__m512i>(x); }
inline __m256i _mm512_castsi512_si256(__m512i x) {
  __m256i low;
  std::memcpy(&low, &x, sizeof low);
  return low;
}

inline __m512 _mm512_loadu_ps(const void* from) {
  __m512 r;
  std::memcpy(&r, from, sizeof r);
  return r;
}
inline __m512i _mm512_loadu_si512(const void* from) { return as<__m512i>(_mm512_loadu_ps(from)); }
inline void _mm512_storeu_ps(void* to, __m512 x) { std::memcpy(to, &x, sizeof x); }
inline void _mm512_storeu_si512(void* to, __m512i x) { std::memcpy(to, &x, sizeof x); }
WS_CALL __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* from) {
  return load_masked<Floats512>(mask, static_cast<const float*>(from));
}
WS_CALL void _mm512_mask_storeu_ps(void* to, __mmask16 mask, __m512 x) {
  store_masked<Floats512>(mask, static_cast<float*>(to), x);
}
WS_CALL __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) {
  return as<__m512i>(load_masked<Halves512>(mask, static_cast<const uint16_t*>(from)));
}
WS_CALL __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* from) {
  return as<__m256i>(load_masked<Halves256>(mask, static_cast<const uint16_t*>(from)));
}
WS_CALL void _mm256_mask_storeu_epi16(void* to, __mmask16 mask, __m256i x) {
  store_masked(mask, static_cast<uint16_t*>(to), as<Halves256>(x));
}

inline __m512 _mm512_add_ps(__m512 a, __m512 b) { return a + b; }
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof a), std::memcpy(y, &b, sizeof b), std::memcpy(z, &c, sizeof c);
  for (int half = 0; half < 2; ++half) z[half] = _mm256_fmadd_ps(x[half], y[half], z[half]);
  std::memcpy(&c, z, sizeof c);
  return c;
}
WS_CALL __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  WS_ASSERT(predicate == _CMP_UNORD_Q, "the model of AVX-512 has one comparison");
  unsigned mask = 0;
  for (size_t i = 0; i < 16; ++i) mask |= (a[i] != a[i] || b[i] != b[i] ? 1u : 0u) << i;
  return static_cast<__mmask16>(mask);
}

inline __m512i _mm512_and_si512(__m512i a, __m512i b) { return a & b; }
inline __m512i _mm512_or_si512(__m512i a, __m512i b) { return a | b; }
inline __m512i _mm512_add_epi32(__m512i a, __m512i b) { return as<__m512i>(as<Words512>(a) + as<Words512>(b)); }
inline __m512i _mm512_add_epi16(__m512i a, __m512i b) { return as<__m512i>(as<Halves512>(a) + as<Halves512>(b)); }
inline __m512i _mm512_slli_epi32(__m512i x, unsigned count) { return as<__m512i>(as<Words512>(x) << count); }
inline __m512i _mm512_srli_epi32(__m512i x, unsigned count) { return as<__m512i>(as<Words512>(x) >> count); }
inline __m512i _mm512_rol_epi32(__m512i x, int count) {
  return as<__m512i>(as<Words512>(x) << count | as<Words512>(x) >> (32 - count));
}
WS_CALL __m512i _mm512_mask_or_epi32(__m512i otherwise, __mmask16 mask, __m512i a, __m512i b) {
  const auto either = as<Words512>(a | b), kept = as<Words512>(otherwise);
  return as<__m512i>(each_lane<Words512>([&](size_t i) { return in(mask, i) ? either[i] : kept[i]; }));
}
WS_CALL __m512i _mm512_cvtepu16_epi32(__m256i x) {
  return as<__m512i>(each_lane<Words512>([&](size_t i) { return uint32_t{as<Halves256>(x)[i]}; }));
}
WS_CALL __m256i _mm512_cvtepi32_epi16(__m512i x) {
  return as<__m256i>(each_lane<Halves256>([&](size_t i) { return static_cast<uint16_t>(as<Words512>(x)[i]); }));
}

// Quarters are of 128 bits.
WS_CALL __m512 _mm512_unpacklo_ps(__m512 a, __m512 b) {
  return each_lane<Floats512>([&](size_t i) { return (i % 2 == 0 ? a : b)[i / 4 * 4 + i % 4 / 2]; });
}
WS_CALL __m512 _mm512_unpackhi_ps(__m512 a, __m512 b) {
  return each_lane<Floats512>([&](size_t i) { return (i % 2 == 0 ? a : b)[i / 4 * 4 + 2 + i % 4 / 2]; });
}
WS_CALL __m512 _mm512_shuffle_ps(__m512 a, __m512 b, unsigned which) {
  return each_lane<Floats512>([&](size_t i) { return (i % 4 < 2 ? a : b)[i / 4 * 4 + (which >> i % 4 * 2) % 4]; });
}
WS_CALL __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, unsigned which) {
  return each_lane<Floats512>([&](size_t i) { return (i < 8 ? a : b)[(which >> i / 4 * 2) % 4 * 4 + i % 4]; });
}
WS_CALL __m512i _mm512_permutex2var_epi16(__m512i a, __m512i places, __m512i b) {
  const auto low = as<Halves512>(a), high = as<Halves512>(b), at = as<Halves512>(places);
  return as<__m512i>(each_lane<Halves512>([&](size_t i) { return (at[i] % 64 < 32 ? low : high)[at[i] % 32]; }));
}

/// Denormals as zeros of their sign, whatever the processor's mode.
inline Floats512 flushed(Floats512 x) {
  const auto bits = as<Words512>(x), is_small = as<Words512>((bits & 0x7F800000u) == 0);
  return as<Floats512>(bits & (~is_small | 0x80000000u));
}
/// To nearest even, denormals to zero whatever the processor's mode; a NaN stays one.
WS_CALL __m256bh _mm512_cvtneps_pbh(__m512 x) {
  const auto bits = as<Words512>(flushed(x)), nan = as<Words512>(x != x);
  const Words512 rounded = bits + 0x7FFFu + ((bits >> 16) & 1u), kept = (nan & (bits | 0x400000u)) | (~nan & rounded);
  return as<__m256bh>(each_lane<Halves256>([&](size_t i) { return static_cast<uint16_t>(kept[i] >> 16); }));
}
WS_CALL __m512bh _mm512_cvtne2ps_pbh(__m512 upper, __m512 lower) {
  const __m256bh halves[] = {_mm512_cvtneps_pbh(lower), _mm512_cvtneps_pbh(upper)};
  __m512bh both;
  std::memcpy(&both, halves, sizeof both);
  return both;
}
/// The product of the upper halves, then that of the lower ones, each with one rounding; takes and leaves no denormals.
WS_CALL __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  const auto x = as<Words512>(a), y = as<Words512>(b);
  const auto add = [&](__m512 to, Words512 p, Words512 q) {
    return flushed(_mm512_fmadd_ps(flushed(as<Floats512>(p)), flushed(as<Floats512>(q)), flushed(to)));
  };
  const Words512 upper = Words512{} + 0xFFFF0000u;
  return add(add(sum, x & upper, y & upper), x << 16, y << 16);
}

}  // namespace
}  // namespace ws::cpu
