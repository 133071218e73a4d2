// Where layers round under a compute dtype of bf16: they compute in f32 and round once what they hand on.
#pragma once
#include "wholestep/precision.h"

namespace ws {

/// bf16 widened, everything else as it is.
inline Tensor in_f32(const Tensor& x) { return x.dtype() == DType::bf16 ? x.cast(DType::f32) : x; }

/// A result computed in f32 from `x`, as a layer hands it on: rounded to the compute dtype, or to bf16 where x came so by hand.
inline Tensor rounded_like(const Tensor& x, const Tensor& result) {
  return x.dtype() == DType::bf16 && result.dtype() == DType::f32 ? result.cast(DType::bf16) : to_compute_dtype(result);
}

}  // namespace ws
