// LoopCompiler: LoopKernels to x86-64 machine code by LLVM, in memory, equal kernels once, from the disk cache where it has them.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "schedule/loop_kernel.h"

namespace ws::cpu {

struct LoopCompilerOptions {
  Isa isa = Isa::avx2;
  std::string cache_directory;  // empty: no disk cache
  int num_threads = 1;          // for compiling
};

class LoopCompiler {
 public:
  explicit LoopCompiler(const LoopCompilerOptions& options);
  ~LoopCompiler();
  /// Code for each kernel, in order. Thread-safe; compiled code lives as long as the compiler (one per process and ISA).
  std::vector<LoopCode> compile(std::span<const std::shared_ptr<const LoopKernel>> kernels);
  struct Stats {
    int64_t compiled = 0, from_memory = 0, from_disk = 0;
    double seconds = 0;
  };
  Stats stats() const;
  /// For dumps: LLVM IR after optimisation, and assembly.
  std::string llvm_ir(const LoopKernel& kernel);
  std::string assembly(const LoopKernel& kernel);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ws::cpu
