// emit_loop: a LoopKernel and its plan as one LLVM function, `void kernel(args, begin, end, inner_begin, inner_end, scratch)`.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include <llvm/IR/Module.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/jit/loop_plan.h"

namespace ws::cpu {

/// Name of the function, the same in every module.
constexpr const char* kEntryName = "kernel";

void emit_loop(llvm::Module& module, const LoopKernel& kernel, const LoopPlan& plan, Isa isa);

}  // namespace ws::cpu
