// gather and scatter_add: rows of a table by index.
#include <algorithm>
#include <cstring>

#include "backend/cpu/rows/walk.h"
#include "support/bf16.h"

#ifndef __clang__
#pragma GCC optimize("O3")  // vectorise loops of unknown length
#endif

namespace ws::cpu {
namespace {

// Splits an array of dims [lead.., row..] after its first `lead` axes: two index spaces of one array each.
struct RowArray {
  IndexSpace<1> lead, row;
  char* data = nullptr;
  RowArray(const Strided& x, int lead_axes, int64_t element_bytes) : data(static_cast<char*>(x.data)) {
    lead.push(1, {element_bytes});
    row.push(1, {element_bytes});
    for (int axis = 0; axis < x.dims.rank(); ++axis)
      (axis < lead_axes ? lead : row).push(x.dims[axis], {x.strides[static_cast<size_t>(axis)] * element_bytes});
  }
  char* at(int64_t j) const { return data + (lead.rank == 1 ? j * lead.stride(0, 0) : lead.offset(j, 0)[0]); }
  // Byte offset of element `e` of a row.
  int64_t element(int64_t e) const { return row.rank == 1 ? e * row.stride(0, 0) : row.offset(e, 0)[0]; }
  int64_t row_size() const { return row.outer(0); }
  bool dense_rows(int64_t element_bytes) const { return row.rank == 1 && (row.stride(0, 0) == element_bytes || row.dim(0) == 1); }
};

int32_t index_at(const RowArray& indices, int64_t j) { return *reinterpret_cast<const int32_t*>(indices.at(j)); }

// Columns [begin, end) of table rows [first, last): each update once, ascending, so a column's sum has one order whatever the cut.
template <class T>
void scatter_part(const RowArray& to, const RowArray& indices, const RowArray& updates, int64_t positions, int64_t first,
                  int64_t last, int64_t begin, int64_t end) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const bool dense = to.dense_rows(kSize) && updates.dense_rows(kSize);
  for (int64_t t = first; t < last; ++t) {
    if (dense)
      std::memset(to.at(t) + begin * kSize, 0, static_cast<size_t>((end - begin) * kSize));
    else
      for (int64_t c = begin; c < end; ++c) *reinterpret_cast<T*>(to.at(t) + to.element(c)) = 0;
  }
  for (int64_t j = 0; j < positions; ++j) {
    const int64_t t = index_at(indices, j);
    if (t < first || t >= last) continue;
    if (dense) {
      T* __restrict sum = reinterpret_cast<T*>(to.at(t));
      const T* __restrict update = reinterpret_cast<const T*>(updates.at(j));
      for (int64_t c = begin; c < end; ++c) sum[c] += update[c];
    } else {
      for (int64_t c = begin; c < end; ++c)
        *reinterpret_cast<T*>(to.at(t) + to.element(c)) += *reinterpret_cast<const T*>(updates.at(j) + updates.element(c));
    }
  }
}

template <class T>
void scatter(const RowArray& to, const RowArray& indices, const RowArray& updates, int64_t rows, int64_t positions,
             Workers& workers) {
  constexpr int64_t kColumns = 64;  // a few cache lines: two threads share none
  const int64_t size = to.row_size();
  const int64_t work = positions * size;
  if (work + rows * size < 32768) return scatter_part<T>(to, indices, updates, positions, 0, rows, 0, size);
  if (size >= kColumns * workers.num_threads()) {
    // Wide parts: an update is read in long runs, and the indices few times.
    const int64_t part = size / (2 * workers.num_threads()) / kColumns * kColumns;
    workers.parallel_for(size, std::max(kColumns, part), [&](int64_t begin, int64_t end, int) {
      scatter_part<T>(to, indices, updates, positions, 0, rows, begin, end);
    });
    return;
  }
  // Narrow rows: each thread reads all indices and takes its part of the table.
  const int64_t per_part = std::max<int64_t>(1, (rows + workers.num_threads() - 1) / workers.num_threads());
  workers.parallel_for((rows + per_part - 1) / per_part, 1, [&](int64_t begin, int64_t end, int) {
    scatter_part<T>(to, indices, updates, positions, begin * per_part, std::min(rows, end * per_part), 0, size);
  });
}

// bf16 sums live in fp32 until the row is complete: one table row and one tile of columns at a time.
void scatter_bf16(const RowArray& to, const RowArray& indices, const RowArray& updates, int64_t rows, int64_t positions,
                  Workers& workers) {
  constexpr int64_t kTile = 1024;
  const int64_t size = to.row_size(), tiles = (size + kTile - 1) / kTile;
  workers.parallel_for(rows * tiles, 1, [&](int64_t begin, int64_t end, int) {
    float sum[kTile];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t t = unit / tiles, c0 = unit % tiles * kTile, n = std::min(kTile, size - c0);
      std::fill_n(sum, n, 0.0f);
      for (int64_t j = 0; j < positions; ++j) {
        if (index_at(indices, j) != t) continue;
        const char* const update = updates.at(j);
        for (int64_t c = 0; c < n; ++c) sum[c] += widen(*reinterpret_cast<const Bf16*>(update + updates.element(c0 + c)));
      }
      for (int64_t c = 0; c < n; ++c) *reinterpret_cast<Bf16*>(to.at(t) + to.element(c0 + c)) = narrow(sum[c]);
    }
  });
}

template <class T>
void move_elements(char* to, const RowArray& to_row, const char* from, const RowArray& from_row, int64_t n) {
  for (int64_t c = 0; c < n; ++c)
    *reinterpret_cast<T*>(to + to_row.element(c)) =
        from == nullptr ? T{} : *reinterpret_cast<const T*>(from + from_row.element(c));
}

}  // namespace

void gather(const Strided& to, const Strided& table, const Strided& indices, size_t element_bytes, Workers& workers) {
  const auto size = static_cast<int64_t>(element_bytes);
  const int index_axes = indices.dims.rank();
  const RowArray out(to, index_axes, size), rows(table, 1, size), index(indices, index_axes, 4);
  const int64_t n = out.row_size(), num_rows = table.dims[0];
  const bool dense = out.dense_rows(size) && rows.dense_rows(size);
  workers.parallel_for(indices.dims.num_elements(), rows_per_grain(n * size), [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t t = index_at(index, j);
      const char* const from = t >= 0 && t < num_rows ? rows.at(t) : nullptr;
      char* const row = out.at(j);
      if (dense && from != nullptr)
        std::memcpy(row, from, static_cast<size_t>(n * size));
      else if (dense)
        std::memset(row, 0, static_cast<size_t>(n * size));
      else if (size == 1)
        move_elements<uint8_t>(row, out, from, rows, n);
      else if (size == 2)
        move_elements<uint16_t>(row, out, from, rows, n);
      else if (size == 4)
        move_elements<uint32_t>(row, out, from, rows, n);
      else
        move_elements<uint64_t>(row, out, from, rows, n);
    }
  });
}

void scatter_add(const Strided& to, const Strided& indices, const Strided& updates, DType dtype, Workers& workers) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int index_axes = indices.dims.rank();
  const RowArray table(to, 1, size), index(indices, index_axes, 4), rows(updates, index_axes, size);
  const int64_t num_rows = to.dims[0], positions = indices.dims.num_elements();
  if (to.dims.num_elements() == 0) return;
  if (dtype == DType::f32)
    scatter<float>(table, index, rows, num_rows, positions, workers);
  else if (dtype == DType::f64)
    scatter<double>(table, index, rows, num_rows, positions, workers);
  else
    scatter_bf16(table, index, rows, num_rows, positions, workers);
}

}  // namespace ws::cpu
