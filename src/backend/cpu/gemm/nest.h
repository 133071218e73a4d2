// The loop nest shared by all ISAs, templated on a vector type (see micro_kernel.h): groups of C in turn; their tiles are units of work;
// inside a tile k blocks ascend; inside a k block panels of columns, then panels of rows. Where C is one small tile, blocks of k are the
// units. Takes a plan (plan.h), allocates nothing.
#pragma once
#include <algorithm>
#include <cstdint>
#include <new>

#include "backend/cpu/gemm/blocks.h"
#include "backend/cpu/gemm/cache_sizes.h"
#include "backend/cpu/gemm/code.h"
#include "backend/cpu/gemm/narrow.h"
#include "backend/cpu/gemm/strips.h"
#include "backend/cpu/gemm/tiny.h"
#include "backend/cpu/gemm/units.h"

namespace ws::cpu {
namespace {

template <class V>
class Nest {
 public:
  Nest(const Gemm& g, const GemmPlan& plan, void* workspace, Workers& workers)
      : g_(g), p_(plan), base_(static_cast<char*>(workspace)), workers_(workers),
        by_block_(plan.path == GemmPlan::Path::kByBlock), is_shared_(by_block_ || plan.path == GemmPlan::Path::kShared),
        splits_(plan.path == GemmPlan::Path::kSplit) {
    row_lines_ = plan.swapped ? lines_of_b(g) : lines_of_a(g);
    column_lines_ = plan.swapped ? lines_of_a(g) : lines_of_b(g);
    panels_can_be_copied_ = column_lines_.hole == nullptr && column_lines_.line_stride == 1;
    column_panels_ = ceil_div(plan.columns, kColumns);
    constexpr int64_t kFarPanels = 3;  // times L2
    packed_floats_ = plan.group_panels(kColumns) * kColumns * V::words(plan.packed_depth);
    constexpr int64_t kFarShare = 8;  // of L3
    columns_are_far_ = plan.columns * g.k * static_cast<int64_t>(size_of(g.operand_dtype)) > cache_sizes().l3_bytes / kFarShare;
    panels_are_far_ = packed_floats_ * int64_t{sizeof(float)} > kFarPanels * cache_sizes().l2_bytes;
    tiles_ = plan.row_blocks * plan.column_blocks;
  }

  void run() {
    for (int lane = 0; lane < p_.threads; ++lane) new (private_area(lane)) Lane();
    const int64_t at_once = by_block_ ? 1 : splits_ ? p_.blocks_at_once : p_.k_blocks;
    for (int64_t column_group = 0; column_group < p_.column_groups; ++column_group) {
      first_panel_ = part_begin(column_panels_, p_.column_groups, column_group);
      group_panels_ = part_begin(column_panels_, p_.column_groups, column_group + 1) - first_panel_;
      for (row_group_ = 0; row_group_ < p_.row_groups; ++row_group_)
        for (int64_t block = 0; block < p_.k_blocks; block += at_once) {
          const int64_t end = std::min(block + at_once, p_.k_blocks);
          if (splits_)
            split_blocks(block, end);
          else
            blocks_of_group(block, end);
        }
    }
  }

 private:
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  static constexpr int64_t kWholeWords = V::kSteps * V::words(1);  // elements of k that words come in

  /// A tile of C, in the nest's roles, and where its sums build up.
  struct Tile {
    int64_t unit, batch, row_block, row0, rows, panel0, panel1, column0, columns;  // unit and row_block: of the group
    float* c;
    int64_t ldc;
  };

  struct RowsId {
    int64_t batch = -1, row_group = -1, row_block = -1, k_block = -1;
    bool operator==(const RowsId&) const = default;
  };
  struct PanelId {
    int64_t batch = -1, k_block = -1, panel = -1;
    bool operator==(const PanelId&) const = default;
  };
  /// What a lane has ready: a block of rows, and two panels of columns, one in use and one in the making.
  struct Lane {
    RowsId rows;
    RowBlock row_block;
    PanelId panels[2];
  };
  static_assert(sizeof(Lane) <= kLaneHeaderBytes);

  /// Blocks [k_block, k_end) of k of the group's tiles.
  void blocks_of_group(int64_t k_block, int64_t k_end) const {
    auto* const cursors = reinterpret_cast<Cursor*>(base_);
    if (is_shared_ && (k_block == 0 || !p_.copies_ahead)) pack_columns(k_block, k_end, cursors);
    run_units(g_.batch * tiles_, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) {
      [[maybe_unused]] const typename V::UnitScope scope;
      const Tile t = tile_at(unit, lane);
      tile(t, k_block, k_end, lane, worker);
      if (k_end == p_.k_blocks) hand_on(t, lane, worker);
    });
  }

  /// Blocks [k_block, k_end) of k, shared out: the sum of each has its place behind C's.
  void split_blocks(int64_t k_block, int64_t k_end) {
    split_begin_ = k_block, split_end_ = k_end;
    const Tile whole = tile_at(0, 0);
    run_units(split_units(), p_.threads, reinterpret_cast<Cursor*>(base_), workers_, [&](int64_t unit, int lane, int worker) {
      [[maybe_unused]] const typename V::UnitScope scope;
      const int64_t first = k_block + unit * p_.blocks_a_unit, end = std::min(first + p_.blocks_a_unit, k_end);
      Tile t = whole;
      t.c += (1 + first - k_block) * p_.tile_floats();
      if constexpr (V::kSteps == 1)
        if (p_.blocks_a_unit > 1 && end - first == p_.blocks_a_unit && depth_of(end - 1) == kGemmBlock)
          return blocks_of_k<V>(strip_of(t, 0, first, lane), row_lines_, column_lines_, first * kGemmBlock, p_.tile_floats());
      for (int64_t block = first; block < end; ++block, t.c += p_.tile_floats()) tile(t, block, block + 1, lane, worker);
    });
    add_sums(whole, k_block, k_end);
    if (k_end == p_.k_blocks) hand_on(whole, 0, 0);
  }
  /// Of those blocks, to the sum of those before, in their order.
  void add_sums(const Tile& whole, int64_t k_block, int64_t k_end) const {
    const int64_t blocks = k_end - k_block, grain = ceil_div(kThreadWork, blocks * p_.tile_ld);
    workers_.parallel_for(whole.rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        float* const sum = whole.c + i * whole.ldc;
        for (int64_t block = 0; block < blocks; ++block) {
          const float* const of_block = sum + (1 + block) * p_.tile_floats();
          if (k_block + block == 0)
            std::copy_n(of_block, whole.columns, sum);
          else
            for (int64_t j = 0; j < whole.columns; ++j) sum[j] += of_block[j];
        }
      }
    });
  }
  int64_t split_units() const { return ceil_div(split_end_ - split_begin_, p_.blocks_a_unit); }

  char* private_area(int lane) const { return base_ + p_.private_offset + lane * p_.private_bytes; }
  Lane& lane_at(int lane) const { return *reinterpret_cast<Lane*>(private_area(lane)); }
  float* floats(int lane, int64_t offset) const { return reinterpret_cast<float*>(private_area(lane) + offset); }
  float* panel_area(int lane, int which) const { return floats(lane, p_.panels_offset + which * p_.panel_bytes); }
  float* shared_panel(int64_t k_block, int64_t panel) const {
    const int64_t before = p_.copies_ahead ? k_block % 2 * packed_floats_
                           : by_block_     ? 0
                                           : V::words(k_block * kGemmBlock) * group_panels_ * kColumns;
    return reinterpret_cast<float*>(base_ + p_.shared_offset) + before +
           (panel - first_panel_) * kColumns * V::words(depth_of(k_block));
  }
  int64_t depth_of(int64_t k_block) const { return std::min(g_.k - k_block * kGemmBlock, kGemmBlock); }
  int64_t columns_in(int64_t panel) const { return std::min(kColumns, p_.columns - panel * kColumns); }

  /// The group's panels of some blocks of k, for all lanes: a few panels a unit, and of them a few k at a time where columns are
  /// adjacent, so that memory is read in long pieces.
  void pack_columns(int64_t k_block, int64_t k_end, Cursor* cursors) const {
    constexpr int64_t kMostPanels = 16, kUnitsALane = 4, kStep = kWholeWords > 8 ? kWholeWords : 8;
    const int64_t wanted = ceil_div(group_panels_ * (k_end - k_block), kUnitsALane * p_.threads);
    const int64_t together = panels_can_be_copied_ ? std::clamp<int64_t>(wanted, 1, kMostPanels) : 1;
    const int64_t pieces = ceil_div(group_panels_, together), last_panel = first_panel_ + group_panels_;
    run_units((k_end - k_block) * pieces, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) {
      const int64_t block = k_block + unit / pieces, k0 = block * kGemmBlock, depth = depth_of(block),
                    first = first_panel_ + unit % pieces * together, end = std::min(first + together, last_panel);
      if (!panels_can_be_copied_) return pack_panel_now(0, block, first, shared_panel(block, first), lane, worker);
      const int64_t columns = std::min(end * kColumns, p_.columns) - first * kColumns;
      for (int64_t p = 0; p < depth; p += kStep) {
        constexpr int64_t kAhead = 4 * kStep;
        ask_for_columns(first * kColumns, columns, k0 + p + kAhead, std::min(kStep, depth - p - kAhead));
        for (int64_t i = first; i < end; ++i)
          pack_column_panel<V>(column_lines_, 0, i * kColumns, columns_in(i), kColumns, k0 + p, std::min(kStep, depth - p),
                               shared_panel(block, i) + V::words(p) * kColumns, nullptr, worker);
      }
    });
  }
  void ask_for_columns(int64_t column, int64_t columns, int64_t k, int64_t depth) const {
    int64_t lines = 0;
    Lookahead ahead = lookahead_of(column_lines_, 0, column, columns, k, depth, lines);
    for (; lines > 0; --lines) ahead.ask();
  }

  void pack_panel_now(int64_t batch, int64_t k_block, int64_t panel, float* dst, int lane, int worker) const {
    pack_column_panel<V>(column_lines_, batch, panel * kColumns, columns_in(panel), kColumns, k_block * kGemmBlock,
                         depth_of(k_block), dst, floats(lane, p_.staging_offset), worker);
  }

  Tile tile_at(int64_t unit, int lane) const {
    const int64_t index = unit % tiles_, column_block = index % p_.column_blocks;
    Tile t{};
    t.unit = unit;
    t.batch = unit / tiles_;
    t.row_block = index / p_.column_blocks;
    t.row0 = row_begin(t.row_block);
    t.rows = row_begin(t.row_block + 1) - t.row0;
    t.panel0 = tile_panel(column_block);
    t.panel1 = tile_panel(column_block + 1);
    t.column0 = t.panel0 * kColumns;
    t.columns = std::min(t.panel1 * kColumns, p_.columns) - t.column0;
    if (p_.tile_scratch && (by_block_ || splits_))
      t.c = reinterpret_cast<float*>(base_ + p_.sums_offset) + (t.row0 - row_begin(0)) * p_.tile_ld +
            (t.panel0 - first_panel_) * kColumns,
      t.ldc = p_.tile_ld;
    else if (p_.tile_scratch)
      t.c = floats(lane, p_.tile_offset), t.ldc = p_.tile_ld;
    else if (!p_.rounds_in_kernel)
      t.c = result<float>(t.batch, t.row0, t.column0), t.ldc = g_.c_row_stride;
    return t;
  }
  template <class T>
  T* result(int64_t batch, int64_t row, int64_t column) const {
    return static_cast<T*>(g_.c) + batch * g_.c_batch_stride + row * g_.c_row_stride + column;
  }
  int64_t row_begin(int64_t row_block) const {
    const int64_t first = part_begin(p_.rows, p_.row_groups, row_group_),
                  end = part_begin(p_.rows, p_.row_groups, row_group_ + 1);
    return first + part_begin(end - first, p_.row_blocks, row_block);
  }
  int64_t tile_panel(int64_t column_block) const {
    return first_panel_ + part_begin(group_panels_, p_.column_blocks, column_block);
  }

  Strip strip_of(const Tile& t, int64_t panel, int64_t k_block, int lane) const {
    const bool is_last = !splits_ && k_block + 1 == p_.k_blocks, rounds = p_.rounds_in_kernel && is_last;
    Strip s{.rows = t.rows,
            .depth = V::words(depth_of(k_block)),
            .columns = columns_in(panel),
            .c = t.c == nullptr ? nullptr : t.c + (panel - t.panel0) * kColumns,
            .ldc = t.ldc,
            .how = k_block == 0 || splits_ ? Accumulate::kStore : Accumulate::kAdd,
            .rounded = rounds ? result<Bf16>(t.batch, t.row0, panel * kColumns) : nullptr,
            .ld_rounded = g_.c_row_stride,
            .partial = floats(lane, p_.partial_offset)};
    if (is_last && !p_.swapped) add_store_rows(s, t, panel);
    return s;
  }
  /// The hole's operands, so that they are near when the tile is done.
  void add_store_rows(Strip& s, const Tile& t, int64_t panel) const {
    static_assert(kMaxStoreRows == kMaxStoreOperands);
    for (; s.num_store_rows < g_.num_store_operands; ++s.num_store_rows) {
      const StoreOperand& x = g_.store_operands[s.num_store_rows];
      const int64_t first = (t.batch * g_.m + t.row0) * x.row_bytes + panel * kColumns * x.element_bytes;
      s.store_rows[s.num_store_rows] = {static_cast<const char*>(x.data) + first, x.row_bytes, s.columns * x.element_bytes};
    }
  }

  /// The lane's block of rows; prepared unless it is the last one used.
  const RowBlock& rows_ready(const RowsId& id, bool any_strides, int lane, int worker) const {
    Lane& own = lane_at(lane);
    if (own.rows != id) {
      const int64_t row0 = row_begin(id.row_block), rows = row_begin(id.row_block + 1) - row0;
      own.row_block = prepare_rows<V>(row_lines_, id.batch, row0, rows, id.k_block * kGemmBlock, depth_of(id.k_block),
                                      any_strides, floats(lane, p_.rows_offset), floats(lane, p_.staging_offset), worker);
      own.rows = id;
    }
    return own.row_block;
  }

  /// Which of the lane's panels holds these columns; packs them where none does.
  int panel_ready(const PanelId& id, int lane, int worker) const {
    Lane& own = lane_at(lane);
    for (int which : {0, 1})
      if (own.panels[which] == id) return which;
    pack_panel_now(id.batch, id.k_block, id.panel, panel_area(lane, 0), lane, worker);
    own.panels[0] = id;
    return 0;
  }

  /// Blocks [k_block, k_end) of k.
  void tile(const Tile& t, int64_t k_block, int64_t k_end, int lane, int worker) const {
    if constexpr (V::kSteps == 1)
      if (!is_shared_ && reads_in_place<V>(t.rows, p_.columns, column_lines_))
        return direct_tile(t, k_block, k_end, lane, worker);
    for (; k_block < k_end; ++k_block) {
      const RowsId id = rows_of({t.unit, k_block});
      const RowBlock& rows = rows_ready(id, false, lane, worker);
      if (p_.sweeps_rows) {
        Strip strip = strip_of(t, t.panel0, k_block, lane);
        strip.columns = t.columns;
        rows_of_columns<V>(strip, rows, shared_panel(k_block, t.panel0), kColumns * V::words(depth_of(k_block)));
        continue;
      }
      const Step next = step_after(t.unit, k_block, lane);
      SideWork<V> side;
      if (next.unit >= 0 && rows_of(next) != id) ask_for_rows(side, rows_of(next));
      if (p_.copies_ahead) start_share(side, {t.unit, k_block}, next, worker);
      for (int64_t panel = t.panel0; panel < t.panel1; ++panel) {
        side.strips = t.panel1 - panel;
        const auto panel_at = [&](int64_t p) {
          return p < t.panel1 ? PanelId{t.batch, k_block, p} : p == t.panel1 ? panel_of(next) : PanelId{};
        };
        const PanelId after = panel_at(panel + 1);
        if (is_shared_) {
          ask_for_panel(side, after);
          side.copy_strips = side.strips;
          columns_of_rows<V>(strip_of(t, panel, k_block, lane), rows, shared_panel(k_block, panel), side);
          continue;
        }
        const int now = panel_ready(panel_at(panel), lane, worker);
        const bool copies = start_copy(side, row_at(after, 0), depth_of(after.k_block), panel_area(lane, 1 - now),
                                       row_at(panel_at(panel + 2), 0));
        columns_of_rows<V>(strip_of(t, panel, k_block, lane), rows, panel_area(lane, now), side);
        if (!copies) continue;
        side.complete_copy();
        zero_missing_words<V>(panel_area(lane, 1 - now), kColumns, depth_of(after.k_block));
        lane_at(lane).panels[1 - now] = after;
      }
      side.complete_copy();
    }
  }

  /// A block of k of a tile.
  struct Step {
    int64_t unit = -1, k_block = -1;
  };
  /// What the lane will most likely do after a step; nothing where its range ends.
  Step step_after(int64_t unit, int64_t k_block, int lane) const {
    const int64_t units = g_.batch * tiles_;
    if (splits_) {
      const int64_t end = split_begin_ + part_begin(split_units(), p_.threads, lane + 1) * p_.blocks_a_unit;
      return k_block + 1 < std::min(end, split_end_) ? Step{unit, k_block + 1} : Step{};
    }
    if (!by_block_ && k_block + 1 < p_.k_blocks) return {unit, k_block + 1};
    if (unit + 1 < part_begin(units, p_.threads, lane + 1)) return {unit + 1, by_block_ ? k_block : 0};
    if (by_block_ && k_block + 1 < p_.k_blocks) return {part_begin(units, p_.threads, lane), k_block + 1};
    return {};
  }
  RowsId rows_of(const Step& s) const { return {s.unit / tiles_, row_group_, s.unit % tiles_ / p_.column_blocks, s.k_block}; }
  /// The first that a step reads.
  PanelId panel_of(const Step& s) const {
    return s.unit < 0 ? PanelId{} : PanelId{s.unit / tiles_, s.k_block, tile_panel(s.unit % p_.column_blocks)};
  }

  /// Hardware has the next panel in time where L2 keeps a good part of them all.
  void ask_for_panel(SideWork<V>& side, const PanelId& id) const {
    if (!panels_are_far_ || id.batch < 0) return;
    side.panel = reinterpret_cast<const char*>(shared_panel(id.k_block, id.panel));
    side.panel_lines = V::words(depth_of(id.k_block)) * kColumns * int64_t{sizeof(float)} / 64;
  }

  void ask_for_rows(SideWork<V>& side, const RowsId& next) const {
    const int64_t row0 = row_begin(next.row_block), rows = row_begin(next.row_block + 1) - row0;
    side.next_rows =
        lookahead_of(row_lines_, next.batch, row0, rows, next.k_block * kGemmBlock, depth_of(next.k_block), side.next_rows_lines);
  }

  /// What a tile copies of the next block's columns: those it has in this block, of their depth a part for each block of rows.
  struct Share {
    PanelId first;
    int64_t panels = 0, begin = 0, end = 0;  // of the depth
  };
  Share share_of(const Step& s) const {
    if (s.unit < 0 || s.k_block + 1 >= p_.k_blocks) return {};
    const int64_t column_block = s.unit % p_.column_blocks, row_block = s.unit / p_.column_blocks,
                  depth = depth_of(s.k_block + 1), words = ceil_div(depth, kWholeWords), panel = tile_panel(column_block);
    return {{0, s.k_block + 1, panel},
            tile_panel(column_block + 1) - panel,
            part_begin(words, p_.row_blocks, row_block) * kWholeWords,
            std::min(part_begin(words, p_.row_blocks, row_block + 1) * kWholeWords, depth)};
  }
  /// Has the share copied during the tile; a panel that is cut off is packed now.
  void start_share(SideWork<V>& side, const Step& s, const Step& then, int worker) const {
    Share share = share_of(s);
    const int64_t depth = share.end - share.begin, last = share.first.panel + share.panels - 1;
    if (depth == 0) return;
    const auto area = [&](int64_t panel) { return shared_panel(share.first.k_block, panel) + V::words(share.begin) * kColumns; };
    if (columns_in(last) < kColumns) {
      pack_column_panel<V>(column_lines_, 0, last * kColumns, columns_in(last), kColumns,
                           share.first.k_block * kGemmBlock + share.begin, depth, area(last), nullptr, worker);
      --share.panels;
    }
    if (share.panels == 0) return;
    const Share next = share_of(then);
    start_copy(side, row_at(share.first, share.begin), depth, area(share.first.panel), row_at(next.first, next.begin));
    side.panels = share.panels;
    side.panel_floats = kColumns * V::words(depth_of(share.first.k_block));
    for (int64_t i = 0; i < share.panels; ++i) zero_missing_words<V>(area(share.first.panel + i), kColumns, depth);
  }

  /// Has so much of k copied to `dst` on the way, and the start of `then` asked for.
  bool start_copy(SideWork<V>& side, const char* src, int64_t depth, float* dst, const char* then) const {
    if (src == nullptr) return false;
    side.src = src, side.dtype = column_lines_.dtype, side.step = column_lines_.depth_stride, side.depth = depth;
    side.dst = dst, side.then = then;
    return true;
  }
  /// Where a panel that can be copied has a row of its depth, else nullptr.
  const char* row_at(const PanelId& id, int64_t depth) const {
    if (id.batch < 0 || !panels_can_be_copied_ || columns_in(id.panel) < kColumns) return nullptr;
    const char* row = nullptr;
    with_operand_type<V>(column_lines_.dtype, [&]<class S>(const S*) {
      row = reinterpret_cast<const char*>(column_lines_.at<S>(id.batch, id.panel * kColumns, id.k_block * kGemmBlock + depth));
    });
    return row;
  }

  void direct_tile(const Tile& t, int64_t k_block, int64_t k_end, int lane, int worker) const {
    for (; k_block < k_end; ++k_block) {
      const RowBlock& rows = rows_ready(rows_of({t.unit, k_block}), true, lane, worker);
      Strip strip = strip_of(t, t.panel0, k_block, lane);
      strip.columns = t.columns;
      with_element_type(column_lines_.dtype, [&]<class S>(const S*) {
        direct_columns<V>(strip, rows, column_lines_.at<S>(t.batch, t.column0, k_block * kGemmBlock), column_lines_.line_stride,
                          column_lines_.depth_stride, columns_are_far_);
      });
    }
  }

  /// Hands a finished tile on: to C where roles are swapped, to the hole where there is one.
  void hand_on(const Tile& t, int lane, int worker) const {
    if (!p_.tile_scratch || p_.rounds_in_kernel) return;
    if (g_.store == nullptr) {
      const int64_t row0 = p_.swapped ? t.column0 : t.row0, column0 = p_.swapped ? t.row0 : t.column0;
      with_element_type(g_.result_dtype,
                        [&]<class T>(const T*) { copy_tile(t, result<T>(t.batch, row0, column0), g_.c_row_stride); });
    } else if (p_.swapped) {
      float* c = floats(lane, p_.transposed_offset);
      copy_tile(t, c, t.rows);
      g_.store(g_.store_context, c, t.rows, t.batch, t.column0, t.row0, t.columns, t.rows, worker);
    } else {
      g_.store(g_.store_context, t.c, t.ldc, t.batch, t.row0, t.column0, t.rows, t.columns, worker);
    }
  }
  /// A tile as C has it: transposed back where roles are swapped.
  template <class T>
  void copy_tile(const Tile& t, T* c, int64_t ld) const {
    if (p_.swapped) {
      for (int64_t j = 0; j < t.columns; ++j)
        for (int64_t i = 0; i < t.rows; ++i) put(c[j * ld + i], t.c[i * t.ldc + j]);
    } else {
      for (int64_t i = 0; i < t.rows; ++i)
        for (int64_t j = 0; j < t.columns; ++j) put(c[i * ld + j], t.c[i * t.ldc + j]);
    }
  }

  const Gemm& g_;
  const GemmPlan& p_;
  char* base_;
  Workers& workers_;
  bool by_block_, is_shared_, splits_, panels_can_be_copied_, panels_are_far_, columns_are_far_;
  Lines row_lines_, column_lines_;
  int64_t column_panels_ = 0, packed_floats_ = 0, tiles_ = 0;   // a group's
  int64_t row_group_ = 0, first_panel_ = 0, group_panels_ = 0;  // the group that is being done
  int64_t split_begin_ = 0, split_end_ = 0;                     // the blocks of k that are
};

template <class V>
void run_blocked(const Gemm& g, const GemmPlan& plan, void* workspace, Workers& workers) {
  Nest<V>(g, plan, workspace, workers).run();
}

template <class V>
void run_chain(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row_stride, int64_t a_col_stride, const float* b,
               int64_t b_row_stride, int64_t b_col_stride, float* c, int64_t c_row_stride, bool from_zero, void* scratch) {
  constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  const bool direct = reads_in_place<V>(m, n, Lines{b, b_col_stride, b_row_stride, 0});
  float* packed = static_cast<float*>(scratch);  // first, so that it is aligned
  const RowBlock rows =
      prepare_rows<V>(Lines{a, a_row_stride, a_col_stride, 0}, 0, 0, m, 0, k, direct, packed + k * kColumns, nullptr, 0);
  Strip strip{m, k, n, c, c_row_stride, Accumulate::kStore, !from_zero};
  if (direct) return direct_columns<V>(strip, rows, b, b_col_stride, b_row_stride);
  SideWork<V> none;
  for (int64_t j = 0; j < n; j += kColumns) {
    strip.columns = std::min(kColumns, n - j);
    strip.c = c + j;
    pack_panel<V>(packed, kColumns, strip.columns, k, b + j * b_col_stride, b_col_stride, b_row_stride);
    columns_of_rows<V>(strip, rows, packed, none);
  }
}

template <class V>
constexpr MicroShape kMicroShape = {V::kRows, V::kLanes, V::kVectors, V::kDepth, V::kSteps, static_cast<int>(V::words(1))};
template <class V>
constexpr GemmCode gemm_code() {
  return {kMicroShape<V>, run_tiny<V>, run_blocked<V>, run_chain<V>, narrow_block<V>};
}
template <class V>
constexpr GemmCode blocked_code() {
  return {kMicroShape<V>, nullptr, run_blocked<V>, nullptr, nullptr};
}

}  // namespace
}  // namespace ws::cpu
