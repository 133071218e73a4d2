// Reverse-mode differentiation: a walk over recorded nodes, last to first, calling each op's vjp.
#pragma once
#include <span>
#include <vector>

#include "ir/builder.h"

namespace ws {

/// One recorded op, of a trace or of the loop's tape.
struct TapeEntry {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Value> inputs, results;
};

/// Gradients of the scalar `loss` for each of `wrt`, built with `builder`; Value{} where the loss does not depend on it.
/// Gradients of a value used several times add in reverse program order. Throws ws::Error for a non-scalar or
/// non-floating loss and, naming the op, for a path through a not_differentiable op.
/// `on_done(i)` is called when entry i is no longer needed (the loop frees its saved tensors); may be empty. `keep(live)` is called
/// after each vjp with the gradients still to be used: whatever else the builder has made since may be freed; may be empty.
std::vector<Value> backward(Builder& builder, std::span<const TapeEntry> tape, Value loss, std::span<const Value> wrt,
                            const std::function<void(size_t)>& on_done = {},
                            const std::function<void(std::span<const Value>)>& keep = {});

}  // namespace ws
