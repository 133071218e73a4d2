// The compute-dtype policy at op calls. See wholestep/precision.h.
#pragma once
#include "wholestep/precision.h"

namespace ws {

/// An operand of a product: f32 rounded to the compute dtype.
Tensor product_operand(const Tensor& x);
/// Whether the policy lets these two dtypes meet in f32: one is f32, the other bf16, inside a bf16 region.
bool meet_in_f32(DType a, DType b);
/// Tells the trace in progress that the op called next computes in f32 because its operands met.
void note_promotion();

}  // namespace ws
