// Program: what a graph becomes before memory and machine code: buffers, and kernel calls in execution order.
// Any backend (CPU now, a GPU later) runs this and nothing else.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.h"
#include "schedule/loop_kernel.h"

namespace ws {

/// A strided window on a buffer, in elements.
struct View {
  int buffer = -1;
  int64_t offset = 0;
  Shape dims;
  std::array<int64_t, kMaxRank> strides{};
};

/// Memory of one value. (Not wholestep/module.h's Buffer, which is a module's state.)
struct ProgramBuffer {
  enum class Role : uint8_t { kInput, kOutput, kTemporary };
  Role role = Role::kTemporary;
  DType dtype = DType::f32;
  int64_t num_elements = 0;
  int index = -1;        // which graph input or output
  int alias_of = -1;     // a donated output lives in this input buffer
  bool derived = false;  // an input that is computed from another one and kept from step to step (passes/derive_state.h)
  Value value;           // of the graph that it holds, row-major; Value{}: blocks of a sum, copies, workspaces
  std::string name;      // of the value, for maps and messages
  int64_t num_bytes() const { return num_elements * static_cast<int64_t>(size_of(dtype)); }
};

/// A LoopKernel with its sizes.
struct LoopCall {
  std::shared_ptr<const LoopKernel> kernel;  // shared: calls of equal structure
  std::vector<int64_t> dims;                 // [rank]
  std::vector<View> accesses;  // dims of each = `dims` (stride 0 where broadcast); buffer -1: the GEMM tile of a hole
  std::vector<std::array<int64_t, 2>> folds;  // [accesses] count, stride
  std::vector<int64_t> scalars;               // bits
};

/// A unique_ptr that copies what it holds, so that calls can be copied.
template <class T>
struct CopyingPtr : std::unique_ptr<T> {
  using std::unique_ptr<T>::unique_ptr;
  CopyingPtr() = default;
  CopyingPtr(std::unique_ptr<T>&& other) : std::unique_ptr<T>(std::move(other)) {}
  CopyingPtr(CopyingPtr&&) noexcept = default;
  CopyingPtr(const CopyingPtr& other) : std::unique_ptr<T>(other ? std::make_unique<T>(*other) : nullptr) {}
  CopyingPtr& operator=(CopyingPtr other) noexcept {
    this->swap(other);
    return *this;
  }
};

/// C = A B (batched). Where `store` is set it receives each finished tile (access with buffer -1) and C is written only by it.
struct GemmCall {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  View a, b, c;  // dims [batch, m, k], [batch, k, n], [batch, m, n]; any strides for a and b, unit inner stride for c
  DType operand_dtype = DType::f32, result_dtype = DType::f32;  // of a and b; of c (a store's tile is always f32)
  int bf16_parts = 0;  // fp32 operands are multiplied as so many bf16 parts each (matmul_precision); 0: as they are
  CopyingPtr<LoopCall> store;
  int workspace = -1;  // temporary buffer for packing, or -1
};

/// Structural ops that are one library routine each: attention, gather, scatter_add, concatenate, pad, checks, copies.
struct LibraryCall {
  const OpDef* op = nullptr;  // nullptr: a strided copy of views[0] to views[1]
  Attrs attrs;
  std::vector<View> views;  // inputs, then results
  int workspace = -1;
  /// All-reduces of one bucket: begun in one call (views: input, result, input, result, ..), waited for in another (the results).
  enum class Phase : uint8_t { whole, begin, finish };
  Phase phase = Phase::whole;
};

struct KernelCall {
  std::variant<LoopCall, GemmCall, LibraryCall> what;
  std::string name;                // "gemm+add+relu", "rows:rms_norm"...
  std::string path;                // layer path of the first node
  std::string reason;              // why it was cut here (EXPLAIN=fusion)
  std::vector<int> nodes;          // nodes of the graph that it computes
  std::vector<int> reads, writes;  // buffers
  /// Pairs (write, read): same elements in the same order, so the write may take over the read's memory if that dies here.
  std::vector<std::array<int, 2>> in_place;
  bool recomputed = false;  // a copy of an earlier call, run again so that its results need not be kept
  Cost cost;
};

struct Program {
  std::string name;
  std::vector<ProgramBuffer> buffers;
  std::vector<KernelCall> calls;
  std::vector<int> input_buffers;  // by graph input
  std::vector<View> outputs;       // by graph output: dense views
  std::vector<Type> output_types;
};

/// How inputs lie in memory where not dense (the loop's views). Empty: all dense.
struct InputLayout {
  int64_t offset = 0;
  std::array<int64_t, kMaxRank> strides{};
};

/// Lowers and fuses. Throws InternalError for a graph that does not verify.
struct ScheduleOptions {
  bool fuse = true;
  bool repeat_late = true, write_parts = true;  // where fuse is on: repeat_late.h, concatenations.h
  std::vector<InputLayout> input_layouts;
};
Program schedule(const Graph& graph, const ScheduleOptions& options);
/// Text for DUMP and `inspect`.
std::string print(const Program& program);

}  // namespace ws
