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

/// Which rows' block a lane has packed.
struct PackedRows {
  int64_t batch = -1, row_block = -1, k_block = -1;
  bool operator==(const PackedRows&) const = default;
};

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
    for (int lane = 0; lane < p_.threads; ++lane) new (private_area(lane)) PackedRows();
    auto* cursors = reinterpret_cast<Cursor*>(base_);
    const int64_t tiles = p_.row_blocks * p_.column_blocks;
    if (p_.path == GemmPlan::Path::kPrivate) {
      run_units(g_.batch * tiles, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) { tile(unit / tiles, unit % tiles, 0, lane, worker); });
      return;
    }
    for (int64_t batch = 0; batch < g_.batch; ++batch) {
      for (int64_t group = 0; group < p_.k_blocks; group += p_.group_blocks) {
        const int64_t blocks = std::min(p_.group_blocks, p_.k_blocks - group);
        const int64_t strips = ceil_div(column_panels_, kStripPanels);
        run_units(blocks * strips, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) {
          pack_strip(batch, group, unit / strips, unit % strips * kStripPanels, lane, worker);
        });
        run_units(tiles, p_.threads, cursors, workers_, [&](int64_t unit, int lane, int worker) { tile(batch, unit, group, lane, worker); });
      }
    }
  }

 private:
  static constexpr int64_t kColumns = int64_t{V::kLanes} * V::kVectors;
  static constexpr int64_t kStripPanels = 4;

  char* private_area(int lane) const { return base_ + p_.private_offset + lane * p_.private_bytes; }
  float* floats(char* area, int64_t offset) const { return reinterpret_cast<float*>(area + offset); }
  int64_t depth_of(int64_t k_block) const { return std::min(g_.k - k_block * kGemmBlock, kGemmBlock); }
  float* shared_panel(int64_t block_in_group, int64_t panel) const {
    return floats(base_, p_.shared_b_offset) + (block_in_group * column_panels_ + panel) * panel_floats_;
  }

  void pack_strip(int64_t batch, int64_t group, int64_t block_in_group, int64_t panel0, int lane, int worker) {
    const int64_t k_block = group + block_in_group, k0 = k_block * kGemmBlock, depth = depth_of(k_block);
    const int64_t panels = std::min(kStripPanels, column_panels_ - panel0);
    float* staging = floats(private_area(lane), p_.staging_offset);
    const auto lines_in = [&](int64_t panel) { return std::min(kColumns, p_.columns - panel * kColumns); };
    if (column_lines_.hole == nullptr && column_lines_.line_stride == 1) {
      // A few k at a time over all panels: the operand's rows are read in long runs.
      constexpr int64_t kStep = 8;
      const float* src = column_lines_.data + batch * column_lines_.batch_stride + panel0 * kColumns + k0 * column_lines_.depth_stride;
      for (int64_t at = 0; at < depth; at += kStep)
        for (int64_t i = 0; i < panels; ++i)
          pack_adjacent_lines<V>(shared_panel(block_in_group, panel0 + i) + at * kColumns, kColumns, lines_in(panel0 + i), std::min(kStep, depth - at),
                                 src + i * kColumns + at * column_lines_.depth_stride, column_lines_.depth_stride);
      return;
    }
    for (int64_t panel = panel0; panel < panel0 + panels; ++panel)
      pack_panel_of<V>(column_lines_, batch, panel * kColumns, lines_in(panel), kColumns, k0, depth, shared_panel(block_in_group, panel), staging, worker);
  }

  /// Where a tile's sums build up.
  struct Target {
    float* data;
    int64_t ld;
  };

  Target target(int64_t batch, int64_t row0, int64_t column0, int lane) const {
    if (p_.tile_scratch) return {floats(private_area(lane), p_.tile_offset), p_.tile_ld};
    if (p_.c_scratch) return {floats(base_, p_.c_scratch_offset) + row0 * p_.columns + column0, p_.columns};
    return {g_.c + batch * g_.c_batch_stride + row0 * g_.c_row_stride + column0, g_.c_row_stride};
  }

  void tile(int64_t batch, int64_t index, int64_t group, int lane, int worker) {
    char* area = private_area(lane);
    const int64_t row_block = index / p_.column_blocks, column_block = index % p_.column_blocks;
    const int64_t row0 = part_begin(p_.rows, p_.row_blocks, row_block), rows = part_begin(p_.rows, p_.row_blocks, row_block + 1) - row0;
    const int64_t panel0 = part_begin(column_panels_, p_.column_blocks, column_block);
    const int64_t panel1 = part_begin(column_panels_, p_.column_blocks, column_block + 1);
    const int64_t column0 = panel0 * kColumns, columns = std::min(panel1 * kColumns, p_.columns) - column0;
    const Target to = target(batch, row0, column0, lane);
    const int64_t blocks = std::min(p_.group_blocks, p_.k_blocks - group);
    auto& packed = *reinterpret_cast<PackedRows*>(area);
    float* a = floats(area, p_.a_offset);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t k_block = group + i, k0 = k_block * kGemmBlock, depth = depth_of(k_block);
      const PackedRows wanted{batch, row_block, k_block};
      if (packed != wanted) {
        pack_rows<V>(row_lines_, batch, row0, rows, k0, depth, a, floats(area, p_.staging_offset), worker);
        packed = wanted;
      }
      const Accumulate how = k_block == 0 ? Accumulate::kStore : Accumulate::kAdd;
      if (p_.path == GemmPlan::Path::kShared) {
        for (int64_t panel = panel0; panel < panel1; ++panel)
          columns_of_rows(rows, depth, a, shared_panel(i, panel), std::min(kColumns, p_.columns - panel * kColumns), to.data + (panel - panel0) * kColumns,
                          to.ld, how);
      } else if (rows <= V::kRows && column_lines_.hole == nullptr && column_lines_.line_stride == 1) {
        direct(rows, columns, depth, a, column_lines_.data + batch * column_lines_.batch_stride + column0 + k0 * column_lines_.depth_stride,
               column_lines_.depth_stride, to.data, to.ld, how);
      } else {
        float* b = floats(area, p_.b_offset);
        for (int64_t panel = panel0; panel < panel1; ++panel) {
          const int64_t valid = std::min(kColumns, p_.columns - panel * kColumns);
          pack_panel_of<V>(column_lines_, batch, panel * kColumns, valid, kColumns, k0, depth, b, floats(area, p_.staging_offset), worker);
          columns_of_rows(rows, depth, a, b, valid, to.data + (panel - panel0) * kColumns, to.ld, how);
        }
      }
    }
    if (group + blocks == p_.k_blocks) finish(to, batch, row0, column0, rows, columns, area, worker);
  }

 public:
  /// All rows of a packed block against one packed panel of columns.
  static void columns_of_rows(int64_t rows, int64_t depth, const float* a, const float* b, int64_t columns, float* c, int64_t ldc, Accumulate how) {
    const RowBlock<V> block(rows);
    const int vectors = static_cast<int>(ceil_div(columns, V::kLanes)), last = static_cast<int>(columns - (vectors - 1) * V::kLanes);
    for (int64_t i = 0; i < block.panels; ++i)
      Kernels<V>::packed[block.height(i) - 1][vectors - 1](depth, a + block.offset(i, depth), b, kColumns, c + block.begin(i) * ldc, ldc, last, how);
  }

  /// One panel of rows against an operand read where it lies.
  static void direct(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b, int64_t ldb, float* c, int64_t ldc, Accumulate how) {
    const int64_t most = int64_t{direct_vectors<V>(static_cast<int>(rows))} * V::kLanes;
    for (int64_t j = 0; j < columns; j += most) {
      const int64_t width = std::min(most, columns - j);
      const int vectors = static_cast<int>(ceil_div(width, V::kLanes)), last = static_cast<int>(width - (vectors - 1) * V::kLanes);
      Kernels<V>::direct[rows - 1][vectors - 1](depth, a, b + j, ldb, c + j, ldc, last, how);
    }
  }

 private:
  /// Hands a finished tile on: to C where roles are swapped, to the hole where there is one.
  void finish(Target from, int64_t batch, int64_t row0, int64_t column0, int64_t rows, int64_t columns, char* area, int worker) const {
    if (!p_.tile_scratch && !p_.c_scratch) return;
    if (!p_.swapped) {
      g_.store(g_.store_context, from.data, from.ld, batch, row0, column0, rows, columns, worker);
      return;
    }
    float* c = g_.store != nullptr ? floats(area, p_.transposed_offset) : g_.c + batch * g_.c_batch_stride + column0 * g_.c_row_stride + row0;
    const int64_t ld = g_.store != nullptr ? rows : g_.c_row_stride;
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < rows; ++i) c[j * ld + i] = from.data[i * from.ld + j];
    if (g_.store != nullptr) g_.store(g_.store_context, c, ld, batch, column0, row0, columns, rows, worker);
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
  constexpr int64_t kColumns = int64_t{V::kLanes} * kTinyVectors, kElements = 4096;
  const float* a = g.a.data + batch * g.a.batch_stride;
  const float* b = g.b.data + batch * g.b.batch_stride;
  int64_t a_row = g.a.row_stride, a_col = g.a.col_stride, ldb = g.b.row_stride;
  alignas(64) float a_block[kElements], b_block[kElements + 2 * V::kLanes], tile[kElements];
  if (g.a.hole != nullptr) {
    g.a.hole(g.a.context, a_block, g.k, batch, 0, 0, g.m, g.k, worker);
    a = a_block, a_row = g.k, a_col = 1;
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
  for (int64_t i = 0; i < g.m; i += kTinyRows) {
    const int64_t rows = std::min<int64_t>(kTinyRows, g.m - i);
    for (int64_t j = 0; j < g.n; j += kColumns) {
      const int64_t width = std::min(kColumns, g.n - j), vectors = ceil_div(width, V::kLanes);
      Kernels<V>::tiny[rows - 1][vectors - 1](g.k, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                              static_cast<int>(width - (vectors - 1) * V::kLanes));
    }
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
  const Accumulate how = from_zero ? Accumulate::kStore : Accumulate::kChain;
  float* packed_b = static_cast<float*>(scratch);   // first, so that it is aligned
  float* packed_a = packed_b + k * kColumns;
  pack_rows<V>(Lines{a, a_row_stride, a_col_stride}, 0, 0, m, 0, k, packed_a, nullptr, 0);
  if (m <= V::kRows && b_col_stride == 1) return Nest<V>::direct(m, n, k, packed_a, b, b_row_stride, c, c_row_stride, how);
  for (int64_t j = 0; j < n; j += kColumns) {
    const int64_t valid = std::min(kColumns, n - j);
    pack_panel<V>(packed_b, kColumns, valid, k, b + j * b_col_stride, b_col_stride, b_row_stride);
    Nest<V>::columns_of_rows(m, k, packed_a, packed_b, valid, c + j, c_row_stride, how);
  }
}

template <class V>
constexpr GemmCode gemm_code() {
  return {{V::kRows, V::kLanes, V::kVectors}, run_gemm<V>, run_chain<V>};
}

}  // namespace
}  // namespace ws::cpu
