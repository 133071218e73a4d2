// What the kernels of one tile do on the side, in the shadow of their FMAs: copy columns to come into their panels, and ask for the
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
  // The columns being copied into panels: so much of k, elements of a type, `step` of them from one of k to the next
  DType dtype = DType::f32;
  const char* src = nullptr;
  int64_t step = 0, depth = 0;
  float* dst = nullptr;
  int64_t panels = 1, panel_floats = 0;  // whole ones; from one to the next
  const char* then = nullptr;            // what will be copied after that
  int64_t copy_strips = 1;               // until it is due
  // The packed panel to come, due when the strip ends
  const char* panel = nullptr;
  int64_t panel_lines = 0;
  // The next rows, due when the tile ends
  Lookahead next_rows;
  int64_t next_rows_lines = 0;
  int64_t strips = 1;  // of the tile, this one and those after it
  int64_t lines_a_kernel = 0, panel_lines_a_kernel = 0, copies_a_kernel = 0, copied = 0;

  /// A strip of so many kernels begins.
  void begin_strip(int64_t kernels) {
    lines_a_kernel = ceil_div(next_rows_lines, kernels * strips);
    panel_lines_a_kernel = ceil_div(panel_lines, kernels);
    copies_a_kernel = ceil_div(depth / V::kSteps * panels - copied, kernels * copy_strips);
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
    PanelCopies& copies = call.copies;
    copies.count = std::min({copies_a_kernel, depth / V::kSteps * panels - copied, slots});
    if (copies.count <= 0) return;
    constexpr int64_t kLinesAhead = 48;  // thousands of cycles: the slowest memory has answered by then
    const int64_t row_bytes = step * element_bytes(), row = copied / panels * V::kSteps, left = depth - row,
                  ahead = std::min(std::max<int64_t>(kLinesAhead / panels, 4), depth);
    const char* const from = src + row * row_bytes;
    copies.ahead_bytes = left > ahead || then == nullptr ? ahead * row_bytes : then + (ahead - left) * row_bytes - from;
    copies.src = at(copied), copies.dst = to(copied), copies.left = panels - copied % panels;
    copies.step = step, copies.panels = panels, copies.panel_floats = panel_floats;
    copied += copies.count;
  }
  void complete_copy() {
    for (const int64_t all = ceil_div(depth, V::kSteps) * panels; copied < all; ++copied)
      with_operand_type<V>(dtype, [&]<class S>(const S*) {
        const int64_t steps = std::min<int64_t>(depth - copied / panels * V::kSteps, V::kSteps);
        pack_adjacent_lines<V>(to(copied), kColumns, kColumns, steps, reinterpret_cast<const S*>(at(copied)), step);
      });
    depth = copied = 0;
  }
  /// What this kernel copies.
  SideCopy kind_of(const MicroCall& call) const {
    return call.copies.count <= 0 ? SideCopy::kNothing : dtype == DType::f32 ? SideCopy::kFloats : SideCopy::kBf16;
  }

 private:
  int64_t element_bytes() const { return static_cast<int64_t>(size_of(dtype)); }
  const char* at(int64_t copy) const {
    return src + (copy / panels * V::kSteps * step + copy % panels * kColumns) * element_bytes();
  }
  float* to(int64_t copy) const { return dst + copy / panels * kColumns + copy % panels * panel_floats; }
};

}  // namespace
}  // namespace ws::cpu
