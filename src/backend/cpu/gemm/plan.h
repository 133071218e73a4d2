// How a product is cut: which path, tile sizes, and where each part of the workspace lies. A pure function of the problem, the
// micro-tile and the thread count, so that gemm_workspace_bytes() and gemm() agree. No bits depend on it.
//
// Roles: the loop nest keeps "rows" (elements broadcast) and "columns" (loaded as vectors, packed [k][columns]). Where n is tiny the
// roles are swapped (rows = n, columns = m), so that vectors stay full.
#pragma once
#include <cstdint>

#include "backend/cpu/gemm/gemm.h"

namespace ws::cpu {

constexpr int64_t kGemmBlock = 512;  // k per FMA chain: numerics contract

/// The register tile of an ISA: `rows` x (`vectors` * `lanes`), `depth` words of `steps` k each a pass; words come in multiples of
/// `words_at_once`.
struct MicroShape {
  int rows, lanes, vectors, depth, steps, words_at_once;
  int64_t columns() const { return int64_t{lanes} * vectors; }
  int64_t words(int64_t k) const {
    const int64_t elements = int64_t{steps} * words_at_once;
    return (k + elements - 1) / elements * words_at_once;
  }
};

/// Blocks of k that one kernel takes side by side where C has few chains of its own: as many as registers hold, at most 8.
constexpr int blocks_side_by_side(int registers, int chains) {
  const int fit = registers / chains;
  return fit > 8 ? 8 : fit < 1 ? 1 : fit;
}

struct GemmPlan {
  enum class Path : uint8_t {
    kPrivate,  // units are (batch, tile); each copies the columns that it needs into its own panels
    kShared,   // all threads pack the columns of a group once, then units are its tiles
    kByBlock,  // the same for each block of k in turn: sums of a group's tiles wait in C, or in scratch, for the last block
    kSplit,    // C is one small tile, k deep: units are blocks of k; their sums wait in scratch and are added in order
  };
  Path path = Path::kPrivate;
  bool swapped = false;
  int threads = 1;
  int64_t rows = 0, columns = 0;              // after swapping
  int64_t row_groups = 1, column_groups = 1;  // done in turn, so that what is packed and what waits stays within bounds
  int64_t row_blocks = 1, column_blocks = 1;  // tiles of a group
  int64_t max_tile_rows = 0, max_tile_columns = 0;
  int64_t k_blocks = 1;
  int64_t blocks_a_unit = 1, blocks_at_once = 1;  // split
  bool sweeps_rows = false;       // shared, k shallow: a few rows against all columns of a tile, then the next rows
  bool copies_ahead = false;      // by block: tiles copy the columns of the next block on the way
  int64_t packed_depth = 0;       // k of the columns that are packed at a time, by one lane or for all
  bool tile_scratch = false;      // tiles go to private scratch, then to a hole or (swapped, bf16) to C
  bool rounds_in_kernel = false;  // a bf16 C is written by the kernels of the last k block; the tile holds the sum before
  int64_t tile_ld = 0;
  // Workspace, bytes from its start: a cursor a lane, a private area a lane, a group's packed columns, its sums (split: all of
  // C's, then those of the blocks at work)
  int64_t private_offset = 0, private_bytes = 0, shared_offset = 0, sums_offset = 0, total_bytes = 0;
  // Inside a private area, bytes from its start: a block of rows, two panels of columns, a hole's block, the tile
  int64_t rows_offset = 0, panels_offset = 0, panel_bytes = 0, staging_offset = 0, tile_offset = 0, transposed_offset = 0,
          partial_offset = 0;

  int64_t tile_floats() const { return max_tile_rows * tile_ld; }
  /// Of the largest group.
  int64_t group_rows() const { return (rows + row_groups - 1) / row_groups; }
  int64_t group_panels(int64_t panel_columns) const {
    const int64_t panels = (columns + panel_columns - 1) / panel_columns;
    return (panels + column_groups - 1) / column_groups;
  }
};

// Below this many multiply-adds a thread, waking it costs more than it saves.
constexpr int64_t kThreadWork = 1 << 18;
// Operands that the stack can hold.
constexpr int64_t kTinyElements = 4096, kTinyWork = 16384;

/// So small that it runs without plan, packing or workspace.
constexpr bool is_tiny_gemm(const Gemm& g) {
  return g.m * g.n <= kTinyElements && g.m * g.k <= kTinyElements && g.k * g.n <= kTinyElements && g.m * g.n * g.k <= kTinyWork &&
         g.k <= kGemmBlock;
}

GemmPlan plan_gemm(const Gemm& g, const MicroShape& shape, int num_threads);

/// What a lane keeps at the start of its private area.
constexpr int64_t kLaneHeaderBytes = 256;

/// Part `index` of `parts` nearly equal parts of [0, size): where it begins.
constexpr int64_t part_begin(int64_t size, int64_t parts, int64_t index) {
  return size / parts * index + (index < size % parts ? index : size % parts);
}
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Rows copied as they are lie this far apart: an odd number of cache lines, so that they spread over cache sets.
constexpr int64_t row_area_ld(int64_t depth) { return (ceil_div(depth, 16) | 1) * 16; }
/// What a block of rows may need: copied, or packed with a vector of slack after each panel.
constexpr int64_t row_area_floats(int64_t rows, int64_t depth, int64_t panel_rows, int64_t lanes) {
  return rows * row_area_ld(depth) + ceil_div(rows, panel_rows) * lanes;
}

}  // namespace ws::cpu
