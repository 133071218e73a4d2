// Strided copy, and concatenate and pad as copies into parts.
#include <algorithm>
#include <cstring>

#include "backend/cpu/rows/walk.h"

namespace ws::cpu {
namespace {

using CopySpace = IndexSpace<2>;  // array 0 is written, 1 is read
constexpr int64_t kTile = 16;     // a cache line of fp32
constexpr int64_t kStripe =
    4 * kTile;  // several lines of each page that is touched: page-table misses cost more than cache misses

template <class T>
void copy_row(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  if (to_stride == kSize && from_stride == kSize) {
    std::memcpy(to, from, static_cast<size_t>(n * kSize));
  } else if (to_stride == kSize && from_stride == 0) {
    std::fill_n(reinterpret_cast<T*>(to), n, *reinterpret_cast<const T*>(from));
  } else {
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<T*>(to + i * to_stride) = *reinterpret_cast<const T*>(from + i * from_stride);
  }
}

// Square tiles: reads go along the axis where `from` is dense, writes along the one where `to` is; both stay in L1.
template <class T>
void transpose_tile(char* to, const char* from, int64_t rows, int64_t cols, const std::array<int64_t, 2>& row_stride,
                    const std::array<int64_t, 2>& col_stride) {
  T tile[kTile][kTile];
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) tile[r][c] = *reinterpret_cast<const T*>(from + r * row_stride[1] + c * col_stride[1]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) *reinterpret_cast<T*>(to + r * row_stride[0] + c * col_stride[0]) = tile[r][c];
}

template <class T>
void copy_rows(char* to, const char* from, const CopySpace& walk, Workers& workers) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const int last = walk.rank - 1;
  const int64_t n = walk.dim(last), to_stride = walk.stride(last, 0), from_stride = walk.stride(last, 1);
  if (walk.rank == 1) {  // one long row: cut it
    workers.parallel_for(n, rows_per_grain(kSize), [&](int64_t begin, int64_t end, int) {
      copy_row<T>(to + begin * to_stride, to_stride, from + begin * from_stride, from_stride, end - begin);
    });
    return;
  }
  workers.parallel_for(walk.outer(1), rows_per_grain(n * kSize), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = walk.offset(i, 1);
      copy_row<T>(to + at[0], to_stride, from + at[1], from_stride, n);
    }
  });
}

// The last two axes of `walk` are (rows, cols); `from` is dense along rows, `to` along cols.
template <class T>
void copy_transposed(char* to, const char* from, const CopySpace& walk, Workers& workers) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const int r = walk.rank - 2, c = walk.rank - 1;
  const int64_t rows = walk.dim(r), cols = walk.dim(c);
  const int64_t stripes = (rows + kStripe - 1) / kStripe;
  const std::array row_stride{walk.stride(r, 0), walk.stride(r, 1)}, col_stride{walk.stride(c, 0), walk.stride(c, 1)};
  workers.parallel_for(walk.outer(2) * stripes, rows_per_grain(kStripe * cols * kSize), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = walk.offset(i / stripes, 2);
      const int64_t first = i % stripes * kStripe, last = std::min(rows, first + kStripe);
      for (int64_t c0 = 0; c0 < cols; c0 += kTile)
        for (int64_t r0 = first; r0 < last; r0 += kTile)
          transpose_tile<T>(to + at[0] + r0 * row_stride[0] + c0 * col_stride[0],
                            from + at[1] + r0 * row_stride[1] + c0 * col_stride[1], std::min(kTile, last - r0),
                            std::min(kTile, cols - c0), row_stride, col_stride);
    }
  });
}

template <class T>
void copy_typed(const Strided& to, const Strided& from, Workers& workers) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  // Axes in the order in which `to` lies in memory, so that writes run forwards.
  std::array<size_t, kMaxRank> order{};
  const auto rank = static_cast<size_t>(to.dims.rank());
  for (size_t i = 0; i < rank; ++i) {
    size_t at = i;
    for (; at > 0 && to.strides[order[at - 1]] < to.strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  CopySpace walk;
  walk.push(1, {kSize, kSize});
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = order[i];
    const int64_t dim = to.dims[static_cast<int>(axis)];
    if (dim == 0) return;
    walk.push(dim, {to.strides[axis] * kSize, from.strides[axis] * kSize});
  }
  auto* const to_data = static_cast<char*>(to.data);
  const auto* const from_data = static_cast<const char*>(from.data);
  // A transposition: some other axis is the dense one of `from`. Bring it next to the last.
  const int last = walk.rank - 1;
  if (walk.rank >= 2 && walk.stride(last, 0) == kSize && walk.stride(last, 1) > kSize && walk.dim(last) > 1) {
    for (int axis = 0; axis < last; ++axis) {
      if (walk.stride(axis, 1) != kSize || walk.dim(axis) < 4) continue;
      for (int i = axis; i + 1 < last; ++i) {
        std::swap(walk.dims[static_cast<size_t>(i)], walk.dims[static_cast<size_t>(i + 1)]);
        std::swap(walk.strides[static_cast<size_t>(i)], walk.strides[static_cast<size_t>(i + 1)]);
      }
      return copy_transposed<T>(to_data, from_data, walk, workers);
    }
  }
  copy_rows<T>(to_data, from_data, walk, workers);
}

// Which element of `from` lies at index i of a padded axis, or -1.
int64_t unpadded(int64_t i, int64_t low, int64_t interior, int64_t dim) {
  const int64_t j = i - low;
  if (j < 0 || j % (interior + 1) != 0 || j / (interior + 1) >= dim) return -1;
  return j / (interior + 1);
}

template <class T>
void pad_typed(const Strided& to, const Strided& from, std::span<const int64_t> low, std::span<const int64_t> interior,
               Workers& workers) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  // Trailing axes that are not padded and lie end to end in both arrays form one row.
  const int rank = to.dims.rank();
  int axes = rank;
  int64_t row = 1;
  while (axes > 0 && to.dims[axes - 1] == from.dims[axes - 1] && low[static_cast<size_t>(axes - 1)] == 0 &&
         to.strides[static_cast<size_t>(axes - 1)] == row && from.strides[static_cast<size_t>(axes - 1)] == row) {
    --axes;
    row *= to.dims[axes];
  }
  const bool cut_last = axes == rank && rank > 0;  // the last axis itself is padded or strided: walk it inside
  const int outer_axes = cut_last ? rank - 1 : axes;
  int64_t outer = 1;
  for (int i = 0; i < outer_axes; ++i) outer *= to.dims[i];
  const int64_t width = cut_last ? to.dims.back() : row;
  workers.parallel_for(outer, rows_per_grain(width * kSize), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, to_at = 0, from_at = 0;
      bool inside = true;
      for (int axis = outer_axes - 1; axis >= 0; --axis) {
        const auto a = static_cast<size_t>(axis);
        const int64_t index = rest % to.dims[axis];
        rest /= to.dims[axis];
        to_at += index * to.strides[a];
        const int64_t source = unpadded(index, low[a], interior[a], from.dims[axis]);
        inside = inside && source >= 0;
        from_at += source * from.strides[a];
      }
      T* const out = static_cast<T*>(to.data) + to_at;
      const T* const in = static_cast<const T*>(from.data) + (inside ? from_at : 0);
      if (!cut_last) {
        if (inside)
          std::copy_n(in, row, out);
        else
          std::fill_n(out, row, T{});
        continue;
      }
      const auto a = static_cast<size_t>(rank - 1);
      for (int64_t j = 0; j < width; ++j) out[j * to.strides[a]] = T{};
      if (inside)
        for (int64_t j = 0; j < from.dims.back(); ++j)
          out[(low[a] + j * (interior[a] + 1)) * to.strides[a]] = in[j * from.strides[a]];
    }
  });
}

// Calls body with a value of the unsigned type of that size.
template <class Body>
void with_size(size_t element_bytes, const Body& body) {
  switch (element_bytes) {
    case 1: return body(uint8_t{});
    case 2: return body(uint16_t{});
    case 4: return body(uint32_t{});
    default: return body(uint64_t{});
  }
}

}  // namespace

void copy(const Strided& to, const Strided& from, size_t element_bytes, Workers& workers) {
  with_size(element_bytes, [&](auto t) { copy_typed<decltype(t)>(to, from, workers); });
}

void concatenate(const Strided& to, std::span<const Strided> parts, int axis, size_t element_bytes, Workers& workers) {
  Strided window = to;
  for (const Strided& part : parts) {
    window.dims = part.dims;
    if (part.data != window.data) copy(window, part, element_bytes, workers);  // else it was written there
    window.data = static_cast<char*>(window.data) +
                  part.dims[axis] * to.strides[static_cast<size_t>(axis)] * static_cast<int64_t>(element_bytes);
  }
}

void pad(const Strided& to, const Strided& from, std::span<const int64_t> low, std::span<const int64_t> interior,
         size_t element_bytes, Workers& workers) {
  with_size(element_bytes, [&](auto t) { pad_typed<decltype(t)>(to, from, low, interior, workers); });
}

}  // namespace ws::cpu
