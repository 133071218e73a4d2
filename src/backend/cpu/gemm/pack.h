// Packing, templated on a vector type (see micro_kernel.h). Both operands are seen the same way: `lines` (rows of A, columns of B)
// along `depth` (k, in elements). A panel holds `width` lines as dst[word of k * width + line]; lines past the operand's end are zero.
// The source is of type S, fp32 or bf16.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/plan.h"
#include "backend/cpu/gemm/words.h"

namespace ws::cpu {
namespace {

/// An operand in its role.
struct Lines {
  const void* data = nullptr;
  int64_t line_stride = 0, depth_stride = 0, batch_stride = 0;
  DType dtype = DType::f32;
  PackHole hole = nullptr;
  void* context = nullptr;
  bool depth_major = false;  // the hole's rows are depth (it belongs to B)

  bool is_f32() const { return dtype == DType::f32; }
  template <class S>
  const S* at(int64_t batch, int64_t line, int64_t depth) const {
    return static_cast<const S*>(data) + batch * batch_stride + line * line_stride + depth * depth_stride;
  }
};

inline Lines lines_of_a(const Gemm& g) {
  const GemmOperand& a = g.a;
  return {a.data, a.row_stride, a.col_stride, a.batch_stride, g.operand_dtype, a.hole, a.context, false};
}
inline Lines lines_of_b(const Gemm& g) {
  const GemmOperand& b = g.b;
  return {b.data, b.col_stride, b.row_stride, b.batch_stride, g.operand_dtype, b.hole, b.context, true};
}

/// Calls body with a null pointer of the element type.
template <class Body>
inline void with_element_type(DType dtype, Body&& body) {
  if (dtype == DType::bf16)
    body(static_cast<const Bf16*>(nullptr));
  else
    body(static_cast<const float*>(nullptr));
}
/// The same for an operand: words of several elements are made of bf16 only.
template <class V, class Body>
inline void with_operand_type(DType dtype, Body&& body) {
  if constexpr (V::kSteps == 1)
    with_element_type(dtype, body);
  else
    body(static_cast<const Bf16*>(nullptr));
}

/// Lines adjacent in memory. Stores whole vectors: needs a vector of slack after the panel unless width is whole vectors.
template <class V, class S>
inline void pack_adjacent_lines(float* dst, int64_t width, int64_t lines, int64_t depth, const S* src, int64_t depth_stride) {
  constexpr int64_t kWhole = int64_t{V::kLanes} * V::kVectors, kSteps = V::kSteps;
  const int64_t step = kSteps * depth_stride;
  if (width == kWhole && lines == kWhole) {
#pragma GCC unroll 4
    for (int64_t p = 0; p < depth; p += kSteps, dst += kWhole, src += step)
#pragma GCC unroll 4
      for (int v = 0; v < V::kVectors; ++v)
        V::store(dst + v * V::kLanes, V::load_lines(src + v * V::kLanes, depth_stride, depth - p));
    return;
  }
  if (width <= V::kLanes) {
#pragma GCC unroll 4
    for (int64_t p = 0; p < depth; p += kSteps, dst += width, src += step)
      V::store(dst, V::load_lines_part(src, depth_stride, depth - p, static_cast<int>(lines)));
    return;
  }
  for (int64_t p = 0; p < depth; p += kSteps, dst += width, src += step) {
    for (int64_t at = 0; at < width; at += V::kLanes) {
      const int64_t left = lines - at;
      V::store(dst + at, left >= V::kLanes ? V::load_lines(src + at, depth_stride, depth - p)
                         : left > 0        ? V::load_lines_part(src + at, depth_stride, depth - p, static_cast<int>(left))
                                           : V::zero());
    }
  }
}

/// A transposed square: square[p] is word p of the first `lines` lines, the rest zero; `part` elements of each line are valid.
template <class V, class S>
[[gnu::always_inline]] inline void load_square(typename V::Reg (&square)[V::kLanes], const S* src, int64_t line_stride,
                                               int64_t lines, int part) {
  if constexpr (requires { V::load_whole_square(square, src, line_stride); })
    if (lines >= V::kLanes && part == V::kLanes) return V::load_whole_square(square, src, line_stride);
#pragma GCC unroll 16
  for (int i = 0; i < V::kLanes; ++i) {
    const S* from = src + i * line_stride;
    square[i] = i >= lines ? V::zero() : part == V::kLanes * V::kSteps ? V::load_depth(from) : V::load_depth_part(from, part);
  }
  V::transpose(square);
}

/// Depth adjacent in memory: transposes squares in registers. Same slack.
template <class V, class S>
inline void pack_adjacent_depth(float* dst, int64_t width, int64_t lines, int64_t depth, const S* src, int64_t line_stride) {
  constexpr int kLanes = V::kLanes, kElements = kLanes * V::kSteps;
  for (int64_t p = 0; p < depth; p += kElements, dst += kLanes * width) {
    const int part = static_cast<int>(depth - p < kElements ? depth - p : kElements);
    for (int64_t at = 0; at < width; at += kLanes) {
      // Too many rows for the hardware to follow: each asks for itself, at its end for the panel that will follow.
      constexpr int64_t kAhead = 128;
      const S* ahead = src + at * line_stride + (p + kAhead < depth ? p + kAhead : width * line_stride + p + kAhead - depth);
      for (int i = 0; i < kLanes; ++i) __builtin_prefetch(ahead + i * line_stride, 0, 2);
      typename V::Reg square[kLanes];
      load_square<V>(square, src + at * line_stride + p, line_stride, lines - at, part);
      if (part == kElements) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) V::store(dst + i * width + at, square[i]);
      } else {
        for (int i = 0; i < V::words(part); ++i) V::store(dst + i * width + at, square[i]);
      }
    }
  }
}

template <class V, class S>
inline void pack_strided(float* dst, int64_t width, int64_t lines, int64_t depth, const S* src, int64_t line_stride,
                         int64_t depth_stride) {
  for (int64_t p = 0; p < depth; p += V::kSteps, dst += width)
    for (int64_t i = 0; i < width; ++i)
      dst[i] = i < lines ? V::word(src + i * line_stride + p * depth_stride, depth_stride, depth - p) : 0.0f;
}

template <class V, class S>
inline void pack_panel(float* dst, int64_t width, int64_t lines, int64_t depth, const S* src, int64_t line_stride,
                       int64_t depth_stride) {
  if (line_stride == 1)
    pack_adjacent_lines<V>(dst, width, lines, depth, src, depth_stride);
  else if (depth_stride == 1)
    pack_adjacent_depth<V>(dst, width, lines, depth, src, line_stride);
  else
    pack_strided<V>(dst, width, lines, depth, src, line_stride, depth_stride);
}

/// Lines adjacent in memory, fewer than a vector, of which the source has more: whole vectors are moved. Same slack.
template <class V, class S>
inline void pack_few_lines(float* dst, int64_t width, int64_t depth, const S* src, int64_t depth_stride) {
#pragma GCC unroll 4
  for (int64_t p = 0; p < depth; p += V::kSteps, dst += width, src += V::kSteps * depth_stride)
    V::store(dst, V::load_lines(src, depth_stride, V::kSteps));
}

/// A block of rows as the kernels read it.
struct RowBlock {
  const float* data = nullptr;
  int64_t row_stride = 0, depth_stride = 0;  // where not packed
  bool packed = false;
};

/// The panels of a block of rows: nearly equal heights. Packed, each is [words][height] and followed by a vector of slack.
template <class V>
struct RowPanels {
  int64_t count, least, higher;  // the first `higher` ones have a row more than the least
  explicit RowPanels(int64_t rows) : count(ceil_div(rows, V::kRows)), least(rows / count), higher(rows % count) {}
  int64_t begin(int64_t panel) const { return least * panel + std::min(panel, higher); }
  int64_t height(int64_t panel) const { return least + (panel < higher ? 1 : 0); }
  int64_t offset(int64_t panel, int64_t words) const { return begin(panel) * words + panel * V::kLanes; }
  /// Where a panel of a block of so many words begins, at one of its words.
  const float* at(const RowBlock& block, int64_t panel, int64_t words, int64_t word) const {
    return block.data + (block.packed ? offset(panel, words) + word * height(panel) : begin(panel) * block.row_stride + word);
  }
};

/// Rows this far apart fall into one set of a 4 KiB wide first-level cache, which holds fewer of them than a panel has.
inline bool rows_collide(int64_t row_stride, int64_t rows) { return rows > 6 && row_stride != 0 && row_stride % 1024 == 0; }

/// Rows of words, row_area_ld apart, of rows whose elements are not adjacent; squares are transposed in registers.
template <class V, class S>
void transpose_to_rows(float* area, int64_t rows, int64_t depth, const S* src, int64_t line_stride, int64_t depth_stride) {
  constexpr int64_t kLanes = V::kLanes;
  const int64_t ld = row_area_ld(V::words(depth));
  for (int64_t p = 0; p < depth; p += kLanes * V::kSteps)
    for (int64_t i = 0; i < rows; i += kLanes) {
      const int64_t lines = rows - i < kLanes ? rows - i : kLanes;
      float panel[kLanes * kLanes] = {};
      pack_panel<V>(panel, kLanes, lines, std::min(depth - p, kLanes * V::kSteps), src + i * line_stride + p * depth_stride,
                    line_stride, depth_stride);
      typename V::Reg square[kLanes];
      for (int64_t w = 0; w < kLanes; ++w) square[w] = V::load(panel + w * kLanes);
      V::transpose(square);
      for (int64_t line = 0; line < lines; ++line) V::store(area + (i + line) * ld + p / V::kSteps, square[line]);
    }
}

/// Copies or packs rows into `area`: rows of adjacent elements stay rows.
template <class V, class S>
RowBlock pack_rows(float* area, int64_t rows, int64_t depth, const S* src, int64_t line_stride, int64_t depth_stride) {
  const int64_t words = V::words(depth);
  if (depth_stride == 1) {
    constexpr int64_t kElements = int64_t{V::kLanes} * V::kSteps;
    const int64_t ld = row_area_ld(words);  // whole vectors
    for (int64_t i = 0; i < rows; ++i) {
      const S* row = src + i * line_stride;
      float* to = area + i * ld;
      int64_t p = 0;
      for (; p + kElements <= depth; p += kElements, to += V::kLanes) V::store(to, V::load_depth(row + p));
      if (p < depth) V::store(to, V::load_depth_part(row + p, static_cast<int>(depth - p)));
    }
    return {area, ld, 1, false};
  }
  if constexpr (V::kRowsOnly) {
    transpose_to_rows<V>(area, rows, depth, src, line_stride, depth_stride);
    return {area, row_area_ld(words), 1, false};
  }
  const RowPanels<V> panels(rows);
  // A few k at a time over all panels: rows of memory are read whole.
  constexpr int64_t kStep = 8;
  for (int64_t p = 0; p < depth; p += kStep) {
    const int64_t steps = depth - p < kStep ? depth - p : kStep;
    for (int64_t i = 0; i < panels.count; ++i) {
      const int64_t begin = panels.begin(i), height = panels.height(i);
      float* const to = area + panels.offset(i, words) + V::words(p) * height;
      const S* from = src + begin * line_stride + p * depth_stride;
      if (line_stride == 1 && begin + V::kLanes <= rows && steps % V::kSteps == 0)
        pack_few_lines<V>(to, height, steps, from, depth_stride);
      else
        pack_panel<V>(to, height, height, steps, from, line_stride, depth_stride);
    }
  }
  return {area, 0, 0, true};
}

/// Of an odd depth the last words of rows are half empty, as those of columns are. Where a word's halves go on with one chain, the
/// rows' empty half is -0: times the columns' +0 that leaves every sum as it is, where +0 would turn a sum of -0 into +0.
template <class V>
void neutralize_missing_halves(float* area, const RowBlock& block, int64_t rows, int64_t depth) {
  if constexpr (V::kOneChain) {
    if (depth % V::kSteps == 0) return;
    const int64_t last = depth / V::kSteps;
    if (!block.packed) {
      for (int64_t i = 0; i < rows; ++i) V::neutralize_later(area[i * block.row_stride + last]);
      return;
    }
    const RowPanels<V> panels(rows);
    for (int64_t i = 0; i < panels.count; ++i) {
      float* const words = area + panels.offset(i, V::words(depth)) + last * panels.height(i);
      for (int64_t row = 0; row < panels.height(i); ++row) V::neutralize_later(words[row]);
    }
  }
}

/// Makes rows row0.. readable by the kernels: where they lie, copied row by row, or packed. `any_strides`: the kernels that follow
/// take any strides, but no packed panels, so fp32 that lies in memory can stay there. `area` holds row_area_floats(rows, words of depth); `staging` what a
/// bf16 hole writes.
template <class V>
RowBlock prepare_rows(const Lines& from, int64_t batch, int64_t row0, int64_t rows, int64_t k0, int64_t depth, bool any_strides,
                      float* area, void* staging, int worker) {
  int64_t line_stride = from.line_stride, depth_stride = from.depth_stride;
  if (from.hole != nullptr) {
    void* filled = from.is_f32() ? area : staging;
    if (from.depth_major) {  // roles swapped: one panel, the hole writes [depth][rows]
      line_stride = 1, depth_stride = rows;
      from.hole(from.context, filled, rows, batch, k0, row0, depth, rows, worker);
      if (from.is_f32()) return {area, 1, rows, true};
    } else {
      line_stride = row_area_ld(depth), depth_stride = 1;
      from.hole(from.context, filled, line_stride, batch, row0, k0, rows, depth, worker);
      if (from.is_f32()) return {area, line_stride, 1, false};
    }
  } else if (from.is_f32() && (any_strides || (depth_stride == 1 && !rows_collide(line_stride, rows)))) {
    return {from.at<float>(batch, row0, k0), line_stride, depth_stride, false};
  }
  RowBlock block;
  with_operand_type<V>(from.dtype, [&]<class S>(const S*) {
    const S* src = from.hole != nullptr ? static_cast<const S*>(staging) : from.at<S>(batch, row0, k0);
    if (any_strides && depth_stride != 1)
      pack_panel<V>(area, rows, rows, depth, src, line_stride, depth_stride), block = {area, 1, rows, false};
    else
      block = pack_rows<V>(area, rows, depth, src, line_stride, depth_stride);
  });
  neutralize_missing_halves<V>(area, block, rows, depth);
  return block;
}

/// The words that a panel has beyond its depth.
template <class V>
void zero_missing_words(float* panel, int64_t width, int64_t depth) {
  const int64_t have = ceil_div(depth, V::kSteps), words = V::words(depth);
  if (words > have) std::memset(panel + have * width, 0, static_cast<size_t>((words - have) * width) * sizeof(float));
}

/// Packs columns line0.. into one panel of `width`, from the operand or from its hole, which writes into the panel itself where the
/// orders agree. `staging` holds width x 512 where there is a hole.
template <class V>
void pack_column_panel(const Lines& from, int64_t batch, int64_t line0, int64_t lines, int64_t width, int64_t k0, int64_t depth,
                       float* dst, void* staging, int worker) {
  if (from.hole != nullptr && from.depth_major && from.is_f32()) {
    if (lines < width) std::memset(dst, 0, static_cast<size_t>(width * depth) * sizeof(float));
    return from.hole(from.context, dst, width, batch, k0, line0, depth, lines, worker);
  }
  int64_t line_stride = from.line_stride, depth_stride = from.depth_stride;
  if (from.hole != nullptr && from.depth_major) {
    line_stride = 1, depth_stride = width;
    from.hole(from.context, staging, width, batch, k0, line0, depth, lines, worker);
  } else if (from.hole != nullptr) {
    line_stride = kGemmBlock, depth_stride = 1;
    from.hole(from.context, staging, kGemmBlock, batch, line0, k0, lines, depth, worker);
  }
  with_operand_type<V>(from.dtype, [&]<class S>(const S*) {
    const S* src = from.hole != nullptr ? static_cast<const S*>(staging) : from.at<S>(batch, line0, k0);
    pack_panel<V>(dst, width, lines, depth, src, line_stride, depth_stride);
  });
  zero_missing_words<V>(dst, width, depth);
}

/// Where lines line0.. of an operand at k0.. lie, for kernels to ask for on the way; `total` becomes the number of cache lines.
inline Lookahead lookahead_of(const Lines& from, int64_t batch, int64_t line0, int64_t lines, int64_t k0, int64_t depth,
                              int64_t& total) {
  total = 0;
  if (from.hole != nullptr || (from.line_stride != 1 && from.depth_stride != 1) || lines <= 0 || depth <= 0) return {};
  const auto element_bytes = static_cast<int64_t>(size_of(from.dtype)), line_elements = 64 / element_bytes;
  const bool adjacent_lines = from.line_stride == 1;
  const int64_t rows = adjacent_lines ? depth : lines, stride = adjacent_lines ? from.depth_stride : from.line_stride;
  const int64_t row_lines = (adjacent_lines ? lines : depth) / line_elements + 1;  // one more: rows need not start on a line
  total = rows * row_lines;
  const int64_t first = batch * from.batch_stride + line0 * from.line_stride + k0 * from.depth_stride;
  return {static_cast<const char*>(from.data) + first * element_bytes, row_lines, row_lines,
          (stride - row_lines * line_elements) * element_bytes};
}

}  // namespace
}  // namespace ws::cpu
