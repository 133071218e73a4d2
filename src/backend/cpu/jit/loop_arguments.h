// LoopArguments: the words of LoopArgsLayout as LLVM values. They never change during a call, which each load says.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include <llvm/IR/IRBuilder.h>

#include "schedule/loop_kernel.h"

namespace ws::cpu {

class LoopArguments {
 public:
  LoopArguments(llvm::IRBuilder<>& ir, const LoopKernel& kernel)
      : ir_(ir),
        kernel_(kernel), layout_{static_cast<int>(kernel.accesses.size()), kernel.rank, static_cast<int>(kernel.scalars.size())} {
  }

  /// `words`: the function's first argument.
  void bind(llvm::Value* words) { words_ = words; }

  int num_accesses() const { return layout_.accesses; }
  llvm::Value* dim(int d) { return word(layout_.dim(d)); }
  llvm::Value* inner_dim() { return dim(kernel_.rank - 1); }
  llvm::Value* pointer(int access) { return word(layout_.pointer(access), ir_.getPtrTy()); }
  llvm::Value* stride_bytes(int access, int d) { return bytes(access, word(layout_.stride(access, d))); }
  llvm::Value* inner_stride_bytes(int access) { return stride_bytes(access, kernel_.rank - 1); }
  llvm::Value* fold_count(int access) { return word(layout_.fold_count(access)); }
  llvm::Value* fold_stride_bytes(int access) { return bytes(access, word(layout_.fold_stride(access))); }
  llvm::Value* scalar_address(int s) { return address(layout_.scalar(s)); }

 private:
  llvm::Value* address(int slot) { return ir_.CreateConstGEP1_64(ir_.getInt64Ty(), words_, static_cast<uint64_t>(slot)); }
  llvm::Value* word(int slot) { return word(slot, ir_.getInt64Ty()); }
  llvm::Value* word(int slot, llvm::Type* type) {
    llvm::LoadInst* load = ir_.CreateLoad(type, address(slot));
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ir_.getContext(), {}));
    return load;
  }
  llvm::Value* bytes(int access, llvm::Value* elements) {
    return ir_.CreateMul(elements, ir_.getInt64(size_of(kernel_.accesses[static_cast<size_t>(access)].dtype)));
  }

  llvm::IRBuilder<>& ir_;
  const LoopKernel& kernel_;
  LoopArgsLayout layout_;
  llvm::Value* words_ = nullptr;
};

}  // namespace ws::cpu
