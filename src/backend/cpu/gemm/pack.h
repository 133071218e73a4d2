// Packing, templated on a vector type (see micro_kernel.h). Both operands are seen the same way: `lines` (rows of A, columns of B)
// along `depth` (k). A panel holds `width` lines as dst[k * width + line]; lines past the operand's end are zero.
#pragma once
#include <cstdint>
#include <cstring>

#include "backend/cpu/gemm/plan.h"

namespace ws::cpu {
namespace {

/// An operand in its role.
struct Lines {
  const float* data = nullptr;
  int64_t line_stride = 0, depth_stride = 0, batch_stride = 0;
  PackHole hole = nullptr;
  void* context = nullptr;
  bool depth_major = false;   // the hole's rows are depth (it belongs to B)
};

inline Lines lines_of_a(const GemmOperand& a) { return {a.data, a.row_stride, a.col_stride, a.batch_stride, a.hole, a.context, false}; }
inline Lines lines_of_b(const GemmOperand& b) { return {b.data, b.col_stride, b.row_stride, b.batch_stride, b.hole, b.context, true}; }

/// Lines adjacent in memory. Stores whole vectors: needs a vector of slack after the panel unless width is whole vectors.
template <class V>
inline void pack_adjacent_lines(float* dst, int64_t width, int64_t lines, int64_t depth, const float* src, int64_t depth_stride) {
  for (int64_t p = 0; p < depth; ++p, dst += width, src += depth_stride) {
    for (int64_t at = 0; at < width; at += V::kLanes) {
      const int64_t left = lines - at;
      V::store(dst + at, left >= V::kLanes ? V::load(src + at) : left > 0 ? V::load_part(src + at, static_cast<int>(left)) : V::zero());
    }
  }
}

/// Depth adjacent in memory: transposes squares in registers. Same slack.
template <class V>
inline void pack_adjacent_depth(float* dst, int64_t width, int64_t lines, int64_t depth, const float* src, int64_t line_stride) {
  constexpr int kLanes = V::kLanes;
  for (int64_t p = 0; p < depth; p += kLanes) {
    const int part = static_cast<int>(depth - p < kLanes ? depth - p : kLanes);
    for (int64_t at = 0; at < width; at += kLanes) {
      typename V::Reg square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const float* from = src + (at + i) * line_stride + p;
        square[i] = at + i >= lines ? V::zero() : part == kLanes ? V::load(from) : V::load_part(from, part);
      }
      V::transpose(square);
      if (part == kLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) V::store(dst + (p + i) * width + at, square[i]);
      } else {
        for (int i = 0; i < part; ++i) V::store(dst + (p + i) * width + at, square[i]);
      }
    }
  }
}

inline void pack_strided(float* dst, int64_t width, int64_t lines, int64_t depth, const float* src, int64_t line_stride, int64_t depth_stride) {
  for (int64_t p = 0; p < depth; ++p)
    for (int64_t i = 0; i < width; ++i) dst[p * width + i] = i < lines ? src[i * line_stride + p * depth_stride] : 0.0f;
}

template <class V>
inline void pack_panel(float* dst, int64_t width, int64_t lines, int64_t depth, const float* src, int64_t line_stride, int64_t depth_stride) {
  if (line_stride == 1) pack_adjacent_lines<V>(dst, width, lines, depth, src, depth_stride);
  else if (depth_stride == 1) pack_adjacent_depth<V>(dst, width, lines, depth, src, line_stride);
  else pack_strided(dst, width, lines, depth, src, line_stride, depth_stride);
}

/// One panel from the operand or from its hole, which writes into the panel itself where the orders agree.
template <class V>
inline void pack_panel_of(const Lines& from, int64_t batch, int64_t line0, int64_t lines, int64_t width, int64_t k0, int64_t depth, float* dst,
                          float* staging, int worker) {
  if (from.hole == nullptr) {
    const float* src = from.data + batch * from.batch_stride + line0 * from.line_stride + k0 * from.depth_stride;
    pack_panel<V>(dst, width, lines, depth, src, from.line_stride, from.depth_stride);
  } else if (from.depth_major) {
    if (lines < width) std::memset(dst, 0, static_cast<size_t>(width * depth) * sizeof(float));
    from.hole(from.context, dst, width, batch, k0, line0, depth, lines, worker);
  } else {
    from.hole(from.context, staging, kGemmBlock, batch, line0, k0, lines, depth, worker);
    pack_panel<V>(dst, width, lines, depth, staging, kGemmBlock, 1);
  }
}

/// A block of rows: panels of nearly equal heights, each [depth][height] and followed by a vector of slack.
template <class V>
struct RowBlock {
  int64_t rows, panels;
  explicit RowBlock(int64_t num_rows) : rows(num_rows), panels(ceil_div(num_rows, V::kRows)) {}
  int64_t begin(int64_t panel) const { return part_begin(rows, panels, panel); }
  int64_t height(int64_t panel) const { return begin(panel + 1) - begin(panel); }
  int64_t offset(int64_t panel, int64_t depth) const { return begin(panel) * depth + panel * V::kLanes; }
};

template <class V>
void pack_rows(const Lines& from, int64_t batch, int64_t row0, int64_t rows, int64_t k0, int64_t depth, float* dst, float* staging, int worker) {
  const RowBlock<V> block(rows);
  if (from.hole == nullptr && from.line_stride == 1) {
    // A few k at a time over all panels: the operand's lines in memory are read whole.
    constexpr int64_t kStep = 8;
    const float* src = from.data + batch * from.batch_stride + row0 + k0 * from.depth_stride;
    for (int64_t p = 0; p < depth; p += kStep) {
      const int64_t steps = depth - p < kStep ? depth - p : kStep;
      for (int64_t i = 0; i < block.panels; ++i) {
        const int64_t height = block.height(i);
        pack_adjacent_lines<V>(dst + block.offset(i, depth) + p * height, height, height, steps, src + block.begin(i) + p * from.depth_stride,
                               from.depth_stride);
      }
    }
    return;
  }
  for (int64_t i = 0; i < block.panels; ++i)
    pack_panel_of<V>(from, batch, row0 + block.begin(i), block.height(i), block.height(i), k0, depth, dst + block.offset(i, depth), staging, worker);
}

}  // namespace
}  // namespace ws::cpu
