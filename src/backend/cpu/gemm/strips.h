// Strips of C: a block of rows against one packed panel of columns, or against columns where they lie.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/gemm/ahead.h"
#include "backend/cpu/gemm/thin.h"

namespace ws::cpu {
namespace {

inline void put(float& to, float x) { to = x; }
inline void put(Bf16& to, float x) { to = narrow(x); }

/// A strip of C that one block of rows gives with one panel of columns.
struct Strip {
  int64_t rows, depth, columns;  // depth in words
  float* c;
  int64_t ldc;
  Accumulate how;
  bool continues = false;   // chains start from C
  Bf16* rounded = nullptr;  // the finished sums go here, rounded, and not to C
  int64_t ld_rounded = 0;
  float* partial = nullptr;  // room for the strip's chains between passes, [rows, panel], where C cannot hold them
  StoreRows store_rows[kMaxStoreRows] = {};  // of the strip's first row
  int num_store_rows = 0;
};

/// Has a kernel finish the strip's elements from there on.
inline void finish_at(MicroCall& call, const Strip& s, int64_t row, int64_t column) {
  call.how = s.how;
  if (s.c != nullptr) call.c = s.c + row * s.ldc + column, call.ldc = s.ldc;
  if (s.rounded != nullptr) call.rounded = s.rounded + row * s.ld_rounded + column, call.ld_rounded = s.ld_rounded;
}
/// Its rows; what the store hole will read of them is asked for.
inline void finish_rows(MicroCall& call, const Strip& s, int64_t row) {
  finish_at(call, s, row, 0);
  call.num_store_rows = s.num_store_rows;
  for (int o = 0; o < s.num_store_rows; ++o) {
    call.store_rows[o] = s.store_rows[o];
    call.store_rows[o].at += row * s.store_rows[o].row_bytes;
  }
}

/// One packed panel of columns; side work is done on the way.
template <class V>
void columns_of_rows(const Strip& s, const RowBlock& a, const float* b, SideWork<V>& side) {
  constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  const RowPanels<V> panels(s.rows);
  const int vectors = static_cast<int>(ceil_div(s.columns, V::kLanes));
  // Between passes chains wait in C, unless that holds the sum of the blocks before.
  const bool in_c = s.how == Accumulate::kStore;
  float* const chains = in_c ? s.c : s.partial;
  MicroCall call{};
  call.a_row = a.row_stride, call.a_col = a.depth_stride;
  call.last = static_cast<int>(s.columns - (vectors - 1) * V::kLanes);
  side.begin_strip(panels.count * std::max<int64_t>(ceil_div(s.depth, V::kDepth), 1));
  for (int64_t p = 0; p == 0 || p < s.depth; p += V::kDepth) {
    const bool is_last = p + V::kDepth >= s.depth, continues = p > 0 || s.continues;
    call.k = is_last ? s.depth - p : V::kDepth;
    call.b = b + p * kColumns;
    call.ldc = call.ld_chain = in_c ? s.ldc : kColumns;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t begin = panels.begin(i);
      call.a = panels.at(a, i, s.depth, p);
      if (continues) call.chain = chains + begin * call.ld_chain;
      if (is_last)
        finish_rows(call, s, begin);
      else
        call.c = chains + begin * call.ldc;
      side.share(call);
      const auto copies = static_cast<size_t>(side.kind_of(call));
      (a.packed ? Kernels<V>::packed : Kernels<V>::row_major)[copies][panels.height(i) - 1][vectors - 1](call);
    }
  }
}

/// Packed panels of columns, `panel_floats` apart, in turn for each panel of rows: C is written row by row. Of one pass; store_rows are
/// those of the first panel of columns.
template <class V>
void rows_of_columns(const Strip& s, const RowBlock& a, const float* b, int64_t panel_floats) {
  constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors, kPanelsAhead = 2;
  const RowPanels<V> panels(s.rows);
  MicroCall call{};
  call.k = s.depth, call.a_row = a.row_stride, call.a_col = a.depth_stride;
  call.c_ahead_bytes = kPanelsAhead * kColumns * static_cast<int64_t>(s.rounded != nullptr ? sizeof(Bf16) : sizeof(float));
  for (int64_t i = 0; i < panels.count; ++i) {
    const auto& kernels =
        (a.packed ? Kernels<V>::packed : Kernels<V>::row_major)[static_cast<size_t>(SideCopy::kNothing)][panels.height(i) - 1];
    call.a = panels.at(a, i, s.depth, 0);
    const float* panel = b;
    finish_rows(call, s, panels.begin(i));
    for (int64_t j = 0; j < s.columns; j += kColumns) {
      const int64_t width = std::min(kColumns, s.columns - j), vectors = ceil_div(width, V::kLanes);
      call.last = static_cast<int>(width - (vectors - 1) * V::kLanes);
      call.b = panel;
      kernels[vectors - 1](call);
      panel += panel_floats;
      if (s.c != nullptr) call.c += kColumns;
      if (s.rounded != nullptr) call.rounded += kColumns;
      for (int o = 0; o < s.num_store_rows; ++o) call.store_rows[o].at += call.store_rows[o].bytes;
    }
  }
}

/// Whether so few rows should read columns where they lie, since they would hardly use them twice. A few more do where columns are so
/// few that what one panel of rows has read is still near for the next. bf16 is widened by each panel, and so by fewer of them.
template <class V>
bool reads_in_place(int64_t rows, int64_t columns, const Lines& from) {
  if (from.hole != nullptr || V::kSteps > 1) return false;  // words of several elements are made when packing
  if (from.line_stride != 1 && columns > 1) return from.depth_stride == 1 && rows <= kMaxThinRows;
  const int64_t narrow = from.is_f32() ? 128 : 32, panels = columns <= narrow ? 3 : from.is_f32() ? 2 : 1;
  return rows <= panels * V::kRows;
}

/// Columns that come from memory, which likes whole rows: a few of them at a time across many columns, `most` to a kernel, while the
/// chains wait in a small buffer. `call` as for the first column; columns are of type S.
template <class V, class S>
[[gnu::noinline]] void far_columns(const Strip& s, const RowPanels<V>& panels, MicroCall call, int64_t most) {
  constexpr int64_t kChains = 4096, kColumnsAhead = 64;
  alignas(64) float chains[kChains];
  const int64_t kRows = panels.count > 2 ? 64 : 16;
  const int64_t across = kChains / s.rows / most * most;
  const MicroCall first = call;
  call.b_ahead = kColumnsAhead;
  for (int64_t j0 = 0; j0 < s.columns; j0 += across)
    for (int64_t p = 0; p == 0 || p < s.depth; p += kRows) {
      const bool is_last = p + kRows >= s.depth;
      call.k = std::min(kRows, s.depth - p);
      call.ld_chain = p == 0 ? s.ldc : across;
      for (int64_t j = j0; j < std::min(j0 + across, s.columns); j += most) {
        const int64_t width = std::min(most, s.columns - j), vectors = ceil_div(width, V::kLanes);
        call.b = static_cast<const S*>(first.b) + p * call.ldb + j;
        call.last = static_cast<int>(width - (vectors - 1) * V::kLanes);
        for (int64_t i = 0; i < panels.count; ++i) {
          float* const chain = chains + panels.begin(i) * across + j - j0;
          call.a = first.a + panels.begin(i) * call.a_row + p * call.a_col;
          call.chain = p > 0 ? chain : s.continues ? s.c + panels.begin(i) * s.ldc + j : nullptr;
          if (is_last)
            finish_at(call, s, panels.begin(i), j);
          else
            call.how = Accumulate::kStore, call.c = chain, call.ldc = across, call.rounded = nullptr;
          Kernels<V>::template direct<S>[panels.height(i) - 1][vectors - 1](call);
        }
      }
    }
}

/// Columns that reads_in_place() allows. `far`: they come from memory, and the rows are few.
template <class V, class S>
void direct_columns(const Strip& s, const RowBlock& a, const S* b, int64_t line_stride, int64_t ldb, bool far = false) {
  constexpr int64_t kRowsAhead = 8;  // of B, which are apart: no hardware follows a strip of them
  const RowPanels<V> panels(s.rows);
  MicroCall call{};
  call.k = s.depth, call.a_row = a.row_stride, call.a_col = a.depth_stride, call.ldb = ldb;
  const int64_t most = int64_t{direct_vectors<V>(static_cast<int>(panels.height(0)))} * V::kLanes;
  call.a = a.data, call.b = b, call.b_ahead = kRowsAhead * ldb;
  call.chain = s.continues ? s.c : nullptr, call.ld_chain = s.ldc;
  finish_at(call, s, 0, 0);
  if (line_stride != 1 && s.columns > 1) return thin_transposed<V, S>(call, static_cast<int>(s.rows), line_stride, s.columns);
  if (s.rows <= kMaxThinRows && s.columns > most) return thin_columns<V, S>(call, static_cast<int>(s.rows), s.columns);
  if (far && s.columns > most) return far_columns<V, S>(s, panels, call, most);
  for (int64_t j = 0; j < s.columns; j += most) {
    const int64_t width = std::min(most, s.columns - j), vectors = ceil_div(width, V::kLanes);
    call.b = b + j;
    call.last = static_cast<int>(width - (vectors - 1) * V::kLanes);
    for (int64_t i = 0; i < panels.count; ++i) {
      call.a = a.data + panels.begin(i) * a.row_stride;
      finish_at(call, s, panels.begin(i), j);
      if (s.continues) call.chain = call.c;
      Kernels<V>::template direct<S>[panels.height(i) - 1][vectors - 1](call);
    }
  }
}

}  // namespace
}  // namespace ws::cpu
