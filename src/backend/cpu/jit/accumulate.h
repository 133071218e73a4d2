// Sums and maxima in the contract's order: 16 lanes, folded 8-4-2-1. A floating maximum is carried as an integer of the same
// order (NaN above all, +0 above -0), so that one integer instruction combines two and the order of operands cannot matter.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include "backend/cpu/jit/vector_builder.h"

namespace ws::cpu {

class Accumulator {
 public:
  Accumulator(llvm::IRBuilder<>& ir, VectorScalarBuilder& vectors, DType dtype, bool is_max)
      : ir_(ir), vectors_(vectors), dtype_(computing_type(dtype)), is_max_(is_max) {}

  /// What changes nothing: lanes of +0, or of the least value.
  llvm::Value* start();
  /// The least value in memory form: what a column target starts from.
  Lanes start_lanes() { return decode(start()); }
  llvm::Value* encode(llvm::Value* lanes);
  Lanes decode(llvm::Value* vector);
  /// Vectors or single elements of encoded values.
  llvm::Value* combine(llvm::Value* a, llvm::Value* b);
  /// Only the lanes of `mask` (null: all) of unencoded `lanes`.
  llvm::Value* add(llvm::Value* accumulator, llvm::Value* lanes, llvm::Value* mask);
  /// One element from 16 lanes.
  llvm::Value* fold(llvm::Value* accumulator);
  /// What the first block's result is added to, leaving its bits as they are.
  llvm::Value* identity();

 private:
  bool ordered() const { return is_max_ && is_floating(dtype_); }
  llvm::Type* integer_type() const { return dtype_ == DType::f64 ? ir_.getInt64Ty() : ir_.getInt32Ty(); }
  llvm::Value* reorder(llvm::Value* integers);

  llvm::IRBuilder<>& ir_;
  VectorScalarBuilder& vectors_;
  DType dtype_;
  bool is_max_;
};

}  // namespace ws::cpu
