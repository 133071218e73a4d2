#include "tensor/precision.h"

#include <utility>

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/tracer.h"

namespace ws {

namespace {

DType& current(DType) { return context().compute_dtype; }
MatmulPrecision& current(MatmulPrecision) { return context().matmul_precision; }

void check(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16) fail("compute dtype: {} given, but it must be f32 or bf16", name_of(dtype));
}
void check(MatmulPrecision) {}

}  // namespace

template <class Value>
PrecisionScope<Value>::PrecisionScope(Value value) {
  check(value);
  before_ = std::exchange(current(value), value);
}
template <class Value>
PrecisionScope<Value>::~PrecisionScope() {
  current(before_) = before_;
}
template class PrecisionScope<DType>;
template class PrecisionScope<MatmulPrecision>;

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
