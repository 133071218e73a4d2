// Register tiles, templated on a vector type V: words of A broadcast, vectors of B's words, one FMA chain an element of C. A word is
// what the kernels take of k at a time, 32 bits: one fp32, or (words.h) several steps of k. In an unnamed namespace because every
// ISA's file compiles its own copy with its own flags.
//
// V offers: kLanes, kRows, kVectors (the register tile), kDepth (how many words of k a pass over a panel takes, so that the panel stays
// in the first-level cache where the loop needs that), Reg, zero, load, broadcast, fma, add, store, the first `lanes` of a
// vector by load_part and store_part, transpose, and what words.h says;
// store and store_part round where they are given bf16 to write.
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

/// What becomes of a block's sum: C = s or C = C + s.
enum class Accumulate : uint8_t { kStore, kAdd };

/// How a kernel reads A: a packed panel [k][MR]; rows with k adjacent; any strides.
enum class RowsAs : uint8_t { kPacked, kRowMajor, kStrided };

/// k is taken this many steps at a time, and side work shared out between.
constexpr int kMicroUnroll = 4;

/// Walks memory that will be packed soon, a cache line at a time: rows of `row_lines` lines.
struct Lookahead {
  const char* at = nullptr;
  int64_t row_lines = 0, row_left = 0, row_skip_bytes = 0;
  [[gnu::always_inline]] void ask() {
    __builtin_prefetch(at, 0, 2);
    at += 64;
    if (--row_left == 0) row_left = row_lines, at += row_skip_bytes;
  }
};

/// The part of a store hole's operand that belongs to a kernel's elements: `bytes` of each row.
struct StoreRows {
  const char* at = nullptr;
  int64_t row_bytes = 0, bytes = 0;
};
constexpr int kMaxStoreRows = 3;

/// Columns copied into their panels on the way, in rows of words, each across all of the panels. A copy is one panel's part of a row.
struct PanelCopies {
  int64_t count = 0;
  const void* src = nullptr;  // the columns of adjacent panels are adjacent
  int64_t step = 0;           // elements from one k to the next
  float* dst = nullptr;
  int64_t panel_floats = 0;      // from one panel to the next
  int64_t panels = 1, left = 1;  // all, and those left of the row
  int64_t ahead_bytes = 0;       // from src to what is asked for meanwhile
};

struct MicroCall {
  int64_t k = 0;  // words
  const float* a = nullptr;
  int64_t a_row = 0, a_col = 0;  // strides of A, where not packed
  const void* b = nullptr;       // a packed panel, or elements where they lie
  int64_t ldb = 0;               // where B is not packed
  int64_t b_ahead = 0;           // elements from a row of B, not packed, to what is asked for meanwhile
  float* c = nullptr;            // not needed where `rounded` takes a sum that C has no part of
  int64_t ldc = 0;
  int64_t c_ahead_bytes = 0;  // from what it writes to what it asks for of C: nothing, or the rows' next columns
  int last = 0;               // valid lanes of the last vector
  Accumulate how = Accumulate::kStore;
  Bf16* rounded = nullptr;  // the result goes here, rounded, and not to C
  int64_t ld_rounded = 0;
  const float* chain = nullptr;  // where the chains so far are, rows ld_chain apart; nullptr: they start from +0
  int64_t ld_chain = 0;
  Lookahead* next = nullptr;  // `next_lines` of its lines are asked for on the way
  int64_t next_lines = 0;
  const char* panel_ahead = nullptr;  // the packed panel to come: `panel_lines` of it are asked for
  int64_t panel_lines = 0;
  PanelCopies copies;
  StoreRows store_rows[kMaxStoreRows];  // asked for on the way
  int num_store_rows = 0;
};
using MicroKernel = void (*)(const MicroCall& call);

/// Where the copies stand.
template <class V, class S>
struct PanelCursor {
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  const S* src;
  float* dst;
  int64_t left, step, panels, panel_floats;
  [[gnu::always_inline]] explicit PanelCursor(const PanelCopies& c)
      : src(static_cast<const S*>(c.src)), dst(c.dst), left(c.left), step(c.step), panels(c.panels),
        panel_floats(c.panel_floats) {}
  [[gnu::always_inline]] void copy() {
#pragma GCC unroll 4
    for (int v = 0; v < V::kVectors; ++v) V::store(dst + v * V::kLanes, V::load_lines(src + v * V::kLanes, step, V::kSteps));
    src += kColumns, dst += panel_floats;
    if (--left > 0) return;
    left = panels;
    src += V::kSteps * step - panels * kColumns, dst += kColumns - panels * panel_floats;
  }
};

template <class V, int MR, int NV>
[[gnu::always_inline]] inline void start(typename V::Reg (&acc)[MR][NV], const MicroCall& call) {
  const auto load = [&](auto chain, auto whole) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        const float* from = call.chain + i * call.ld_chain + v * V::kLanes;
        acc[i][v] = !chain ? V::zero() : v + 1 < NV || whole ? V::load(from) : V::load_part(from, call.last);
      }
    }
  };
  if (call.chain == nullptr)
    load(std::false_type{}, std::true_type{});
  else if (call.last == V::kLanes)
    load(std::true_type{}, std::true_type{});
  else
    load(std::true_type{}, std::false_type{});
}

template <class V, int MR, int NV, class T>
[[gnu::always_inline]] inline void put_tile(const typename V::Reg (&acc)[MR][NV], const MicroCall& call, T* to, int64_t ld) {
  // What is asked here is asked once a tile, not once a vector.
  const auto put = [&](auto add, auto whole) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) {
        const bool full = v + 1 < NV || whole;
        typename V::Reg sum = acc[i][v];
        if (add) {
          const float* before = call.c + i * call.ldc + v * V::kLanes;
          sum = V::add(full ? V::load(before) : V::load_part(before, call.last), sum);
        }
        full ? V::store(to + i * ld + v * V::kLanes, sum) : V::store_part(to + i * ld + v * V::kLanes, sum, call.last);
      }
    }
  };
  const bool whole = call.last == V::kLanes, add = call.how == Accumulate::kAdd;
  if (add)
    whole ? put(std::true_type{}, std::true_type{}) : put(std::true_type{}, std::false_type{});
  else
    whole ? put(std::false_type{}, std::true_type{}) : put(std::false_type{}, std::false_type{});
}

template <class V, int MR, int NV>
[[gnu::always_inline]] inline void finish(const typename V::Reg (&acc)[MR][NV], const MicroCall& call) {
  if (call.rounded != nullptr)
    put_tile<V, MR, NV>(acc, call, call.rounded, call.ld_rounded);
  else
    put_tile<V, MR, NV>(acc, call, call.c, call.ldc);
}

/// Where a kernel stands in A. Rows are reached from every third one, so that base + stride * {0, 1, 2} does it in few registers.
template <int MR, RowsAs kRows>
struct RowsCursor {
  static constexpr int kBases = kRows == RowsAs::kPacked ? 1 : (MR + 2) / 3;
  const char* base[kBases];
  int64_t row_bytes, col_bytes;
  [[gnu::always_inline]] explicit RowsCursor(const MicroCall& call)
      : row_bytes(call.a_row * int64_t{sizeof(float)}), col_bytes(call.a_col * int64_t{sizeof(float)}) {
#pragma GCC unroll 8
    for (int i = 0; i < kBases; ++i) base[i] = reinterpret_cast<const char*>(call.a) + 3 * i * row_bytes;
  }
  [[gnu::always_inline]] const float* row(int i) const {
    if constexpr (kRows == RowsAs::kPacked)
      return reinterpret_cast<const float*>(base[0]) + i;
    else
      return reinterpret_cast<const float*>(base[i / 3] + i % 3 * row_bytes);
  }
  [[gnu::always_inline]] void advance() {
    const int64_t bytes = kRows == RowsAs::kPacked     ? MR * int64_t{sizeof(float)}
                          : kRows == RowsAs::kRowMajor ? int64_t{sizeof(float)}
                                                       : col_bytes;
#pragma GCC unroll 8
    for (int i = 0; i < kBases; ++i) base[i] += bytes;
  }
};

/// C[MR, NV vectors]. Direct: the element type of b where that is the operand itself, any ldb, nothing valid after its last column; void:
/// it is a packed panel. Copied: the element type of what is copied on the way, or void.
template <class V, int MR, int NV, RowsAs kRows, class Direct, class Copied>
void micro_kernel(const MicroCall& call) {
  using Reg = typename V::Reg;
  Reg acc[MR][NV];
  start<V, MR, NV>(acc, call);
  RowsCursor<MR, kRows> a(call);
  constexpr bool kDirect = !std::is_void_v<Direct>;
  const auto* b = static_cast<const std::conditional_t<kDirect, Direct, float>*>(call.b);
  const int64_t ldb = kDirect ? call.ldb : int64_t{V::kLanes} * V::kVectors, b_ahead = call.b_ahead;
  const int last = call.last;
  const auto step = [&]() __attribute__((always_inline)) {
    Reg bv[NV];
    if constexpr (kDirect) {
      constexpr int kLineElements = 64 / static_cast<int>(sizeof(*b));
#pragma GCC unroll 8
      for (int at = 0; at < NV * V::kLanes; at += kLineElements) __builtin_prefetch(b + b_ahead + at);
    }
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v)
      bv[v] = kDirect && v + 1 == NV ? V::load_part(b + v * V::kLanes, last) : V::load(b + v * V::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const Reg av = V::broadcast(a.row(i));
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) acc[i][v] = V::fma(av, bv[v], acc[i][v]);
    }
    a.advance();
    b += ldb;
  };
  int64_t k = call.k;
  const auto steps = [&]() __attribute__((always_inline)) {
    k -= kMicroUnroll;
#pragma GCC unroll 8
    for (int u = 0; u < kMicroUnroll; ++u) step();
  };

  // Side work: lines of C and of what comes next are asked for one by one on the way, since all at once would hold up the loads of A
  // and B. A loop for each kind: one that asked which are left would cost more than the work.
  constexpr int kBytes = NV * V::kLanes * static_cast<int>(sizeof(float));
  const bool in_c = call.rounded == nullptr || call.how == Accumulate::kAdd;
  const int64_t ldc_bytes = in_c ? call.ldc * int64_t{sizeof(float)} : call.ld_rounded * int64_t{sizeof(Bf16)};
  const char* c_ahead =
      (in_c ? reinterpret_cast<const char*>(call.c) : reinterpret_cast<const char*>(call.rounded)) + call.c_ahead_bytes;
  for (int i = 0; i < MR && k >= kMicroUnroll; ++i, c_ahead += ldc_bytes) {
    for (int at = 0; at < kBytes; at += 64) __builtin_prefetch(c_ahead + at, 1);
    __builtin_prefetch(c_ahead + kBytes - 1, 1);  // C need not start on a line
    steps();
  }
  for (int64_t lines = call.next_lines; lines > 0 && k >= kMicroUnroll; --lines) {
    call.next->ask();
    steps();
  }
  for (int row = 0; row < MR * call.num_store_rows && k >= kMicroUnroll; ++row) {
    const StoreRows& rows = call.store_rows[row / MR];
    const char* at = rows.at + row % MR * rows.row_bytes;
    __builtin_prefetch(at, 0, 2);
    if (rows.bytes > 64) __builtin_prefetch(at + 64, 0, 2);
    __builtin_prefetch(at + rows.bytes - 1, 0, 2);
    steps();
  }
  if constexpr (!kDirect) {
    const char* panel_ahead = call.panel_ahead;
    for (int64_t lines = call.panel_lines; lines > 0 && k >= kMicroUnroll; --lines, panel_ahead += 64) {
      __builtin_prefetch(panel_ahead, 0, 2);
      steps();
    }
  }
  if constexpr (!std::is_void_v<Copied>) {
    PanelCursor<V, Copied> at(call.copies);
    for (int64_t copies = call.copies.count; copies > 0; --copies) {
      constexpr int kRowBytes = V::kVectors * V::kLanes * static_cast<int>(sizeof(Copied));
      const char* ahead = reinterpret_cast<const char*>(at.src) + call.copies.ahead_bytes;
#pragma GCC unroll 2
      for (int u = 0; u < V::kSteps; ++u, ahead += at.step * int64_t{sizeof(Copied)}) {
#pragma GCC unroll 2
        for (int byte = 0; byte < kRowBytes; byte += 64) __builtin_prefetch(ahead + byte, 0, 2);
        __builtin_prefetch(ahead + kRowBytes - 1, 0, 2);
      }
      at.copy();
      if (k >= kMicroUnroll) steps();
    }
  }
  while (k >= kMicroUnroll) steps();
#pragma GCC unroll 1
  for (; k > 0; --k) step();
  finish<V, MR, NV>(acc, call);
}

/// Vectors across of the direct kernels: as many as registers hold, at most 8, since few rows need many chains.
template <class V>
constexpr int direct_vectors(int rows) {
  const int fit = V::kRows * V::kVectors / rows;
  return fit > 8 ? 8 : fit;
}

/// What is copied on the side: the place of the kernels that do in a table.
enum class SideCopy : uint8_t { kNothing, kFloats, kBf16 };

/// Kernels by rows and vectors, both from 1.
template <class V>
struct Kernels {
  static constexpr int kMaxDirect = 8;
  template <int MR, RowsAs kRows, class Direct, class Copied, int NV>
  static constexpr MicroKernel entry() {
    if constexpr (NV <= (std::is_void_v<Direct> ? V::kVectors : direct_vectors<V>(MR)))
      return micro_kernel<V, MR, NV, kRows, Direct, Copied>;
    else
      return nullptr;
  }
  template <int MR, RowsAs kRows, class Direct, class Copied, size_t... NV>
  static constexpr std::array<MicroKernel, sizeof...(NV)> by_vectors(std::index_sequence<NV...>) {
    return {entry<MR, kRows, Direct, Copied, static_cast<int>(NV) + 1>()...};
  }
  template <RowsAs kRows, class Direct, class Copied, size_t kMost, size_t... MR>
  static constexpr std::array<std::array<MicroKernel, kMost>, sizeof...(MR)> by_rows(std::index_sequence<MR...>) {
    return {by_vectors<static_cast<int>(MR) + 1, kRows, Direct, Copied>(std::make_index_sequence<kMost>{})...};
  }
  using Heights = std::make_index_sequence<V::kRows>;
  using Table = std::array<std::array<MicroKernel, V::kVectors>, V::kRows>;
  template <RowsAs kRows>
  static constexpr std::array<Table, 3> by_copies() {
    constexpr auto table = []<class Copied>(std::type_identity<Copied>) {
      return by_rows<kRows, void, Copied, V::kVectors>(Heights{});
    };
    using Floats = std::conditional_t<V::kSteps == 1, float, void>;  // words of several elements are made of bf16
    return {table(std::type_identity<void>{}), table(std::type_identity<Floats>{}), table(std::type_identity<Bf16>{})};
  }
  /// By SideCopy.
  static constexpr std::array<Table, 3> packed = by_copies<RowsAs::kPacked>(), row_major = by_copies<RowsAs::kRowMajor>();
  /// By the element type of B.
  template <class S>
  static constexpr auto direct = by_rows<RowsAs::kStrided, S, void, kMaxDirect>(Heights{});
};

}  // namespace
}  // namespace ws::cpu
