// Products of very few elements and a deep k: the chains of one block would leave the FMA units waiting for each other's results, so
// one kernel takes several blocks of k side by side. Operands are read where they lie.
#pragma once
#include <array>
#include <cstdint>
#include <utility>

#include "backend/cpu/gemm/strips.h"

namespace ws::cpu {
namespace {

/// From one block to the next, in elements.
struct BlockSteps {
  int64_t a, b, c;
};

/// The sums of NB blocks, each [MR, NV vectors] and stored by whole vectors. kOne: of one column.
template <class V, int MR, int NV, int NB, bool kOne>
void blocks_kernel(const MicroCall& call, const BlockSteps& steps) {
  using Reg = typename V::Reg;
  Reg acc[NB][MR][NV];
#pragma GCC unroll 8
  for (int n = 0; n < NB; ++n)
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[n][i][v] = V::zero();
  const float *a = call.a, *b = static_cast<const float*>(call.b);
  const int last = call.last;
#pragma GCC unroll 2
  for (int64_t k = call.k; k > 0; --k, a += call.a_col, b += call.ldb) {
#pragma GCC unroll 8
    for (int n = 0; n < NB; ++n) {
      const float* const from = b + n * steps.b;
      Reg bv[NV];
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v)
        bv[v] = kOne ? V::broadcast(from) : v + 1 < NV ? V::load(from + v * V::kLanes) : V::load_part(from + v * V::kLanes, last);
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) {
        const Reg av = V::broadcast(a + n * steps.a + i * call.a_row);
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) acc[n][i][v] = V::fma(av, bv[v], acc[n][i][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < NB; ++n)
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) V::store(call.c + n * steps.c + i * call.ldc + v * V::kLanes, acc[n][i][v]);
}

/// By rows and vectors, both from 1.
template <class V>
struct BlockKernels {
  using Kernel = void (*)(const MicroCall& call, const BlockSteps& steps);
  template <int MR, int NV, bool kOne>
  static constexpr Kernel entry() {
    constexpr int kBlocks = blocks_side_by_side(V::kRows * V::kVectors, MR * NV);
    if constexpr (kBlocks > 1)
      return blocks_kernel<V, MR, NV, kBlocks, kOne>;
    else
      return nullptr;
  }
  template <int MR, size_t... NV>
  static constexpr std::array<Kernel, sizeof...(NV)> by_vectors(std::index_sequence<NV...>) {
    return {entry<MR, static_cast<int>(NV) + 1, false>()...};
  }
  template <size_t... MR>
  static constexpr auto by_rows(std::index_sequence<MR...>) {
    return std::array{by_vectors<static_cast<int>(MR) + 1>(std::make_index_sequence<V::kVectors>{})...};
  }
  template <size_t... MR>
  static constexpr auto one_by_rows(std::index_sequence<MR...>) {
    return std::array{entry<static_cast<int>(MR) + 1, 1, true>()...};
  }
  using Heights = std::make_index_sequence<V::kRows>;
  static constexpr auto several = by_rows(Heights{});
  static constexpr auto one = one_by_rows(Heights{});
};

/// Whole blocks of k from k0 on, as many as blocks_side_by_side() says; the sum of each goes to s.c, `tile_floats` apart.
template <class V>
void blocks_of_k(const Strip& s, const Lines& rows, const Lines& columns, int64_t k0, int64_t tile_floats) {
  const int64_t vectors = ceil_div(s.columns, V::kLanes);
  MicroCall call{};
  call.k = kGemmBlock, call.c = s.c, call.ldc = s.ldc;
  call.a = rows.at<float>(0, 0, k0), call.a_row = rows.line_stride, call.a_col = rows.depth_stride;
  call.b = columns.at<float>(0, 0, k0), call.ldb = columns.depth_stride;
  call.last = static_cast<int>(s.columns - (vectors - 1) * V::kLanes);
  const auto row = static_cast<size_t>(s.rows - 1);
  const auto kernel = s.columns == 1 ? BlockKernels<V>::one[row] : BlockKernels<V>::several[row][vectors - 1];
  kernel(call, {kGemmBlock * call.a_col, kGemmBlock * call.ldb, tile_floats});
}

}  // namespace
}  // namespace ws::cpu
