#include "backend/cpu/gemm/plan.h"

#include <algorithm>

#include "backend/cpu/gemm/cache_sizes.h"

namespace ws::cpu {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kFloat = sizeof(float);
// Columns are packed for all threads, a quarter of L3 at a time; those that could be copied too only where so many rows share the
// cost (fewer, where the columns leave L2 between one tile's copy and the next one's).
constexpr int64_t kMinSharedRows = 1024, kMinSharedRowsOfMany = 256;
// Blocks of k in turn: many of them (two whole ones, where rows are too few to share the cost of columns packed apart), and columns that have
// left L2 by the time they are read again. Sums that wait in scratch are a quarter of L3, too, of so few columns that hundreds of rows
// still share what is packed.
constexpr int64_t kMinBlocks = 4, kMinBlockRows = 64, kMaxSumColumns = 4096;
constexpr int64_t kTwoBlocksMinRows = 256, kTwoBlocksMaxSide = 2048;
// Of so shallow a k C is what costs, and memory likes its rows written from end to end.
constexpr int64_t kShallow = 128, kMinShallowRows = 64, kShallowPanels = 8;
constexpr int64_t kMaxSwappedRows = 8, kMaxAdjacentSwap = 64;
// Of L2, what a tile's rows may take by path.
constexpr int64_t kPrivatePercent = 55, kSharedPercent = 33, kByBlockPercent = 50;
constexpr int64_t kTilesAThread = 16;      // a slow core then holds up the others by a sixteenth of its share
constexpr int64_t kTilesOfManyBlocks = 4;  // each prepares its rows for each block of k
constexpr double kWorthEvening = 0.005;    // idle share of the threads that smaller blocks may cost

/// In multiply-adds of products that are bound by them; few rows are bound by reading the other operand.
int64_t work_of(const Gemm& g) {
  constexpr int64_t kFewRows = 4, kOfFewRows = 4;
  return g.batch * g.m * g.n * std::max<int64_t>(g.k, 1) * (std::min(g.m, g.n) <= kFewRows ? kOfFewRows : 1);
}

/// Rows a tile, by the share of L2 that a block of 512 deep rows may take.
int64_t most_tile_rows(const MicroShape& shape, int64_t percent) {
  const int64_t fit = cache_sizes().l2_bytes * percent / 100 / (shape.words(kGemmBlock) * kFloat);
  return std::max<int64_t>(fit / shape.rows, 2) * shape.rows;
}

/// Columns of a tile that stays near until its hole has it.
int64_t most_tile_columns(int64_t rows, const MicroShape& shape, int64_t percent) {
  const int64_t fit = cache_sizes().l2_bytes * percent / 100 / (std::max<int64_t>(rows, 1) * kFloat);
  return std::clamp<int64_t>(fit / shape.columns(), 4, 1024) * shape.columns();
}

/// What a group may pack, and what it may keep in sums; a cache for dozens of cores is not ours alone.
int64_t most_group_bytes() { return std::min<int64_t>(cache_sizes().l3_bytes / 4, 16 << 20); }

/// Panels of columns of depth k packed at a time.
int64_t most_group_panels(const MicroShape& shape, int64_t k) {
  return std::max<int64_t>(most_group_bytes() / (shape.columns() * shape.words(std::max<int64_t>(k, 1)) * kFloat), 1);
}

/// Units of one size: where their number is no multiple of the threads, the last ones keep few threads busy. A few more, smaller blocks
/// of rows then.
int64_t even_row_blocks(const GemmPlan& p, int64_t batch, const MicroShape& shape) {
  const auto idle_share = [&](int64_t row_blocks) {
    const int64_t units = row_blocks * p.column_blocks * batch;
    return 1 - static_cast<double>(units) / static_cast<double>(round_up(units, p.threads));
  };
  const int64_t most = std::min(p.row_blocks + p.threads - 1, p.group_rows() / shape.rows);
  int64_t best = p.row_blocks;
  for (int64_t r = p.row_blocks + 1; r <= most; ++r)
    if (idle_share(r) < idle_share(best) - kWorthEvening) best = r;
  return best;
}

/// Blocks of k that a kernel takes side by side: where operands are read as they lie, and C has fewer chains than there are registers.
int64_t blocks_a_unit(const GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  const int64_t vectors = ceil_div(p.columns, shape.lanes), stride = p.swapped ? g.a.row_stride : g.b.col_stride;
  const bool in_place = g.operand_dtype == DType::f32 && g.a.hole == nullptr && g.b.hole == nullptr &&
                        (stride == 1 || p.columns == 1) && p.rows <= shape.rows && vectors <= shape.vectors;
  return in_place ? blocks_side_by_side(shape.rows * shape.vectors, static_cast<int>(p.rows * vectors)) : 1;
}

/// Splits k where C is so small a tile that threads would each prepare the same operands, or that one block's chains leave registers
/// empty.
bool try_split(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  constexpr int64_t kMaxElements = 16384, kMaxRows = 64, kUnitsAThread = 2;  // more rows are worth columns prepared twice
  constexpr int64_t kIdleShare = 8;                                          // an eighth of the threads' time
  if (g.batch > 1 || p.rows * p.columns > kMaxElements || p.rows > std::min(kMaxRows, most_tile_rows(shape, kPrivatePercent)))
    return false;
  p.blocks_a_unit = blocks_a_unit(p, g, shape);
  const int64_t units = ceil_div(p.k_blocks, p.blocks_a_unit), turns = round_up(units, p.threads);
  const bool is_shared = p.threads > 1 && units >= kUnitsAThread * p.threads && (turns - units) * kIdleShare <= turns,
             has_empty_registers = p.blocks_a_unit > 1 && units > 1;
  if (!is_shared && !has_empty_registers) return false;
  p.path = GemmPlan::Path::kSplit;
  p.tile_scratch = true, p.rounds_in_kernel = false;
  p.max_tile_rows = p.rows, p.max_tile_columns = round_up(p.columns, shape.columns());
  const int64_t sum_bytes = p.rows * row_area_ld(p.max_tile_columns) * kFloat, turn = p.blocks_a_unit * p.threads;
  const int64_t fit = std::max<int64_t>(cache_sizes().l2_bytes / sum_bytes / turn, 1) * turn, times = ceil_div(p.k_blocks, fit);
  p.blocks_at_once = std::min(round_up(ceil_div(p.k_blocks, times), turn), p.k_blocks);
  return true;
}

void lay_out(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  const int64_t depth = std::min(std::max<int64_t>(g.k, 1), kGemmBlock), words = shape.words(depth);
  const bool holes = g.a.hole != nullptr || g.b.hole != nullptr, splits = p.path == GemmPlan::Path::kSplit,
             packs_alone = p.path == GemmPlan::Path::kPrivate || splits, by_block = p.path == GemmPlan::Path::kByBlock;
  const int64_t group_columns = p.group_panels(shape.columns()) * shape.columns();
  const bool bf16_rows = g.operand_dtype == DType::bf16 && (p.swapped ? g.b : g.a).hole != nullptr;
  const auto bytes_of = [](int64_t floats) { return round_up(floats * kFloat, kLine); };
  int64_t at = kLaneHeaderBytes;
  const auto take = [&at](int64_t bytes) { return (at += bytes) - bytes; };
  p.rows_offset = take(bytes_of(row_area_floats(p.max_tile_rows, words, shape.rows, shape.lanes)));
  p.panel_bytes = packs_alone ? bytes_of(shape.columns() * words) : 0;
  p.panels_offset = take(2 * p.panel_bytes);
  // A hole's block of columns or, where the hole cannot write fp32 in place, of rows
  p.staging_offset = take(std::max(holes ? bytes_of(shape.columns() * kGemmBlock) : 0,
                                   bf16_rows ? bytes_of(p.max_tile_rows * row_area_ld(depth) / 2) : 0));
  p.tile_ld = row_area_ld(by_block ? group_columns : p.max_tile_columns);
  p.tile_offset = take(p.tile_scratch && !by_block && !splits ? bytes_of(p.tile_floats()) : 0);
  p.transposed_offset = take(p.swapped && g.store != nullptr ? bytes_of(p.max_tile_columns * p.max_tile_rows) : 0);
  p.partial_offset =
      take(p.k_blocks > 1 && shape.depth < shape.words(kGemmBlock) ? bytes_of(p.max_tile_rows * shape.columns()) : 0);
  p.private_bytes = at;

  p.private_offset = kLine * p.threads;
  p.shared_offset = p.private_offset + p.private_bytes * p.threads;
  const int64_t packed_bytes = packs_alone ? 0 : bytes_of(group_columns * shape.words(p.packed_depth));
  p.sums_offset = p.shared_offset + packed_bytes * (p.copies_ahead ? 2 : 1);
  const int64_t sums = by_block && p.tile_scratch ? p.group_rows() * p.tile_ld
                       : splits                   ? (1 + p.blocks_at_once) * p.tile_floats()
                                                  : 0;
  p.total_bytes = p.sums_offset + bytes_of(sums);
}

/// Which operand serves as rows, and where sums build up.
void choose_roles(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  // Rows are broadcast, columns fill vectors. Where A has its rows adjacent in memory they serve as vectors as they are, and the
  // fewer columns of B are what has to be packed.
  const bool few = g.n <= std::min<int64_t>(kMaxSwappedRows, shape.rows) && g.m >= 2 * g.n && g.m >= shape.lanes;
  const bool adjacent = g.operand_dtype == DType::f32 && g.n <= kMaxAdjacentSwap && g.m >= 4 * g.n && g.k >= kGemmBlock / 2 &&
                        g.a.hole == nullptr && g.a.row_stride == 1 && g.b.hole == nullptr;
  p.swapped = few || adjacent;
  p.rows = p.swapped ? g.n : g.m;
  p.columns = p.swapped ? g.m : g.n;
  p.k_blocks = std::max<int64_t>(ceil_div(g.k, kGemmBlock), 1);
  p.rounds_in_kernel = g.result_dtype == DType::bf16 && g.store == nullptr && !p.swapped;
  const bool one_pass = shape.words(std::min(g.k, kGemmBlock)) <= shape.depth;  // else chains wait in C
  p.tile_scratch = g.store != nullptr || p.swapped || (p.rounds_in_kernel && (p.k_blocks > 1 || !one_pass));
}

/// How columns get packed, and how many at a time.
void choose_path(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  using Path = GemmPlan::Path;
  // Columns adjacent in memory can be copied by each tile on the way, at 1 % where a tile has many rows. All others, and where
  // there are rows enough to share the cost, are packed once for all; in a batch by each tile.
  const bool copied = p.swapped ? g.a.hole == nullptr && g.a.row_stride == 1 : g.b.hole == nullptr && g.b.col_stride == 1;
  const int64_t panels = ceil_div(p.columns, shape.columns()),
                packed_bytes = panels * shape.columns() * shape.words(g.k) * kFloat, l2_bytes = cache_sizes().l2_bytes;
  const int64_t enough_rows = !copied                       ? most_tile_rows(shape, kPrivatePercent) + 1
                              : packed_bytes > 2 * l2_bytes ? kMinSharedRowsOfMany
                                                            : kMinSharedRows;
  const bool two_blocks_do =
      p.rows >= kTwoBlocksMinRows && std::max(p.rows, p.columns) <= kTwoBlocksMaxSide && g.k >= 2 * kGemmBlock;
  const bool by_block =
      !p.swapped && (p.k_blocks >= kMinBlocks || two_blocks_do) && p.rows >= kMinBlockRows && packed_bytes > 4 * l2_bytes;
  p.sweeps_rows = !p.swapped && g.batch == 1 && g.k <= kShallow && p.rows >= kMinShallowRows && shape.words(g.k) <= shape.depth;
  p.path = g.batch > 1                              ? Path::kPrivate
           : by_block                               ? Path::kByBlock
           : p.sweeps_rows || p.rows >= enough_rows ? Path::kShared
                                                    : Path::kPrivate;
  p.copies_ahead = p.path == Path::kByBlock && copied;
  p.packed_depth = p.path == Path::kShared ? g.k : std::min(g.k, kGemmBlock);
  if (p.path == Path::kPrivate) return;

  const bool sums_wait = p.path == Path::kByBlock && p.tile_scratch;
  int64_t most_panels = most_group_panels(shape, p.packed_depth);
  if (sums_wait) most_panels = std::min(most_panels, kMaxSumColumns / shape.columns());
  p.column_groups = ceil_div(panels, most_panels);
  const int64_t sum_bytes = p.rows * p.group_panels(shape.columns()) * shape.columns() * kFloat;
  if (sums_wait) p.row_groups = std::min(ceil_div(sum_bytes, most_group_bytes()), ceil_div(p.rows, kMinBlockRows));
}

/// Tiles of a group.
void choose_tiles(GemmPlan& p, const Gemm& g, const MicroShape& shape) {
  const bool is_shared = p.path == GemmPlan::Path::kShared, by_block = p.path == GemmPlan::Path::kByBlock;
  const int64_t panels = p.group_panels(shape.columns());
  // A tile whose sums wait in scratch shares L2 with its rows: as many as words of one element would be.
  const int64_t percent = is_shared ? kSharedPercent : kPrivatePercent;
  p.row_blocks =
      ceil_div(p.group_rows(), most_tile_rows(shape, by_block ? kByBlockPercent : percent / (p.tile_scratch ? shape.steps : 1)));
  if (p.sweeps_rows) p.row_blocks = std::max(p.row_blocks, ceil_div(p.group_rows(), kShallowPanels * shape.rows));
  p.max_tile_rows = ceil_div(p.group_rows(), p.row_blocks);
  // Several k blocks visit a tile several times, and rows that are packed are packed once a tile: a larger one then.
  const bool visits_often = p.k_blocks > 1 && !by_block;
  if (p.tile_scratch && !by_block)
    p.column_blocks = ceil_div(panels * shape.columns(), most_tile_columns(p.max_tile_rows, shape, visits_often ? 50 : 25));
  if (p.sweeps_rows)  // columns that stay in L2 from one panel of rows to the next
    p.column_blocks =
        std::max(p.column_blocks, ceil_div(panels * shape.columns() * shape.words(g.k) * kFloat, cache_sizes().l2_bytes / 2));
  if (p.threads > 1) {
    const int64_t wanted = ceil_div((visits_often ? kTilesOfManyBlocks : kTilesAThread) * p.threads, p.row_blocks * g.batch);
    p.column_blocks = std::max(p.column_blocks, std::min(wanted, std::max<int64_t>(panels / 2, 1)));
  }
  const int64_t fewest = std::max<int64_t>(ceil_div(p.columns, shape.columns()) / p.column_groups, 1);  // of the smallest group
  p.column_blocks = std::min(p.column_blocks, fewest);
  p.row_blocks = even_row_blocks(p, g.batch, shape);
  p.max_tile_rows = ceil_div(p.group_rows(), p.row_blocks);
  p.max_tile_columns = ceil_div(panels, p.column_blocks) * shape.columns();
}

}  // namespace

GemmPlan plan_gemm(const Gemm& g, const MicroShape& shape, int num_threads) {
  GemmPlan p;
  p.threads = static_cast<int>(std::clamp<int64_t>(work_of(g) / kThreadWork, 1, num_threads));
  choose_roles(p, g, shape);
  if (!try_split(p, g, shape)) {
    choose_path(p, g, shape);
    choose_tiles(p, g, shape);
  }
  lay_out(p, g, shape);
  return p;
}

}  // namespace ws::cpu
