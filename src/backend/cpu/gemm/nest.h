// The loop nest shared by all ISAs, templated on a vector type (see micro_kernel.h): tiles of C are units of work; inside a tile k
// blocks ascend; inside a k block panels of columns, then panels of rows. Takes a plan (plan.h), allocates nothing.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "backend/cpu/gemm/code.h"
#include "backend/cpu/gemm/micro_kernel.h"
#include "backend/cpu/gemm/pack.h"

namespace ws::cpu {
namespace {

/// Where a lane's share of the units is up to; others take from it when theirs is done.
struct alignas(64) Cursor {
  std::atomic<int64_t> next;
  int64_t end;
};

/// Each lane walks its own range in order (so that what it packed serves the next unit too), then helps the others.
template <class Body>
void run_units(int64_t units, int threads, Cursor* cursors, Workers& workers, Body&& body) {
  if (threads == 1 || units == 1) {
    for (int64_t u = 0; u < units; ++u) body(u, 0, 0);
    return;
  }
  for (int lane = 0; lane < threads; ++lane) {
    new (&cursors[lane].next) std::atomic<int64_t>(part_begin(units, threads, lane));
    cursors[lane].end = part_begin(units, threads, lane + 1);
  }
  workers.parallel_for(threads, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t lane = begin; lane < end; ++lane) {
      for (int step = 0; step < threads; ++step) {
        Cursor& cursor = cursors[(lane + step) % threads];
        for (int64_t u; (u = cursor.next.fetch_add(1, std::memory_order_relaxed)) < cursor.end;) body(u, static_cast<int>(lane), worker);
      }
    }
  });
}

/// Which block of rows a lane has prepared.
struct PreparedRows {
  int64_t batch = -1, row_block = -1, k_block = -1;
  RowBlock block;
};
static_assert(sizeof(PreparedRows) <= 64);   // the first line of a lane's area

/// A strip of C that one prepared block of rows gives with one panel of columns.
struct Strip {
  int64_t rows, depth, columns;
  float* c;
  int64_t ldc;
  Accumulate how;
};

/// One packed panel of columns; `lines` of memory to come are asked for on the way.
template <class V>
void columns_of_rows(const Strip& s, const RowBlock& a, const float* b, Lookahead& next, int64_t lines_a_call) {
  const RowPanels<V> panels(s.rows);
  const int vectors = static_cast<int>(ceil_div(s.columns, V::kLanes));
  MicroCall call{.k = s.depth, .a_row = a.row_stride, .a_col = a.depth_stride, .b = b, .ldc = s.ldc,
                 .last = static_cast<int>(s.columns - (vectors - 1) * V::kLanes), .how = s.how, .next = &next, .next_lines = lines_a_call};
  for (int64_t i = 0; i < panels.count; ++i) {
    const int64_t begin = panels.begin(i), height = panels.height(i);
    call.a = a.data + (a.packed ? panels.offset(i, s.depth) : begin * a.row_stride);
    call.c = s.c + begin * s.ldc;
    (a.packed ? Kernels<V>::packed : Kernels<V>::row_major)[height - 1][vectors - 1](call);
  }
}

/// One panel of rows against columns read where they lie.
template <class V>
void direct_columns(const Strip& s, const RowBlock& a, const float* b, int64_t ldb) {
  const int64_t most = int64_t{direct_vectors<V>(static_cast<int>(s.rows))} * V::kLanes;
  MicroCall call{.k = s.depth, .a = a.data, .a_row = a.row_stride, .a_col = a.depth_stride, .ldb = ldb, .ldc = s.ldc, .how = s.how};
  for (int64_t j = 0; j < s.columns; j += most) {
    const int64_t width = std::min(most, s.columns - j), vectors = ceil_div(width, V::kLanes);
    call.b = b + j;
    call.c = s.c + j;
    call.last = static_cast<int>(width - (vectors - 1) * V::kLanes);
    Kernels<V>::direct[s.rows - 1][vectors - 1](call);
  }
}

template <class V>
class Nest {
 public:
  Nest(const Gemm& g, const GemmPlan& plan, void* workspace, Workers& workers)
      : g_(g), p_(plan), base_(static_cast<char*>(workspace)), workers_(workers) {
    row_lines_ = plan.swapped ? lines_of_b(g.b) : lines_of_a(g.a);
    column_lines_ = plan.swapped ? lines_of_a(g.a) : lines_of_b(g.b);
    column_panels_ = ceil_div(plan.columns, kColumns);
    panel_floats_ = std::min(g.k, kGemmBlock) * kColumns;
  }

  void run() {
    for (int lane = 0; lane < p_.threads; ++lane) new (private_area(lane)) PreparedRows();
    auto* cursors = reinterpret_cast<Cursor*>(base_);
    const int64_t tiles = p_.row_blocks * p_.column_blocks;
    if (p_.path == GemmPlan::Path::kPrivate) {
      run_units(g_.batch * tiles, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) { private_tile(unit / tiles, unit % tiles, lane, worker); });
      return;
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t group = 0; group < p_.k_blocks; group += p_.group_blocks) {
        const int64_t blocks = std::min(p_.group_blocks, p_.k_blocks - group), strips = ceil_div(column_panels_, kStripPanels);
        run_units(blocks * strips, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) {
          pack_strip(batch, group, unit / strips, unit % strips * kStripPanels, lane, worker);
        });
        run_units(tiles, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) { shared_tile(batch, unit, group, lane, worker); });
      }
    }
  }

 private:
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  static constexpr int64_t kStripPanels = 4;

  /// A tile of C, in the nest's roles, and where its sums build up.
  struct Tile {
    int64_t batch, row_block, row0, rows, panel0, panel1, column0, columns;
    float* c;
    int64_t ldc;
  };

  char* private_area(int lane) const { return base_ + p_.private_offset + lane * p_.private_bytes; }
  float* floats(char* area, int64_t offset) const { return reinterpret_cast<float*>(area + offset); }
  int64_t depth_of(int64_t k_block) const { return std::min(g_.k - k_block * kGemmBlock, kGemmBlock); }
  float* shared_panel(int64_t block_in_group, int64_t panel) const {
    return floats(base_, p_.shared_b_offset) + (block_in_group * column_panels_ + panel) * panel_floats_;
  }

  void pack_strip(int64_t batch, int64_t group, int64_t block_in_group, int64_t panel0, int lane, int worker) {
    const int64_t k_block = group + block_in_group, column0 = panel0 * kColumns;
    pack_columns<V>(column_lines_, batch, column0, std::min(kStripPanels * kColumns, p_.columns - column0), kColumns, k_block * kGemmBlock, depth_of(k_block),
                    shared_panel(block_in_group, panel0), panel_floats_, floats(private_area(lane), p_.staging_offset), worker);
  }

  Tile tile_at(int64_t batch, int64_t index, int lane) const {
    Tile t{};
    t.batch = batch;
    t.row_block = index / p_.column_blocks;
    t.row0 = part_begin(p_.rows, p_.row_blocks, t.row_block);
    t.rows = part_begin(p_.rows, p_.row_blocks, t.row_block + 1) - t.row0;
    const int64_t column_block = index % p_.column_blocks;
    t.panel0 = part_begin(column_panels_, p_.column_blocks, column_block);
    t.panel1 = part_begin(column_panels_, p_.column_blocks, column_block + 1);
    t.column0 = t.panel0 * kColumns;
    t.columns = std::min(t.panel1 * kColumns, p_.columns) - t.column0;
    if (p_.tile_scratch) t.c = floats(private_area(lane), p_.tile_offset), t.ldc = p_.tile_ld;
    else if (p_.c_scratch) t.c = floats(base_, p_.c_scratch_offset) + t.row0 * p_.columns + t.column0, t.ldc = p_.columns;
    else t.c = g_.c + batch * g_.c_batch_stride + t.row0 * g_.c_row_stride + t.column0, t.ldc = g_.c_row_stride;
    return t;
  }

  /// The tile's rows of one k block, prepared unless the lane has them from its last tile.
  const RowBlock& rows_of(const Tile& t, int64_t k_block, bool any_strides, int lane, int worker) {
    auto& prepared = *reinterpret_cast<PreparedRows*>(private_area(lane));
    if (prepared.batch != t.batch || prepared.row_block != t.row_block || prepared.k_block != k_block) {
      float* area = floats(private_area(lane), p_.a_offset);
      prepared = {t.batch, t.row_block, k_block,
                  prepare_rows<V>(row_lines_, t.batch, t.row0, t.rows, k_block * kGemmBlock, depth_of(k_block), any_strides, area, worker)};
    }
    return prepared.block;
  }

  Strip strip_of(const Tile& t, int64_t panel, int64_t k_block) const {
    return {t.rows, depth_of(k_block), std::min(kColumns, p_.columns - panel * kColumns), t.c + (panel - t.panel0) * kColumns, t.ldc,
            k_block == 0 ? Accumulate::kStore : Accumulate::kAdd};
  }

  void shared_tile(int64_t batch, int64_t index, int64_t group, int lane, int worker) {
    const Tile t = tile_at(batch, index, lane);
    const int64_t blocks = std::min(p_.group_blocks, p_.k_blocks - group);
    for (int64_t i = 0; i < blocks; ++i) {
      const RowBlock rows = rows_of(t, group + i, false, lane, worker);
      int64_t lines = 0;
      Lookahead next = after(t, index, group, i, blocks, lines);
      const int64_t calls = (t.panel1 - t.panel0) * RowPanels<V>(t.rows).count, lines_a_call = ceil_div(lines, calls);
      for (int64_t panel = t.panel0; panel < t.panel1; ++panel) columns_of_rows<V>(strip_of(t, panel, group + i), rows, shared_panel(i, panel), next, lines_a_call);
    }
    if (group + blocks == p_.k_blocks) hand_on(t, lane, worker);
  }

  /// What this lane will most likely prepare after k block `i` of the group: rows, or its share of the next group's columns.
  Lookahead after(const Tile& t, int64_t index, int64_t group, int64_t i, int64_t blocks, int64_t& lines) const {
    const int64_t tiles = p_.row_blocks * p_.column_blocks;
    if (i + 1 < blocks) return lookahead_of(row_lines_, t.batch, t.row0, t.rows, (group + i + 1) * kGemmBlock, depth_of(group + i + 1), lines);
    const int64_t k0 = (group + blocks) * kGemmBlock;
    if (k0 < g_.k) {
      const int64_t depth = std::min(g_.k - k0, p_.group_blocks * kGemmBlock), begin = part_begin(depth, tiles, index);
      return lookahead_of(column_lines_, t.batch, 0, p_.columns, k0 + begin, part_begin(depth, tiles, index + 1) - begin, lines);
    }
    const int64_t row_block = (index + 1) / p_.column_blocks;
    if (row_block == p_.row_blocks || (row_block == t.row_block && blocks == 1)) return {};
    const int64_t row0 = part_begin(p_.rows, p_.row_blocks, row_block);
    return lookahead_of(row_lines_, t.batch, row0, part_begin(p_.rows, p_.row_blocks, row_block + 1) - row0, group * kGemmBlock, depth_of(group), lines);
  }

  void private_tile(int64_t batch, int64_t index, int lane, int worker) {
    const Tile t = tile_at(batch, index, lane);
    const bool direct = t.rows <= V::kRows && column_lines_.hole == nullptr && (column_lines_.line_stride == 1 || p_.columns == 1);
    float* packed = floats(private_area(lane), p_.b_offset);
    float* staging = floats(private_area(lane), p_.staging_offset);
    for (int64_t k_block = 0; k_block < p_.k_blocks; ++k_block) {
      const RowBlock rows = rows_of(t, k_block, direct, lane, worker);
      const int64_t k0 = k_block * kGemmBlock, depth = depth_of(k_block);
      if (direct) {
        Strip strip = strip_of(t, t.panel0, k_block);
        strip.columns = t.columns;
        direct_columns<V>(strip, rows, column_lines_.data + batch * column_lines_.batch_stride + t.column0 + k0 * column_lines_.depth_stride,
                          column_lines_.depth_stride);
        continue;
      }
      for (int64_t panel = t.panel0; panel < t.panel1; ++panel) {
        const Strip strip = strip_of(t, panel, k_block);
        pack_columns<V>(column_lines_, batch, panel * kColumns, strip.columns, kColumns, k0, depth, packed, 0, staging, worker);
        int64_t lines = 0;
        Lookahead next;
        if (panel + 1 < t.panel1)
          next = lookahead_of(column_lines_, batch, (panel + 1) * kColumns, std::min(kColumns, p_.columns - (panel + 1) * kColumns), k0, depth, lines);
        columns_of_rows<V>(strip, rows, packed, next, ceil_div(lines, RowPanels<V>(t.rows).count));
      }
    }
    hand_on(t, lane, worker);
  }

  /// Hands a finished tile on: to C where roles are swapped, to the hole where there is one.
  void hand_on(const Tile& t, int lane, int worker) const {
    if (!p_.tile_scratch && !p_.c_scratch) return;
    if (!p_.swapped) {
      g_.store(g_.store_context, t.c, t.ldc, t.batch, t.row0, t.column0, t.rows, t.columns, worker);
      return;
    }
    const bool hole = g_.store != nullptr;
    float* c = hole ? floats(private_area(lane), p_.transposed_offset) : g_.c + t.batch * g_.c_batch_stride + t.column0 * g_.c_row_stride + t.row0;
    const int64_t ld = hole ? t.rows : g_.c_row_stride;
    for (int64_t j = 0; j < t.columns; ++j)
      for (int64_t i = 0; i < t.rows; ++i) c[j * ld + i] = t.c[i * t.ldc + j];
    if (hole) g_.store(g_.store_context, c, ld, t.batch, t.column0, t.row0, t.columns, t.rows, worker);
  }

  const Gemm& g_;
  const GemmPlan& p_;
  char* base_;
  Workers& workers_;
  Lines row_lines_, column_lines_;
  int64_t column_panels_ = 0, panel_floats_ = 0;
};

/// Products so small that everything fits on the stack; straight to C unless a hole wants the tile.
template <class V>
void tiny_item(const Gemm& g, int64_t batch, int worker) {
  constexpr int64_t kElements = 4096;
  const float* b = g.b.data + batch * g.b.batch_stride;
  RowBlock a{g.a.data + batch * g.a.batch_stride, g.a.row_stride, g.a.col_stride, false};
  int64_t ldb = g.b.row_stride;
  alignas(64) float a_block[kElements], b_block[kElements], tile[kElements];
  if (g.a.hole != nullptr) {
    g.a.hole(g.a.context, a_block, g.k, batch, 0, 0, g.m, g.k, worker);
    a = {a_block, g.k, 1, false};
  }
  if (g.b.hole != nullptr) {
    g.b.hole(g.b.context, b_block, g.n, batch, 0, 0, g.k, g.n, worker);
    b = b_block, ldb = g.n;
  } else if (g.b.col_stride != 1 && g.n > 1) {
    pack_strided(b_block, g.n, g.n, g.k, b, g.b.col_stride, g.b.row_stride);
    b = b_block, ldb = g.n;
  }
  float* c = g.store != nullptr ? tile : g.c + batch * g.c_batch_stride;
  const int64_t ldc = g.store != nullptr ? g.n : g.c_row_stride;
  const float* rows = a.data;
  const RowPanels<V> panels(g.m);
  for (int64_t i = 0; i < panels.count; ++i) {
    a.data = rows + panels.begin(i) * a.row_stride;
    direct_columns<V>({panels.height(i), g.k, g.n, c + panels.begin(i) * ldc, ldc, Accumulate::kStore}, a, b, ldb);
  }
  if (g.store != nullptr) g.store(g.store_context, tile, ldc, batch, 0, 0, g.m, g.n, worker);
}

template <class V>
void run_gemm(const Gemm& g, const GemmPlan& plan, void* workspace, Workers& workers) {
  if (plan.path != GemmPlan::Path::kTiny) return Nest<V>(g, plan, workspace, workers).run();
  if (plan.threads == 1) {
    for (int64_t batch = 0; batch < g.batch; ++batch) tiny_item<V>(g, batch, 0);
    return;
  }
  workers.parallel_for(g.batch, std::max<int64_t>(g.batch / (8 * plan.threads), 1), [&](int64_t begin, int64_t end, int worker) {
    for (int64_t batch = begin; batch < end; ++batch) tiny_item<V>(g, batch, worker);
  });
}

template <class V>
void run_chain(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row_stride, int64_t a_col_stride, const float* b, int64_t b_row_stride,
               int64_t b_col_stride, float* c, int64_t c_row_stride, bool from_zero, void* scratch) {
  constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  const bool direct = m <= V::kRows && (b_col_stride == 1 || n == 1);
  float* packed = static_cast<float*>(scratch);   // first, so that it is aligned
  const RowBlock rows = prepare_rows<V>(Lines{a, a_row_stride, a_col_stride}, 0, 0, m, 0, k, direct, packed + k * kColumns, 0);
  Strip strip{m, k, n, c, c_row_stride, from_zero ? Accumulate::kStore : Accumulate::kChain};
  if (direct) return direct_columns<V>(strip, rows, b, b_row_stride);
  Lookahead none;
  for (int64_t j = 0; j < n; j += kColumns) {
    strip.columns = std::min(kColumns, n - j);
    strip.c = c + j;
    pack_panel<V>(packed, kColumns, strip.columns, k, b + j * b_col_stride, b_col_stride, b_row_stride);
    columns_of_rows<V>(strip, rows, packed, none, 0);
  }
}

template <class V>
constexpr GemmCode gemm_code() {
  return {{V::kRows, V::kLanes, V::kVectors}, run_gemm<V>, run_chain<V>};
}

}  // namespace
}  // namespace ws::cpu
