// Register tiles of attention's products, templated on a vector type V: c[rows, columns] from a strided A whose elements are
// broadcast (nothing is packed for one use) and rows of B that are whole vectors. One FMA chain an element, k ascending. In an
// unnamed namespace because every ISA's file compiles its own copy with its own flags.
//
// V offers: kLanes, kRows, kVectors (the register tile), Reg, zero, load, broadcast, fma, add, store, and the first `lanes` of a
// vector by load_part and store_part.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace ws::cpu {
namespace {

/// What becomes of a chain: C = s, C = C + s (the next block of 512), or the chain starts from C.
enum class Sum : uint8_t { kStore, kAdd, kChain };

/// The last vector of a row of c has `last` lanes.
using Tile = void (*)(int64_t k, const float* a, int64_t a_stride, const float* b, int64_t ldb, float* c, int64_t ldc, int last,
                      Sum how);

/// Element (i, p) of A: kAdjacentRows a[p*stride + i], else a[i*stride + p]. Rows are reached from a pointer for every three of
/// them: as many as registers hold.
template <int MR, bool kAdjacentRows>
class TileRows {
 public:
  TileRows(const float* a, int64_t stride) : stride_(stride) {
    for (int g = 0; g < kGroups; ++g) at_[g] = kAdjacentRows ? a : a + 3 * g * stride;
  }
  const float* element(int i) const { return kAdjacentRows ? at_[0] + i : at_[i / 3] + i % 3 * stride_; }
  void advance() {
    for (int g = 0; g < kGroups; ++g) at_[g] += kAdjacentRows ? stride_ : 1;
  }

 private:
  static constexpr int kGroups = kAdjacentRows ? 1 : (MR + 2) / 3;
  const float* at_[kGroups];
  int64_t stride_;
};

template <class V, int MR, int NV, bool kAdjacentRows>
void tile(int64_t k, const float* a, int64_t a_stride, const float* b, int64_t ldb, float* c, int64_t ldc, int last, Sum how) {
  using Reg = typename V::Reg;
  constexpr int kLanes = V::kLanes;
  Reg acc[MR][NV];
  // Calls body(i, v, from, full) for each vector of C. What is asked of the whole tile is asked once, not for each vector.
  const auto each = [&](auto whole, const auto& body) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) body(i, v, c + i * ldc + v * kLanes, v + 1 < NV || whole);
  };
  const auto all = [&](const auto& body) __attribute__((always_inline)) {
    if (last == kLanes)
      each(std::true_type{}, body);
    else
      each(std::false_type{}, body);
  };
  if (how == Sum::kChain)
    all([&](int i, int v, const float* from, bool full)
            __attribute__((always_inline)) { acc[i][v] = full ? V::load(from) : V::load_part(from, last); });
  else
    each(
        std::true_type{}, [&](int i, int v, const float*, bool) __attribute__((always_inline)) { acc[i][v] = V::zero(); });

  TileRows<MR, kAdjacentRows> rows(a, a_stride);
  const auto step = [&]() __attribute__((always_inline)) {
    Reg bv[NV];
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) bv[v] = V::load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Reg av = V::broadcast(rows.element(i));
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[i][v] = V::fma(av, bv[v], acc[i][v]);
    }
    rows.advance();
    b += ldb;
  };
  int64_t left = k;
  const auto steps = [&]() __attribute__((always_inline)) {
    left -= 4;
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) step();
  };
  // Two rows of c are asked for at a time, so that they are near when the sums are stored.
  const float* ahead = c;
  for (int i = 0; i < MR && left >= 4; i += 2, ahead += 2 * ldc) {
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) {
      __builtin_prefetch(ahead + v * kLanes, 1);
      if (i + 1 < MR) __builtin_prefetch(ahead + ldc + v * kLanes, 1);
    }
    steps();
  }
  while (left >= 4) steps();
#pragma GCC unroll 1
  for (; left > 0; --left) step();

  const auto put = [&](auto add) __attribute__((always_inline)) {
    all([&](int i, int v, float* to, bool full) __attribute__((always_inline)) {
      Reg sum = acc[i][v];
      if (add) sum = V::add(full ? V::load(to) : V::load_part(to, last), sum);
      full ? V::store(to, sum) : V::store_part(to, sum, last);
    });
  };
  if (how == Sum::kAdd)
    put(std::true_type{});
  else
    put(std::false_type{});
}

/// By rows and vectors, from 1.
template <class V, bool kAdjacentRows>
struct Tiles {
  template <int MR, size_t... NV>
  static constexpr std::array<Tile, sizeof...(NV)> row(std::index_sequence<NV...>) {
    return {tile<V, MR, static_cast<int>(NV) + 1, kAdjacentRows>...};
  }
  template <size_t... MR>
  static constexpr std::array<std::array<Tile, V::kVectors>, V::kRows> all(std::index_sequence<MR...>) {
    return {row<static_cast<int>(MR) + 1>(std::make_index_sequence<V::kVectors>{})...};
  }
  static constexpr auto table = all(std::make_index_sequence<V::kRows>{});
};

}  // namespace
}  // namespace ws::cpu
