// Loads and stores of 16 elements: whole or the first few, dense, strided or with pairs swapped. Never touches an element
// beyond those asked for, and assumes no more alignment than an element has.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include "backend/cpu/isa.h"
#include "backend/cpu/jit/ir_loops.h"
#include "backend/cpu/jit/vector_builder.h"

namespace ws::cpu {

/// The lanes to touch. count: how many of 16, i64; null for all. mask: the same as <16 x i1>.
struct Part {
  llvm::Value* count = nullptr;
  llvm::Value* mask = nullptr;
  bool mostly_whole = false;  // all lanes in every iteration but the last
};

class VectorMemory {
 public:
  VectorMemory(llvm::Module& module, llvm::IRBuilder<>& ir, VectorScalarBuilder& vectors, Isa isa)
      : module_(module), ir_(ir), vectors_(vectors), isa_(isa) {}

  /// The first `count` lanes; all where it is more than there are.
  Part first(llvm::Value* count, bool mostly_whole = false);
  /// False where a masked access is a loop over elements.
  bool has_masked_access(DType dtype) const;
  /// The element at `pointer` in all lanes.
  Lanes load_splat(llvm::Value* pointer, DType dtype);
  /// `stride_bytes` is only read for kStrided.
  Lanes load(llvm::Value* pointer, DType dtype, Step step, llvm::Value* stride_bytes, const Part& part);
  void store(const Lanes& lanes, llvm::Value* pointer, DType dtype, Step step, llvm::Value* stride_bytes, const Part& part);
  /// Lane 0 alone.
  void store_one(const Lanes& lanes, llvm::Value* pointer, DType dtype);
  /// Asks for the line at `pointer`, which need not be memory of ours.
  void prefetch(llvm::Value* pointer, bool is_write);

 private:
  llvm::Value* load_raw(llvm::Value* pointer, DType dtype, llvm::Value* stride_bytes, const Part& part);
  void store_raw(llvm::Value* vector, llvm::Value* pointer, DType dtype, llvm::Value* stride_bytes, const Part& part);
  void store_first(llvm::Value* vector, llvm::Value* pointer, llvm::Align align, llvm::Value* count);
  llvm::Value* swap_pairs(llvm::Value* vector);
  llvm::Value* lane_pointers(llvm::Value* pointer, llvm::Value* stride_bytes);
  llvm::Value* step_pointer(llvm::Value* pointer, llvm::Value* bytes);
  llvm::Function* partial_loader(llvm::Type* element);
  llvm::Function* partial_storer(llvm::Type* element);
  template <class Body>
  llvm::Function* helper(const std::string& name, llvm::FunctionType* type, Body&& body);

  llvm::Module& module_;
  llvm::IRBuilder<>& ir_;
  VectorScalarBuilder& vectors_;
  Isa isa_;
};

/// The attributes that choose the instruction set and the floating-point rules, for every function of a module.
void set_target_attributes(llvm::Function& function, Isa isa);

}  // namespace ws::cpu
