// Mixed precision: one switch for all products of a region, parameters and optimizer state staying in f32 (docs/bf16.md).
//
//   ws::ComputeDType precision(ws::DType::bf16);   // a loop of one's own, or inside or around a jit function
//   ws::Trainer trainer(model, loss, optimizer, {.compile = true, .compute_dtype = ws::DType::bf16});
//
// Under bf16 products (matmul, attention, convolutions) round their operands as they are called and give f32 (attention: bf16);
// layers round once what they hand on; norms, softmax, losses and sums compute in f32; gradients of parameters are f32. Where a tensor
// of bf16 meets one of f32 in an elementwise op, the result is f32, and Compiled::dtype_report() names it; a scalar f32 changes no dtype.
#pragma once
#include "wholestep/tensor.h"

namespace ws {

/// Sets the compute dtype of this thread's calls while it lives: bf16, or f32 (which also makes an exception inside a bf16 region).
/// A compiled function called under another one compiles once more. Other dtypes are an Error.
class ComputeDType {
 public:
  explicit ComputeDType(DType dtype);
  ~ComputeDType();
  ComputeDType(const ComputeDType&) = delete;
  ComputeDType& operator=(const ComputeDType&) = delete;

 private:
  DType before_;
};

/// What products compute in now: f32 unless a ComputeDType says otherwise.
DType compute_dtype();
/// How a layer hands its result on: f32 rounded to the compute dtype, everything else as it is.
Tensor to_compute_dtype(const Tensor& x);

}  // namespace ws
