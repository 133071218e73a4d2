// What the kernels of one tile do on the side, in the shadow of their FMAs: copy the next panel of columns into place, and ask for the
// memory of the next packed panel and of the next rows. All kernels have a like share: lines that are asked for too fast wait for
// memory, and the FMAs with them. Only panels that plain vector moves can copy: columns adjacent in memory, whole panels, no hole.
#pragma once
#include <algorithm>

#include "backend/cpu/gemm/pack.h"

namespace ws::cpu {
namespace {

template <class V>
struct SideWork {
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  // The panel being copied, due when the strip ends: elements of a type, `step` of them from one of k to the next
  DType dtype = DType::f32;
  const char* src = nullptr;
  int64_t step = 0, rows = 0;
  float* dst = nullptr;
  const char* then = nullptr;  // first row of the panel after it: asked for when this one has been
  // The packed panel to come, due when the strip ends
  const char* panel = nullptr;
  int64_t panel_lines = 0;
  // The next rows, due when the tile ends
  Lookahead next_rows;
  int64_t next_rows_lines = 0;
  int64_t strips = 1;  // of the tile, this one and those after it
  int64_t lines_a_kernel = 0, panel_lines_a_kernel = 0, rows_a_kernel = 0;

  /// A strip of so many kernels begins.
  void begin_strip(int64_t kernels) {
    lines_a_kernel = ceil_div(next_rows_lines, kernels * strips);
    panel_lines_a_kernel = ceil_div(panel_lines, kernels);
    rows_a_kernel = ceil_div(rows / V::kSteps, kernels);
  }
  /// Gives a kernel its share.
  void share(MicroCall& call) {
    const int64_t slots = call.k / kMicroUnroll;
    call.next = &next_rows;
    call.next_lines = std::min({lines_a_kernel, next_rows_lines, slots});
    next_rows_lines -= call.next_lines;
    call.panel_ahead = panel;
    call.panel_lines = std::min({panel_lines_a_kernel, panel_lines, slots});
    panel += call.panel_lines * 64, panel_lines -= call.panel_lines;
    call.copy_rows = std::min({rows_a_kernel, rows / V::kSteps, slots});
    if (call.copy_rows == 0) return;
    constexpr int64_t kAheadRows = 48;  // thousands of cycles: the slowest memory has answered by then
    const int64_t row_bytes = step * static_cast<int64_t>(size_of(dtype));
    call.copy_ahead = rows > kAheadRows || then == nullptr ? src + kAheadRows * row_bytes : then;
    call.copy_src = src, call.copy_step = step, call.copy_dst = dst;
    const int64_t copied = call.copy_rows * V::kSteps;
    rows -= copied, src += copied * row_bytes, dst += call.copy_rows * kColumns;
  }
  void complete_copy() {
    if (rows > 0)
      with_operand_type<V>(dtype, [&]<class S>(const S*) {
        pack_adjacent_lines<V>(dst, kColumns, kColumns, rows, reinterpret_cast<const S*>(src), step);
      });
    rows = 0;
  }
  /// What this kernel copies.
  SideCopy copies(const MicroCall& call) const {
    return call.copy_rows == 0 ? SideCopy::kNothing : dtype == DType::f32 ? SideCopy::kFloats : SideCopy::kBf16;
  }
};

}  // namespace
}  // namespace ws::cpu
