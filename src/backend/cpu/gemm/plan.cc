#include "backend/cpu/gemm/plan.h"

#include <algorithm>

#include "backend/cpu/gemm/cache_sizes.h"

namespace ws::cpu {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kFloat = sizeof(float);
// Below this many multiply-adds waking a second thread costs more than it saves.
constexpr int64_t kParallelWork = 1 << 18;
// Tiny: all operands within 16 KiB each, so that they fit on the stack.
constexpr int64_t kTinyElements = 4096, kTinyWork = 16384;
// Packed columns' operand held at once; more saves passes over C, and this much already makes them rare.
constexpr int64_t kSharedBytes = 8 << 20;
constexpr int64_t kMaxCScratchBytes = 32 << 20;
// A product this small is one thread's work where there is a batch to share out.
constexpr int64_t kItemWork = 1 << 22;
constexpr int64_t kMaxSwappedRows = 8;

bool is_tiny(const Gemm& g) {
  return g.m * g.n <= kTinyElements && g.m * g.k <= kTinyElements && g.k * g.n <= kTinyElements && g.m * g.n * g.k <= kTinyWork &&
         g.k <= kGemmBlock;
}

int64_t multiply_adds(const Gemm& g) { return g.batch * g.m * g.n * std::max<int64_t>(g.k, 1); }

/// Rows a tile: the packed rows' block (max_rows x 512) takes a third of L2.
int64_t max_tile_rows(const MicroShape& shape) {
  const int64_t fit = cache_sizes().l2_bytes / 3 / (kGemmBlock * kFloat);
  return std::max<int64_t>(fit / shape.rows, 2) * shape.rows;
}

/// Columns a tile: the tile of C takes 0.4 of L2.
int64_t max_tile_columns(int64_t rows, const MicroShape& shape) {
  const int64_t fit = cache_sizes().l2_bytes * 2 / 5 / (std::max<int64_t>(rows, 1) * kFloat);
  return std::clamp<int64_t>(fit / shape.columns(), 4, 1024) * shape.columns();
}

void lay_out(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  const int64_t depth = std::min(std::max<int64_t>(g.k, 1), kGemmBlock);
  const bool holes = g.a.hole != nullptr || g.b.hole != nullptr;
  int64_t at = kLine;   // first line: what the rows' block holds
  const auto take = [&at](int64_t floats) {
    const int64_t offset = at;
    at = round_up(at + floats * kFloat, kLine);
    return offset;
  };
  p.a_offset = take(row_area_floats(p.max_tile_rows, depth, shape.rows, shape.lanes));
  p.b_offset = take(p.path == GemmPlan::Path::kPrivate ? shape.columns() * depth : 0);
  p.staging_offset = take(holes ? shape.columns() * kGemmBlock : 0);
  // An odd number of lines a row keeps rows off each other's cache sets.
  p.tile_ld = round_up(p.max_tile_columns, kLine / kFloat);
  if (p.tile_ld / (kLine / kFloat) % 2 == 0) p.tile_ld += kLine / kFloat;
  p.tile_offset = take(p.tile_scratch ? p.max_tile_rows * p.tile_ld : 0);
  p.transposed_offset = take(p.swapped && p.tile_scratch ? p.max_tile_columns * p.max_tile_rows : 0);
  p.private_bytes = at;

  p.private_offset = kLine * p.threads;   // before it: one cursor a lane
  p.shared_b_offset = p.private_offset + p.private_bytes * p.threads;
  const int64_t shared = p.path == GemmPlan::Path::kShared ? ceil_div(p.columns, shape.columns()) * shape.columns() * depth * p.group_blocks : 0;
  p.c_scratch_offset = p.shared_b_offset + round_up(shared * kFloat, kLine);
  p.total_bytes = p.c_scratch_offset + (p.c_scratch ? round_up(p.rows * p.columns * kFloat, kLine) : 0);
}

}  // namespace

GemmPlan plan_gemm(const Gemm& g, const MicroShape& shape, int num_threads) {
  GemmPlan p;
  const bool parallel = num_threads > 1 && multiply_adds(g) >= 2 * kParallelWork;
  p.threads = parallel ? static_cast<int>(std::min<int64_t>(num_threads, multiply_adds(g) / kParallelWork)) : 1;
  if (is_tiny(g)) return p;

  p.swapped = g.n <= std::min<int64_t>(kMaxSwappedRows, shape.rows) && g.m >= 2 * g.n && g.m >= shape.lanes;
  p.rows = p.swapped ? g.n : g.m;
  p.columns = p.swapped ? g.m : g.n;
  p.k_blocks = std::max<int64_t>(ceil_div(g.k, kGemmBlock), 1);
  p.tile_scratch = g.store != nullptr || p.swapped;

  p.row_blocks = ceil_div(p.rows, max_tile_rows(shape));
  const int64_t panel_columns = shape.columns(), column_panels = ceil_div(p.columns, panel_columns);
  const int64_t block_bytes = column_panels * panel_columns * kGemmBlock * kFloat;
  p.group_blocks = std::min(p.k_blocks, std::max<int64_t>(kSharedBytes / block_bytes, 1));
  const bool small_item = g.m * g.n * g.k <= kItemWork;
  bool is_private = p.row_blocks == 1 || (g.batch > 1 && (small_item || g.batch >= 2 * p.threads));
  if (!is_private && p.tile_scratch && p.group_blocks < p.k_blocks) {
    if (p.rows * p.columns * kFloat <= kMaxCScratchBytes) {
      p.c_scratch = true;
      p.tile_scratch = false;
    } else if (p.k_blocks * block_bytes <= kMaxCScratchBytes) {
      p.group_blocks = p.k_blocks;
    } else {
      is_private = true;
    }
  }
  p.path = is_private ? GemmPlan::Path::kPrivate : GemmPlan::Path::kShared;
  if (is_private) p.group_blocks = p.k_blocks;

  // Enough tiles to go round: four a thread where tiles stay worth their packing.
  const int64_t wanted = p.threads == 1 ? 1 : 4 * int64_t{p.threads};
  const int64_t batch_units = is_private ? g.batch : 1;
  if (!is_private && p.row_blocks < p.threads && p.rows >= p.threads * 4 * shape.rows) p.row_blocks = p.threads;
  p.max_tile_rows = ceil_div(p.rows, p.row_blocks);
  p.column_blocks = ceil_div(column_panels * panel_columns, max_tile_columns(p.max_tile_rows, shape));
  if (p.k_blocks == 1 && !p.tile_scratch) p.column_blocks = 1;   // C is written once: nothing to keep in cache
  const int64_t min_panels = is_private ? 2 : 4;
  const int64_t for_balance = std::min(ceil_div(wanted, p.row_blocks * batch_units), std::max<int64_t>(column_panels / min_panels, 1));
  p.column_blocks = std::min(std::max(p.column_blocks, for_balance), column_panels);
  p.max_tile_columns = ceil_div(column_panels, p.column_blocks) * panel_columns;
  lay_out(p, g, shape);
  return p;
}

}  // namespace ws::cpu
