#include "tensor/precision.h"

#include <utility>

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/tracer.h"

namespace ws {

ComputeDType::ComputeDType(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16) fail("compute dtype: {} given, but it must be f32 or bf16", name_of(dtype));
  before_ = std::exchange(context().compute_dtype, dtype);
}
ComputeDType::~ComputeDType() { context().compute_dtype = before_; }

DType compute_dtype() { return context().compute_dtype; }

std::string_view name_of(MatmulPrecision precision) {
  constexpr std::string_view kNames[] = {"highest", "high", "bf16"};
  return kNames[static_cast<size_t>(precision)];
}
MatmulPrecision matmul_precision_from_name(std::string_view name) {
  for (MatmulPrecision p : {MatmulPrecision::highest, MatmulPrecision::high, MatmulPrecision::bf16})
    if (name == name_of(p)) return p;
  fail("matmul precision '{}': known ones are highest, high and bf16", name);
}

MatmulPrecisionScope::MatmulPrecisionScope(MatmulPrecision precision)
    : before_(std::exchange(context().matmul_precision, precision)) {}
MatmulPrecisionScope::~MatmulPrecisionScope() { context().matmul_precision = before_; }
MatmulPrecision matmul_precision() { return context().matmul_precision; }

Tensor to_compute_dtype(const Tensor& x) {
  return context().compute_dtype == DType::bf16 && x.dtype() == DType::f32 ? x.cast(DType::bf16) : x;
}

Tensor product_operand(const Tensor& x) {
  Tracer* tracer = context().tracer;
  if (tracer && context().compute_dtype == DType::bf16 && x.dtype() == DType::f32) tracer->note_rounding();
  return to_compute_dtype(x);
}

bool meet_in_f32(DType a, DType b) {
  auto pair = [&](DType x, DType y) { return a == x && b == y; };
  return context().compute_dtype == DType::bf16 && (pair(DType::f32, DType::bf16) || pair(DType::bf16, DType::f32));
}

void note_promotion() {
  if (Tracer* tracer = context().tracer) tracer->note_promotion();
}

}  // namespace ws
