// Register tiles, templated on a vector type V: rows of A broadcast, vectors of B, one FMA chain an element. In an unnamed namespace
// because every ISA's file compiles its own copy with its own flags.
//
// V offers: kLanes, kRows, kVectors (the register tile), Reg, zero, load, broadcast, fma, add, store, the first `lanes` of a
// vector by load_part and store_part, transpose.
#pragma once
#include <array>
#include <cstdint>
#include <utility>

namespace ws::cpu {
namespace {

/// What becomes of a block's sum: C = s, C = C + s, or the chain starts from C.
enum class Accumulate : uint8_t { kStore, kAdd, kChain };

/// c[MR, NV vectors] from a packed [k][MR] and b with rows ldb apart; the last vector has `last` valid lanes.
using MicroKernel = void (*)(int64_t k, const float* a, const float* b, int64_t ldb, float* c, int64_t ldc, int last, Accumulate how);

template <class V, int MR, int NV>
inline void load_chain(typename V::Reg (&acc)[MR][NV], const float* c, int64_t ldc, int last) {
  for (int i = 0; i < MR; ++i)
    for (int v = 0; v < NV; ++v) acc[i][v] = v + 1 < NV ? V::load(c + i * ldc + v * V::kLanes) : V::load_part(c + i * ldc + v * V::kLanes, last);
}

template <class V, int MR, int NV>
inline void store_sum(const typename V::Reg (&acc)[MR][NV], float* c, int64_t ldc, int last, Accumulate how) {
  const bool whole = last == V::kLanes;
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      float* to = c + i * ldc + v * V::kLanes;
      typename V::Reg sum = acc[i][v];
      if (v + 1 < NV || whole) {
        if (how == Accumulate::kAdd) sum = V::add(V::load(to), sum);
        V::store(to, sum);
      } else {
        if (how == Accumulate::kAdd) sum = V::add(V::load_part(to, last), sum);
        V::store_part(to, sum, last);
      }
    }
  }
}

/// kDirect: b is the operand itself (any ldb, nothing valid after its last column); else a packed panel.
template <class V, int MR, int NV, bool kDirect>
void micro_kernel(int64_t k, const float* a, const float* b, int64_t ldb, float* c, int64_t ldc, int last, Accumulate how) {
  using Reg = typename V::Reg;
  Reg acc[MR][NV];
  if (how == Accumulate::kChain) {
    load_chain<V, MR, NV>(acc, c, ldc, last);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      __builtin_prefetch(c + i * ldc, 1);
      if (NV > 1) __builtin_prefetch(c + i * ldc + (NV - 1) * V::kLanes, 1);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[i][v] = V::zero();
    }
  }
  const int64_t step = kDirect ? ldb : int64_t{V::kLanes} * V::kVectors;
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    Reg bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = kDirect && v + 1 == NV ? V::load_part(b + v * V::kLanes, last) : V::load(b + v * V::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Reg av = V::broadcast(a + i);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[i][v] = V::fma(av, bv[v], acc[i][v]);
    }
    a += MR;
    b += step;
  }
  store_sum<V, MR, NV>(acc, c, ldc, last, how);
}

/// For tiny products: a is the operand itself, by strides.
template <class V, int MR, int NV>
void tiny_kernel(int64_t k, const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t ldb, float* c, int64_t ldc, int last) {
  using Reg = typename V::Reg;
  Reg acc[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) acc[i][v] = V::zero();
  for (int64_t p = 0; p < k; ++p) {
    Reg bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = v + 1 == NV ? V::load_part(b + v * V::kLanes, last) : V::load(b + v * V::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Reg av = V::broadcast(a + i * a_row);
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[i][v] = V::fma(av, bv[v], acc[i][v]);
    }
    a += a_col;
    b += ldb;
  }
  store_sum<V, MR, NV>(acc, c, ldc, last, Accumulate::kStore);
}
using TinyKernel = void (*)(int64_t k, const float* a, int64_t a_row, int64_t a_col, const float* b, int64_t ldb, float* c, int64_t ldc, int last);
constexpr int kTinyRows = 4, kTinyVectors = 2;

/// Vectors across of the direct kernels: as many as registers hold, at most 8, since few rows need many chains.
template <class V>
constexpr int direct_vectors(int rows) {
  const int fit = V::kRows * V::kVectors / rows;
  return fit > 8 ? 8 : fit;
}

/// Kernels by rows and vectors, from 1.
template <class V>
struct Kernels {
  static constexpr int kMaxDirect = 8;
  template <int MR, size_t... NV>
  static constexpr std::array<MicroKernel, sizeof...(NV)> packed_row(std::index_sequence<NV...>) {
    return {micro_kernel<V, MR, static_cast<int>(NV) + 1, false>...};
  }
  template <size_t... MR>
  static constexpr std::array<std::array<MicroKernel, V::kVectors>, V::kRows> packed_table(std::index_sequence<MR...>) {
    return {packed_row<static_cast<int>(MR) + 1>(std::make_index_sequence<V::kVectors>{})...};
  }
  template <int MR, int NV>
  static constexpr MicroKernel direct_entry() {
    if constexpr (NV <= direct_vectors<V>(MR)) return micro_kernel<V, MR, NV, true>;
    else return nullptr;
  }
  template <int MR, size_t... NV>
  static constexpr std::array<MicroKernel, kMaxDirect> direct_row(std::index_sequence<NV...>) {
    return {direct_entry<MR, static_cast<int>(NV) + 1>()...};
  }
  template <size_t... MR>
  static constexpr std::array<std::array<MicroKernel, kMaxDirect>, V::kRows> direct_table(std::index_sequence<MR...>) {
    return {direct_row<static_cast<int>(MR) + 1>(std::make_index_sequence<kMaxDirect>{})...};
  }
  template <int MR, size_t... NV>
  static constexpr std::array<TinyKernel, kTinyVectors> tiny_row(std::index_sequence<NV...>) {
    return {tiny_kernel<V, MR, static_cast<int>(NV) + 1>...};
  }
  template <size_t... MR>
  static constexpr std::array<std::array<TinyKernel, kTinyVectors>, kTinyRows> tiny_table(std::index_sequence<MR...>) {
    return {tiny_row<static_cast<int>(MR) + 1>(std::make_index_sequence<kTinyVectors>{})...};
  }
  static constexpr auto packed = packed_table(std::make_index_sequence<V::kRows>{});
  static constexpr auto direct = direct_table(std::make_index_sequence<V::kRows>{});
  static constexpr auto tiny = tiny_table(std::make_index_sequence<kTinyRows>{});
};

}  // namespace
}  // namespace ws::cpu
