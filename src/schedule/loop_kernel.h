// LoopKernel: the structure of one fused loop nest, without any size. Two calls that differ only in sizes, strides or
// constants share one kernel, so blocks of a model, the loop's ops and the disk cache all dedupe by `key()`.
// The loop's ops, fused kernels and the holes of a GEMM are all LoopKernels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/op_def.h"

namespace ws {

/// How elements are walked. The iteration space has `rank` dims, the last is the inner axis, the others are flattened
/// into one outer index. A call runs a range of units [begin, end):
enum class Walk : uint8_t {
  kElements,    // no reductions: any rectangle (outer range x inner range). Units: see LoopFn
  kRows,        // has kReduceRow: a unit is one outer index; the inner range is the whole inner axis
  kRowBlocks,   // has kReduceColumn (and perhaps kReduceRow): dims [..., R, C]; a unit is kRowBlock consecutive indices of axis R
                // (the last one shorter) at one index of the axes before it: units = product(dims before R) * ceil(R / kRowBlock)
  kFlatBlocks,  // rank 1, dims [N]: a unit is kFlatBlock consecutive elements (the last one shorter); kReduceRow reduces over
                // the unit, row-level stores write element `unit` of their access
};
constexpr int64_t kRowBlock = 64;     // numerics contract: sums over other axes are ascending in blocks of 64
constexpr int64_t kFlatBlock = 4096;  // numerics contract: sums along the last axis, blocks of 4096
constexpr int kLanes = 16;            // numerics contract: element i of a block goes to lane i mod 16, lanes folded 8-4-2-1

/// How an access moves along the inner axis. kSwapped: unit stride, element i^1 (inner ranges start even, inner dim even).
enum class Step : uint8_t { kSplat, kUnit, kStrided, kSwapped };

struct LoopAccess {
  DType dtype = DType::f32;
  Step step = Step::kUnit;
  bool operator==(const LoopAccess&) const = default;
};

/// One SSA instruction; its value id is its position in the body. A value is at row level (one per outer index or unit) where
/// it comes only from splat loads, scalars, row reductions and ops of such; else at element level.
struct LoopInstr {
  enum class Kind : uint8_t {
    kLoad,    // access; a bf16 value of an f32 access (a product's tile) is rounded
    kFold,    // access: for each element, folds `fold count` values `fold stride` apart, ascending, starting from the first one
              // (second phase of kReduceColumn and kFlatBlocks)
    kScalar,  // scalar slot `access`: a constant of the call, of `dtype`
    kOp,      // op->emit over operands
    kReduceRow,     // operand reduced along the inner axis, by the contract's order: row level
    kReduceColumn,  // operand (element level) reduced over the unit's rows, ascending from +0 (max: from -inf), into access, which is dense [units, C]
    kStore,         // operand into access (row-level values are stored once per outer index where the access is kSplat)
  };
  Kind kind = Kind::kLoad;
  DType dtype = DType::f32;   // of the value; bf16 values compute as f32
  const OpDef* op = nullptr;  // kOp
  Attrs attrs;                // kOp
  bool is_max = false;        // kFold and reductions: max, else sum
  std::vector<int> operands;
  int access = -1;
};

struct LoopKernel {
  Walk walk = Walk::kElements;
  int rank = 1;
  std::vector<LoopAccess> accesses;  // loads first, then stores and column targets
  std::vector<DType> scalars;
  std::vector<LoopInstr> body;
  /// Canonical text of all the above: equal keys, equal machine code.
  std::string key() const;
};

/// Arguments of a call as 64-bit words, laid out so:
///   pointers [accesses]           base addresses (element 0 of the view, offset included)
///   dims     [rank]
///   strides  [accesses][rank]     in elements, outermost first
///   folds    [accesses][2]        count, stride in elements; only read for kFold
///   scalars  [scalars]            bits of the value in the low bytes
struct LoopArgsLayout {
  int accesses, rank, scalars;
  int pointer(int a) const { return a; }
  int dim(int d) const { return accesses + d; }
  int stride(int a, int d) const { return accesses + rank + a * rank + d; }
  int fold_count(int a) const { return accesses + rank + accesses * rank + 2 * a; }
  int fold_stride(int a) const { return fold_count(a) + 1; }
  int scalar(int s) const { return accesses + rank + accesses * rank + 2 * accesses + s; }
  int words() const { return scalar(scalars); }
};

/// Machine code of a LoopKernel.
///   kElements: outer index in [begin, end), inner index in [inner_begin, inner_end); inner_begin is a multiple of 16 or 0 based as given.
///   others: units in [begin, end). inner_begin other than 0: several rows may be swept side by side, same bits; faster where the data lie
///   in a near cache, slower where they stream from memory.
/// `scratch`: LoopCode::scratch_slots rows of round_up(inner dim (kFlatBlocks: kFlatBlock), 16) 8-byte elements each, 64-byte aligned, private to the caller.
using LoopFn = void (*)(const int64_t* args, int64_t begin, int64_t end, int64_t inner_begin, int64_t inner_end, void* scratch);

struct LoopCode {
  LoopFn fn = nullptr;
  int scratch_slots = 0;
};

}  // namespace ws
