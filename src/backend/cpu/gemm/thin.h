// Products of very few rows: bound by reading B once, so B is read where it lies, as memory likes it. Rows of B adjacent: a few of them
// at a time from end to end; the chains of all columns wait in a small buffer, which changes no bits. Columns of B adjacent: as many
// columns as a vector has lanes, squares transposed in registers.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "backend/cpu/gemm/pack.h"

namespace ws::cpu {
namespace {

constexpr int kMaxThinRows = 4;

/// Rows of B taken at once: their elements of A are kept broadcast.
template <class V>
constexpr int thin_steps(int rows) {
  const int fit = (V::kRows + 2) / rows;
  return fit > 1 ? fit : 1;
}

/// chains[MR, columns] continued over K rows of b, of type S.
template <class V, class S, int MR, int K>
void thin_kernel(const float* a, int64_t a_row, int64_t a_col, const S* b, int64_t ldb, float* chains, int64_t ld,
                 int64_t columns) {
  using Reg = typename V::Reg;
  Reg av[K][MR];
#pragma GCC unroll 16
  for (int p = 0; p < K; ++p)
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) av[p][i] = V::broadcast(a + i * a_row + p * a_col);
  const auto columns_at = [&](int64_t j, int lanes) __attribute__((always_inline)) {
    Reg acc[MR];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) acc[i] = V::load(chains + i * ld + j);
#pragma GCC unroll 16
    for (int p = 0; p < K; ++p) {
      const Reg bv = lanes == V::kLanes ? V::load(b + p * ldb + j) : V::load_part(b + p * ldb + j, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) acc[i] = V::fma(av[p][i], bv, acc[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) V::store(chains + i * ld + j, acc[i]);
  };
  int64_t j = 0;
  for (; j + V::kLanes <= columns; j += V::kLanes) columns_at(j, V::kLanes);
  if (j < columns) columns_at(j, static_cast<int>(columns - j));
}

template <class V, class S>
struct ThinKernels {
  using Kernel = void (*)(const float* a, int64_t a_row, int64_t a_col, const S* b, int64_t ldb, float* chains, int64_t ld,
                          int64_t columns);
  template <size_t... I>
  static constexpr std::array<Kernel, kMaxThinRows> many(std::index_sequence<I...>) {
    return {thin_kernel<V, S, static_cast<int>(I) + 1, thin_steps<V>(static_cast<int>(I) + 1)>...};
  }
  template <size_t... I>
  static constexpr std::array<Kernel, kMaxThinRows> one(std::index_sequence<I...>) {
    return {thin_kernel<V, S, static_cast<int>(I) + 1, 1>...};
  }
  static constexpr auto several_steps = many(std::make_index_sequence<kMaxThinRows>{});
  static constexpr auto one_step = one(std::make_index_sequence<kMaxThinRows>{});
};

/// One k block of C[rows, columns]; call.a, call.b, call.c are the first elements. Any strides of A, columns of B adjacent.
template <class V, class S>
void thin_columns(const MicroCall& call, int rows, int64_t columns) {
  constexpr int64_t kChains = 4096;  // 16 KiB: half of a first-level cache
  alignas(64) float chains[kChains];
  const int64_t most = kChains / rows / V::kLanes * V::kLanes;
  const int steps = thin_steps<V>(rows);
  for (int64_t j0 = 0; j0 < columns; j0 += most) {
    const int64_t width = std::min(most, columns - j0);
    for (int i = 0; i < rows; ++i) {
      float* chain = chains + i * most;
      if (call.chain != nullptr)
        std::copy_n(call.chain + i * call.ld_chain + j0, width, chain);
      else
        std::fill_n(chain, width, 0.0f);
    }
    for (int64_t p = 0; p < call.k;) {
      const bool several = p + steps <= call.k;
      (several ? ThinKernels<V, S>::several_steps : ThinKernels<V, S>::one_step)[static_cast<size_t>(rows - 1)](
          call.a + p * call.a_col, call.a_row, call.a_col, static_cast<const S*>(call.b) + p * call.ldb + j0, call.ldb, chains,
          most, width);
      p += several ? steps : 1;
    }
    for (int i = 0; i < rows; ++i) {
      float* const chain = chains + i * most;
      const int64_t to = i * call.ldc + j0;
      if (call.how == Accumulate::kAdd)
        for (int64_t j = 0; j < width; ++j) chain[j] = call.c[to + j] + chain[j];
      if (call.rounded != nullptr)
        std::transform(chain, chain + width, call.rounded + i * call.ld_rounded + j0, [](float x) { return narrow(x); });
      else
        std::copy_n(chain, width, call.c + to);
    }
  }
}

/// C[MR, NV vectors] where column j of B lies at call.b + j * line_stride, its elements adjacent: squares transposed in registers.
/// `width` columns are valid, more than NV - 1 vectors; kWhole: all, so that no line needs a test.
template <class V, class S, int MR, int NV, bool kWhole>
void thin_transposed_tile(const MicroCall& call, int64_t line_stride, int64_t width) {
  constexpr int kLanes = V::kLanes;
  constexpr int64_t kLine = 64 / sizeof(S);  // elements: taken whole, since so many columns may share a few sets of the cache
  typename V::Reg acc[MR][NV];
  start<V, MR, NV>(acc, call);
  using Rows = RowsCursor<MR, RowsAs::kStrided>;
  Rows rows(call);
  const S* const b = static_cast<const S*>(call.b);
  const auto square_of = [&](int v, int64_t p, int part, Rows& a) __attribute__((always_inline)) {
    typename V::Reg square[kLanes];
    load_square<V>(square, b + v * kLanes * line_stride + p, line_stride, kWhole ? kLanes : width - v * kLanes, part);
    const auto step = [&](int u) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int i = 0; i < MR; ++i) acc[i][v] = V::fma(V::broadcast(a.row(i)), square[u], acc[i][v]);
      a.advance();
    };
    if (part == kLanes) {
#pragma GCC unroll 16
      for (int u = 0; u < kLanes; ++u) step(u);
    } else {
      for (int u = 0; u < part; ++u) step(u);
    }
  };
  int64_t p = 0;
  for (; p + kLine <= call.k; p += kLine) {
    constexpr int64_t kAhead = 128;
    const S* ahead = b + p + (p + kAhead < call.k ? kAhead : NV * kLanes * line_stride + kAhead - call.k);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v, ahead += kLanes * line_stride) {
      for (int i = 0; i < kLanes; ++i) __builtin_prefetch(ahead + i * line_stride, 0, 2);
      Rows a = rows;
#pragma GCC unroll 4
      for (int64_t at = 0; at < kLine; at += kLanes) square_of(v, p + at, kLanes, a);
      if (v + 1 == NV) rows = a;
    }
  }
  for (; p < call.k; p += kLanes) {
    const Rows from = rows;
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) square_of(v, p, static_cast<int>(std::min<int64_t>(kLanes, call.k - p)), rows = from);
  }
  finish<V, MR, NV>(acc, call);
}

/// All columns. A chain waits four cycles for each element: those of several vectors run side by side.
template <class V, class S, int MR>
void thin_transposed_kernel(const MicroCall& call, int64_t line_stride, int64_t columns) {
  constexpr int64_t kLanes = V::kLanes;
  constexpr int kVectors = MR == 1 ? 2 : 1;
  MicroCall group = call;
  const auto tiles = [&](auto vectors, int64_t j) {
    constexpr int64_t kWidth = vectors * kLanes;
    for (; j + (vectors - 1) * kLanes < columns; j += kWidth) {
      const int64_t width = std::min(kWidth, columns - j);
      group.last = static_cast<int>(width - (vectors - 1) * kLanes);
      group.b = static_cast<const S*>(call.b) + j * line_stride;
      if (call.c != nullptr) group.c = call.c + j;
      if (call.rounded != nullptr) group.rounded = call.rounded + j;
      if (call.chain != nullptr) group.chain = call.chain + j;
      const bool whole = width == kWidth;
      (whole ? thin_transposed_tile<V, S, MR, vectors, true> : thin_transposed_tile<V, S, MR, vectors, false>)(group, line_stride,
                                                                                                               width);
    }
    return j;
  };
  tiles(std::integral_constant<int, 1>(), tiles(std::integral_constant<int, kVectors>(), 0));
}

template <class V, class S>
void thin_transposed(const MicroCall& call, int rows, int64_t line_stride, int64_t columns) {
  static_assert(kMaxThinRows == 4);
  constexpr std::array kernels = {thin_transposed_kernel<V, S, 1>, thin_transposed_kernel<V, S, 2>,
                                  thin_transposed_kernel<V, S, 3>, thin_transposed_kernel<V, S, 4>};
  kernels[static_cast<size_t>(rows - 1)](call, line_stride, columns);
}

}  // namespace
}  // namespace ws::cpu
