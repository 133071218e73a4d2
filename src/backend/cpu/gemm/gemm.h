// GEMM, C = A B, batched, any strides of A and B, under the numerics contract: k in blocks of 512, one ascending FMA chain
// from +0 inside a block, block sums added ascending. Operands in bf16 count as the fp32 values that they are (products of two are
// exact), so the order is the same; C is the fp32 sum, or that rounded once to bf16. Bits do not depend on ISA, threads, tiles or
// holes, but for large bf16 products on AMX (uses_amx_tiles), whose instruction has an order of its own inside each block of 512: for
// each 32 steps of k, zero-padded, a chain of the even and one of the odd steps from +0; their sum is added to the block's. To be called in the step's floating-point mode (support/float_mode.h): bf16 instructions know no other.
#pragma once
#include <cstdint>

#include "support/parallel.h"
#include "wholestep/dtype.h"

namespace ws::cpu {

/// Each can do what those before it can. portable: std::fma, for tests and as the definition; amx_model: that, and AMX's tiles in
/// software for bf16.
enum class GemmIsa : uint8_t { amx_model, portable, avx2, avx512, avx512_bf16, amx };

/// Takes one finished macro tile, in fp32: rows m0..m0+mc, columns n0..n0+nc of batch item `batch` at tile[i*ld + j]. Each element
/// comes once. The tile is the hole's to overwrite; no two calls share a worker at one time.
using StoreHole = void (*)(void* context, float* tile, int64_t ld, int64_t batch, int64_t m0, int64_t n0, int64_t mc, int64_t nc,
                           int worker);
/// Fills dst[i*ld + j], of operand_dtype, with rows row0.. and columns col0.. of the operand (A: rows are m, columns k; B: rows
/// are k, columns n). An element may be asked for several times.
using PackHole = void (*)(void* context, void* dst, int64_t ld, int64_t batch, int64_t row0, int64_t col0, int64_t rows,
                          int64_t cols, int worker);

struct GemmOperand {
  const void* data = nullptr;                                // ignored where a hole is set
  int64_t row_stride = 0, col_stride = 0, batch_stride = 0;  // elements
  PackHole hole = nullptr;
  void* context = nullptr;
};

/// Memory of the result's shape that a store hole will touch: asked for while the tile's last products run. Never read here.
struct StoreOperand {
  const void* data = nullptr;  // where element (0, 0) of batch item 0 lies; columns are adjacent, batch items follow each other
  int64_t row_bytes = 0, element_bytes = 0;
};
constexpr int kMaxStoreOperands = 3;

struct Gemm {
  int64_t batch = 1, m = 0, n = 0, k = 0;  // any may be 0 (k = 0 gives +0)
  DType operand_dtype = DType::f32;        // f32 or bf16, of A and B
  GemmOperand a, b;
  DType result_dtype = DType::f32;  // f32, or bf16 where the operands are, of C; a store hole always sees f32
  void* c = nullptr;                // may be null where a store hole is set
  int64_t c_row_stride = 0, c_batch_stride = 0;
  StoreHole store = nullptr;  // then C is not written
  void* store_context = nullptr;
  StoreOperand store_operands[kMaxStoreOperands] = {};
  int num_store_operands = 0;
};

/// Decided by sizes alone, so that a product has one order however it is run. Products in batches stay with the order of FMAs: those
/// of attention written out have the bits of attention.
constexpr bool uses_amx_tiles(const Gemm& g) {
  constexpr int64_t kEnough = 1 << 22;  // multiply-adds
  return g.operand_dtype == DType::bf16 && g.batch == 1 && g.m * g.n >= kEnough / (g.k < 1 ? 1 : g.k);
}

/// Bytes of 64-byte aligned workspace that gemm() wants from up to `num_threads` threads (0 for the tiny sizes that run without
/// packing). Sizes, strides, dtypes and which holes are set must be those of the run; addresses need not.
int64_t gemm_workspace_bytes(const Gemm& g, GemmIsa isa, int num_threads);
/// Allocates nothing. Small products run on the calling thread alone.
void gemm(const Gemm& g, GemmIsa isa, void* workspace, Workers& workers);

}  // namespace ws::cpu
