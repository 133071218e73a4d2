// The loop's tape: each recorded op hangs on its results, so a history lives exactly as long as something made from it, and
// grad() finds it by walking back from the loss. Recorded only where an input needs a gradient and no NoGrad is alive.
#pragma once
#include <memory>
#include <vector>

#include "tensor/tensor_impl.h"

namespace ws {

struct TapeNode {
  TapeNode() = default;
  TapeNode(const TapeNode&) = delete;
  TapeNode& operator=(const TapeNode&) = delete;
  ~TapeNode();

  const OpDef* op = nullptr;
  Attrs attrs;
  std::string path;
  uint64_t sequence = 0;  // program order
  std::vector<std::shared_ptr<TensorImpl>> inputs;
  std::vector<TensorData> results;  // not TensorImpl: those point here
  bool consumed = false;            // by a grad(): inputs and results are gone
  int checkpoint = 0;               // > 0: made inside checkpoint(); its results have no storage until they are asked for
  // Filled by the walk of grad().
  uint64_t walk = 0;
  int first_value = -1;

  void release();
};

/// Whether `op` on these inputs belongs on the tape (or, in a trace, counts as differentiable).
bool wants_gradient(const OpDef& op, Operands inputs);
/// Whether it is recorded: that, or what a checkpoint needs to compute its values again.
bool belongs_on_tape(const OpDef& op, Operands inputs);
/// Hangs a node on `results`.
void record_on_tape(const OpDef& op, Operands inputs, const Attrs& attrs, std::span<std::shared_ptr<TensorImpl>> results);

/// Makes a leaf of the same bytes (or traced value): what gradients are taken with respect to.
std::shared_ptr<TensorImpl> as_leaf(const TensorImpl& impl, uint64_t leaf_id, bool requires_grad);
uint64_t new_leaf_id();

}  // namespace ws
