// Mixed precision: one switch for all products of a region, parameters and optimizer state staying in f32 (docs/bf16.md).
//
//   ws::ComputeDType precision(ws::DType::bf16);   // a loop of one's own, or inside or around a jit function
//   ws::Trainer trainer(model, loss, optimizer, {.compile = true, .compute_dtype = ws::DType::bf16});
//
// Under bf16 products (matmul, attention, convolutions) round their operands as they are called and give f32 (attention: bf16);
// layers round once what they hand on; norms, softmax, losses and sums compute in f32; gradients of parameters are f32. Where a tensor
// of bf16 meets one of f32 in an elementwise op, the result is f32, and Compiled::dtype_report() names it; a scalar f32 changes no dtype.
#pragma once
#include <cstdint>
#include <string_view>

#include "wholestep/tensor.h"

namespace ws {

/// Sets one of this thread's precisions while it lives; the one of before comes back. A compiled function that is called under another
/// one compiles once more.
template <class Value>
class PrecisionScope {
 public:
  explicit PrecisionScope(Value value);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Value before_;
};

/// What this thread's calls compute in: bf16, or f32 (which also makes an exception inside a bf16 region). Other dtypes are an Error.
using ComputeDType = PrecisionScope<DType>;
/// What products compute in now: f32 unless a ComputeDType says otherwise.
DType compute_dtype();

/// How products of f32 operands are multiplied.
enum class MatmulPrecision : uint8_t {
  highest,  ///< in fp32
  high,  ///< as three bf16 products of two parts an operand, about 5e-6 relative; faster where the processor has AMX, slower elsewhere
  bf16,  ///< operands rounded to bf16, sums in fp32; unlike ComputeDType(bf16) everything between products stays fp32
};
std::string_view name_of(MatmulPrecision precision);
/// highest, high or bf16; another word is an Error.
MatmulPrecision matmul_precision_from_name(std::string_view name);

/// How this thread's matrix products and convolutions of f32 operands, and their gradients, are multiplied. Bf16 operands are multiplied
/// as they are, attention and optimizers in fp32 all the same.
using MatmulPrecisionScope = PrecisionScope<MatmulPrecision>;
/// How products are multiplied now: highest unless a MatmulPrecisionScope says otherwise.
MatmulPrecision matmul_precision();

extern template class PrecisionScope<DType>;
extern template class PrecisionScope<MatmulPrecision>;

/// How a layer hands its result on: f32 rounded to the compute dtype, everything else as it is.
Tensor to_compute_dtype(const Tensor& x);

}  // namespace ws
