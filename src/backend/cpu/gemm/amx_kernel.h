// Products of bf16 by tiles: 2 x 2 accumulators of 16 x 16 sums, 32 steps of k an instruction. Written against `Tiles`, which is either
// the instructions (gemm_amx.cc) or a software model of them (gemm_amx_model.cc).
//
// Tiles offers, for tiles named at compile time: configure(rows, columns) (those of C; no-op where they are the last ones), zero<T>(),
// load<T>(from, stride_bytes), store<T>(to, stride_bytes), dot<C, A, B>(), release(). Tiles: 0 to 3 accumulate (row * 2 + column),
// 4 and 5 hold rows of A, 6 and 7 columns of B.
//
// Order of sums, the instruction's own: for each 32 steps of k one ascending chain of the even steps and one of the odd, each from +0;
// their sum is added to the accumulator, which starts a k block of 512 from +0. What is missing of 32 is zero.
#pragma once
#include <array>

#include "backend/cpu/gemm/nest.h"

namespace ws::cpu {
namespace {

constexpr int kTileRows = 16, kTileWords = 16;

/// A vector type for the nest (micro_kernel.h): words are pairs in memory's order, their number whole tiles.
template <class Registers, class TilesOf>
struct AmxWords : Registers {
  using typename Registers::Reg;
  using Tiles = TilesOf;
  static constexpr int kRows = 2 * kTileRows, kVectors = 2, kDepth = 256, kSteps = 2;
  static_assert(Registers::kLanes == kTileWords);
  static constexpr bool kRowsOnly = true, kOneChain = false;
  static constexpr int64_t words(int64_t depth) { return round_up((depth + 1) / 2, kTileWords); }
  /// The tiles are free for others when a unit of work is done.
  struct UnitScope {
    UnitScope() = default;
    UnitScope(const UnitScope&) = delete;
    UnitScope& operator=(const UnitScope&) = delete;
    ~UnitScope() { Tiles::release(); }
  };
};

/// The call's strip of C, its sums in `sums` where they are not to be stored as they are.
template <class V>
void finish_tiles(const MicroCall& call, const float (&sums)[V::kRows][V::kRows], int rows, int columns) {
  for (int i = 0; i < rows; ++i)
    for (int at = 0; at < columns; at += V::kLanes) {
      const int lanes = columns - at < V::kLanes ? columns - at : V::kLanes;
      typename V::Reg sum = V::load(&sums[i][at]);
      if (call.how == Accumulate::kAdd) sum = V::add(V::load_part(call.c + i * call.ldc + at, lanes), sum);
      if (call.rounded != nullptr)
        V::store_part(call.rounded + i * call.ld_rounded + at, sum, lanes);
      else
        V::store_part(call.c + i * call.ldc + at, sum, lanes);
    }
}

template <class V, int kHeight, int kVectors>
void amx_kernel(const MicroCall& call) {
  using Tiles = typename V::Tiles;
  constexpr bool kTwoRows = kHeight > kTileRows, kTwoColumns = kVectors > 1;
  constexpr int64_t kWord = sizeof(float), kPanelBytes = V::kVectors * V::kLanes * kWord;
  const int columns = (kVectors - 1) * V::kLanes + call.last;
  // Side work first: nothing here runs in the shadow of the tiles' instructions.
  for (int64_t i = 0; i < call.next_lines; ++i) call.next->ask();
  PanelCursor<V, Bf16> at(call.copies);
  for (int64_t copies = call.copies.count; copies > 0; --copies) at.copy();

  Tiles::configure(kHeight, columns);
  Tiles::template zero<0>();
  if constexpr (kTwoColumns) Tiles::template zero<1>();
  if constexpr (kTwoRows) Tiles::template zero<2>();
  if constexpr (kTwoRows && kTwoColumns) Tiles::template zero<3>();
  const int64_t a_bytes = call.a_row * kWord;
  for (int64_t w = 0; w < call.k; w += kTileWords) {
    const float *a = call.a + w, *b = static_cast<const float*>(call.b) + w * (kPanelBytes / kWord);
    Tiles::template load<4>(a, a_bytes);
    Tiles::template load<6>(b, kPanelBytes);
    Tiles::template dot<0, 4, 6>();
    if constexpr (kTwoColumns) {
      Tiles::template load<7>(b + V::kLanes, kPanelBytes);
      Tiles::template dot<1, 4, 7>();
    }
    if constexpr (kTwoRows) {
      Tiles::template load<5>(a + kTileRows * call.a_row, a_bytes);
      Tiles::template dot<2, 5, 6>();
      if constexpr (kTwoColumns) Tiles::template dot<3, 5, 7>();
    }
  }
  const bool direct = call.how == Accumulate::kStore && call.rounded == nullptr;
  alignas(64) float sums[V::kRows][V::kRows];
  float* const to = direct ? call.c : &sums[0][0];
  const int64_t ld = direct ? call.ldc : V::kRows, bytes = ld * kWord;
  Tiles::template store<0>(to, bytes);
  if constexpr (kTwoColumns) Tiles::template store<1>(to + V::kLanes, bytes);
  if constexpr (kTwoRows) Tiles::template store<2>(to + kTileRows * ld, bytes);
  if constexpr (kTwoRows && kTwoColumns) Tiles::template store<3>(to + kTileRows * ld + V::kLanes, bytes);
  if (!direct) finish_tiles<V>(call, sums, kHeight, columns);
}

/// In the place of the register tiles: rows lie as rows, and there are no kernels that read operands in place.
template <class Registers, class Tiles>
struct Kernels<AmxWords<Registers, Tiles>> {
  using V = AmxWords<Registers, Tiles>;
  using Table = std::array<std::array<MicroKernel, V::kVectors>, V::kRows>;
  template <size_t... I>
  static constexpr Table table(std::index_sequence<I...>) {
    return {{{amx_kernel<V, static_cast<int>(I) + 1, 1>, amx_kernel<V, static_cast<int>(I) + 1, 2>}...}};
  }
  static constexpr Table kernels = table(std::make_index_sequence<V::kRows>{});
  static constexpr std::array<Table, 3> row_major = {kernels, kernels, kernels}, packed = row_major;
};

}  // namespace
}  // namespace ws::cpu
