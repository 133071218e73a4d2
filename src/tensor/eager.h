// The loop: one op at a time, each an Executable of a one-node graph, cached by (op, attributes, types, layouts).
#pragma once
#include <memory>
#include <vector>

#include "tensor/tensor_impl.h"

namespace ws {

/// Runs `op` on concrete tensors, without a tape. Views share memory where they can, all other results are dense and fresh.
/// Throws what the op's rule throws, and RuntimeError for a check that fired.
std::shared_ptr<TensorImpl> run_single(const OpDef& op, Operands inputs, const Attrs& attrs);
std::vector<std::shared_ptr<TensorImpl>> run_all(const OpDef& op, Operands inputs, const Attrs& attrs);

/// A dense tensor of one value, rounded once to `dtype`.
std::shared_ptr<TensorImpl> filled(const Type& type, double value);

struct EagerStats {
  int64_t calls = 0, compiled = 0;  // of this thread
};
EagerStats eager_stats();

}  // namespace ws
