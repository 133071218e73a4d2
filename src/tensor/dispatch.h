// The one entry of every op call: records while a trace is on, else runs, and keeps the tape.
#pragma once
#include <string_view>
#include <vector>

#include "tensor/tensor_impl.h"

namespace ws {

/// Errors of the op's rule are thrown with the layer path in front.
Tensor apply_single(const OpDef& op, Operands inputs, const Attrs& attrs);
std::vector<Tensor> apply_all(const OpDef& op, Operands inputs, const Attrs& attrs);

/// By name; InternalError for an unknown op.
Tensor apply_op(std::string_view name, std::initializer_list<const Tensor*> inputs, const Attrs& attrs = {});
const OpDef& op_named(std::string_view name);

/// "in blocks.0.attention: ", or "".
std::string path_prefix();

}  // namespace ws
