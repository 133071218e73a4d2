// Views of the loop: reshape, broadcast, transpose and slice as new strides on the same memory. Only the loop knows strides;
// to a graph these are ops like others.
#pragma once
#include <memory>
#include <optional>

#include "tensor/tensor_impl.h"

namespace ws {

/// Nothing where the elements do not lie on one grid of the new shape: then a copy is needed.
std::optional<TensorData> view_reshape(const TensorData& x, const Shape& shape);
TensorData view_broadcast(const TensorData& x, const Shape& shape);  // shapes have been checked
TensorData view_transpose(const TensorData& x, std::span<const int64_t> permutation);
TensorData view_slice(const TensorData& x, std::span<const int64_t> starts, std::span<const int64_t> stops,
                      std::span<const int64_t> steps);

/// The op as a view of its input, or nothing (no view op, or it needs a copy). `result` is the type the op's rule gave.
std::optional<TensorData> try_view(const OpDef& op, const TensorData& x, const Attrs& attrs, const Shape& result);

}  // namespace ws
