// CodeGenerator: one thread's LLVM. The only door to it: no other file of the compiler includes LLVM's headers, and nothing of
// it is set up before the first kernel that the cache does not have.
#pragma once
#include <memory>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/jit/code_image.h"
#include "schedule/loop_kernel.h"

namespace ws::cpu {

class CodeGenerator {
 public:
  explicit CodeGenerator(Isa isa);
  ~CodeGenerator();
  CodeImage generate(const LoopKernel& kernel);
  /// IR as it goes to instruction selection, and the assembly that comes out.
  std::string llvm_ir(const LoopKernel& kernel);
  std::string assembly(const LoopKernel& kernel);
  /// LLVM's version and a hash of our sources (sources.cmake): changes whenever the same kernel may get other code.
  static const std::string& version();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ws::cpu
