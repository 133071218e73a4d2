// What a Tensor handle points at: a window on memory (the loop), or a value of the graph being traced (jit).
#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ir/op_def.h"
#include "ir/type.h"
#include "tensor/storage.h"
#include "wholestep/tensor.h"

namespace ws {

/// A typed, strided window on a storage. Every op's result is dense; views need not be.
struct TensorData {
  DType dtype = DType::f32;
  bool dense = true;  // row-major without gaps; then `strides` is not kept
  Shape shape;
  std::array<int64_t, kMaxRank> strides{};  // in elements
  int64_t offset = 0;                       // in elements
  StorageRef storage;

  void* pointer() const { return static_cast<char*>(storage->data) + offset * static_cast<int64_t>(size_of(dtype)); }
  Type type() const { return {dtype, shape}; }
  int64_t num_bytes() const { return shape.num_elements() * static_cast<int64_t>(size_of(dtype)); }
};

struct TapeNode;

struct TensorImpl : TensorData, std::enable_shared_from_this<TensorImpl> {
  // Traced: trace_id names the trace (0: this is data), value the result in its graph.
  uint64_t trace_id = 0;
  Value value;
  // Gradients. A leaf has no node.
  bool requires_grad = false;
  int result_index = 0;            // of node
  std::shared_ptr<TapeNode> node;  // shared: every tensor made from it keeps its history alive
  // The Variable whose value this is: leaf_id is unique to it for ever, slot is null once the Variable holds another value.
  uint64_t leaf_id = 0;
  Variable::Slot* slot = nullptr;

  bool traced() const { return trace_id != 0; }
};

using Operands = std::span<TensorImpl* const>;

inline std::shared_ptr<TensorImpl> new_impl() { return std::make_shared<TensorImpl>(); }
/// A dense tensor with memory of its own, contents undefined.
std::shared_ptr<TensorImpl> new_dense(const Type& type);
/// Another handle's view of the same bytes, without history or Variable.
std::shared_ptr<TensorImpl> alias_of(const TensorData& data);
std::array<int64_t, kMaxRank> strides_of(const TensorData& data);
/// Sets `dense` from the strides.
void settle_strides(TensorData& data);
/// The same values in row-major memory; itself where it is so already. Concrete tensors only.
std::shared_ptr<TensorImpl> dense_copy_if_needed(const std::shared_ptr<TensorImpl>& impl);
/// Always fresh memory.
std::shared_ptr<TensorImpl> dense_copy(const TensorData& data);
/// "f32[2, 3]"
std::string describe(const TensorImpl& impl);

}  // namespace ws
