// Launch: one kernel call bound to addresses and sizes, ready to run. Made once by the CPU backend, run every step.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/jit/loop_compiler.h"

namespace ws::cpu {

/// What a launch may use while it runs.
struct RunContext {
  Workers& workers;
  char* scratch = nullptr;  // private to each worker: scratch + worker * scratch_stride
  int64_t scratch_stride = 0;
  StepStatus status;
  void* scratch_of(int worker) const { return scratch + worker * scratch_stride; }
};

class Launch {
 public:
  virtual ~Launch() = default;
  virtual void run(RunContext& context) = 0;
  virtual bool may_stop() const { return false; }
};

/// Collects where addresses go. An address is (buffer, byte offset); it is written into its slot when the buffer's base is known
/// and again whenever that changes.
class AddressBook {
 public:
  explicit AddressBook(size_t num_buffers) : by_buffer_(num_buffers) {}
  void want(void* slot, int buffer, int64_t byte_offset) {
    by_buffer_[static_cast<size_t>(buffer)].push_back({slot, byte_offset});
  }
  void set_base(int buffer, void* base) const;

 private:
  struct Wish {
    void* slot;  // address of a pointer or of an argument word
    int64_t byte_offset;
  };
  std::vector<std::vector<Wish>> by_buffer_;
};

std::unique_ptr<Launch> launch_loop(const Program& program, const LoopCall& call, const LoopCode& code, AddressBook& book);
std::unique_ptr<Launch> launch_gemm(const Program& program, const GemmCall& call, const LoopCode* store, Isa isa,
                                    AddressBook& book);
std::unique_ptr<Launch> launch_library(const Program& program, const LibraryCall& call, int call_index, Isa isa,
                                       std::span<const LoopCode> loops, AddressBook& book);

/// Kernels that a library call wants compiled (attention's row loops).
std::vector<std::shared_ptr<const LoopKernel>> loops_of(const Program& program, const LibraryCall& call, Isa isa);

/// The Gemm of a call without addresses: for workspace sizes.
Gemm gemm_shape(const GemmCall& call, Isa isa);
inline GemmIsa gemm_isa(Isa isa) {
  return static_cast<GemmIsa>(static_cast<int>(isa) + static_cast<int>(GemmIsa::avx2));  // the same names in the same order
}
int64_t library_workspace_bytes(const LibraryCall& call, const Program& program, Isa isa, int num_threads);

/// Bytes of scratch that one worker needs for the loop.
int64_t loop_scratch_bytes(const LoopCall& call, const LoopCode& code);

}  // namespace ws::cpu
