// The slot behind a Variable.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor_impl.h"

namespace ws {

struct Variable::Slot : std::enable_shared_from_this<Variable::Slot> {
  Slot() = default;
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() { unbind(); }

  /// Makes `impl` (used by nobody else as a leaf) the value.
  void bind(std::shared_ptr<TensorImpl> impl);
  /// The old value stops being this Variable's.
  void unbind();

  std::string name;
  Tensor value;
  bool trainable = false;
  uint64_t leaf_id = 0;
  uint64_t version = 0;  // counts writes, not those that a trace records
  // Sharded: `value` is this rank's rows of so many (rows_of_rank). -1: it is whole.
  int64_t whole_rows = -1;
  bool sharded() const { return whole_rows >= 0; }
  Type whole_type() const;
  /// Keeps this rank's rows of a whole value.
  void shard();
};

/// Grows whenever any Variable's trainable flag changes: compiled functions look again at theirs.
uint64_t trainable_changes();

}  // namespace ws
