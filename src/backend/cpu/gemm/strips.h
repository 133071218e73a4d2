// Strips of C: a block of rows against one packed panel of columns, or against columns where they lie.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cpu/gemm/ahead.h"
#include "backend/cpu/gemm/thin.h"

namespace ws::cpu {
namespace {

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

/// One packed panel of columns; side work is done on the way.
template <class V>
void columns_of_rows(const Strip& s, const RowBlock& a, const float* b, SideWork<V>& side) {
  constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  const RowPanels<V> panels(s.rows);
  const int vectors = static_cast<int>(ceil_div(s.columns, V::kLanes));
  // Between passes chains wait in C, unless that holds the sum of the blocks before.
  const bool in_c = s.how == Accumulate::kStore;
  MicroCall call{};
  call.a_row = a.row_stride, call.a_col = a.depth_stride;
  call.last = static_cast<int>(s.columns - (vectors - 1) * V::kLanes);
  side.begin_strip(panels.count * std::max<int64_t>(ceil_div(s.depth, V::kDepth), 1));
  for (int64_t p = 0; p == 0 || p < s.depth; p += V::kDepth) {
    const bool is_last = p + V::kDepth >= s.depth, continues = p > 0 || s.continues;
    call.k = is_last ? s.depth - p : V::kDepth;
    call.b = b + p * kColumns;
    call.how = is_last ? s.how : Accumulate::kStore;
    call.ldc = is_last || in_c ? s.ldc : kColumns;
    call.ld_chain = in_c ? s.ldc : kColumns;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t begin = panels.begin(i), height = panels.height(i);
      call.a = a.data + (a.packed ? panels.offset(i, s.depth) + p * height : begin * a.row_stride + p);
      call.c = (is_last || in_c ? s.c : s.partial) + begin * call.ldc;
      call.chain = continues ? (in_c ? s.c : s.partial) + begin * call.ld_chain : nullptr;
      if (is_last && s.rounded != nullptr) call.rounded = s.rounded + begin * s.ld_rounded, call.ld_rounded = s.ld_rounded;
      if (is_last) call.num_store_rows = s.num_store_rows;
      for (int o = 0; o < call.num_store_rows; ++o) {
        call.store_rows[o] = s.store_rows[o];
        call.store_rows[o].at += begin * s.store_rows[o].row_bytes;
      }
      side.share(call);
      const auto copies = static_cast<size_t>(side.kind_of(call));
      (a.packed ? Kernels<V>::packed : Kernels<V>::row_major)[copies][height - 1][vectors - 1](call);
    }
  }
}

/// Whether so few rows should read columns where they lie, since they would hardly use them twice.
template <class V>
bool reads_in_place(int64_t rows, int64_t columns, const Lines& from) {
  constexpr int64_t kDirectPanels = 2;
  if (from.hole != nullptr || !from.is_f32()) return false;
  return from.line_stride == 1 || columns == 1 ? rows <= kDirectPanels * V::kRows
                                               : from.depth_stride == 1 && rows <= kMaxThinRows;
}

/// Columns that reads_in_place() allows.
template <class V>
void direct_columns(const Strip& s, const RowBlock& a, const float* b, int64_t line_stride, int64_t ldb) {
  const RowPanels<V> panels(s.rows);
  MicroCall call{};
  call.k = s.depth, call.a_row = a.row_stride, call.a_col = a.depth_stride, call.ldb = ldb, call.ldc = s.ldc, call.how = s.how;
  const int64_t most = int64_t{direct_vectors<V>(static_cast<int>(panels.height(0)))} * V::kLanes;
  call.a = a.data, call.b = b, call.c = s.c;
  call.chain = s.continues ? s.c : nullptr, call.ld_chain = s.ldc;
  if (line_stride != 1 && s.columns > 1) return thin_transposed<V>(call, static_cast<int>(s.rows), line_stride, s.columns);
  if (s.rows <= kMaxThinRows && s.columns > most) return thin_columns<V>(call, static_cast<int>(s.rows), s.columns);
  for (int64_t j = 0; j < s.columns; j += most) {
    const int64_t width = std::min(most, s.columns - j), vectors = ceil_div(width, V::kLanes);
    call.b = b + j;
    call.last = static_cast<int>(width - (vectors - 1) * V::kLanes);
    for (int64_t i = 0; i < panels.count; ++i) {
      call.a = a.data + panels.begin(i) * a.row_stride;
      call.c = s.c + panels.begin(i) * s.ldc + j;
      if (s.continues) call.chain = call.c;
      Kernels<V>::direct[panels.height(i) - 1][vectors - 1](call);
    }
  }
}

}  // namespace
}  // namespace ws::cpu
