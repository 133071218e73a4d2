// VectorScalarBuilder: what an op's `emit` writes, as LLVM IR on 16 logical lanes, so that every instruction set computes
// the same bits. Each method is one IEEE operation: no fast-math flag, no contraction, selects on bits.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include <span>
#include <vector>

#include <llvm/IR/IRBuilder.h>

#include "ir/scalar_builder.h"
#include "schedule/loop_kernel.h"

namespace ws::cpu {

/// 16 lanes of a value in its computing type: <16 x float>, <16 x double>, <16 x i32> or <16 x i1>.
struct Lanes {
  llvm::Value* value = nullptr;
  DType dtype = DType::f32;  // f32, f64, i32, u32 or boolean
  bool is_bf16 = false;      // an f32 that bf16 holds exactly: rounding it again changes nothing
};

/// Where lane 0 lies in the iteration space; 64-bit integers.
struct Position {
  std::span<llvm::Value* const> outer;  // index along each axis but the last
  llvm::Value* row = nullptr;           // flattened outer index
  llvm::Value* inner_dim = nullptr;
  llvm::Value* inner = nullptr;  // index along the last axis
};

constexpr DType computing_type(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

class VectorScalarBuilder final : public ScalarBuilder {
 public:
  explicit VectorScalarBuilder(llvm::IRBuilder<>& ir) : ir_(ir) {}

  /// Starts an op: forgets earlier handles.
  void begin(const Position* position) {
    values_.clear();
    position_ = position;
  }
  S wrap(const Lanes& lanes);
  const Lanes& unwrap(S s) const { return values_[static_cast<size_t>(s.id)]; }

  /// Element types in registers and in memory, and conversions between the two.
  llvm::Type* computing_element(DType dtype) const;
  llvm::Type* memory_element(DType dtype) const;
  llvm::Type* vector_of(llvm::Type* element) const;
  Lanes widen(llvm::Value* from_memory, DType dtype);
  llvm::Value* narrow(const Lanes& lanes, DType dtype);
  Lanes round_to_bf16(const Lanes& lanes);
  llvm::Value* splat(llvm::Value* element);
  /// 0, 1, .. 15 in the given integer type.
  llvm::Constant* iota(llvm::Type* element) const;

  S constant(DType dtype, double value) override;
  S bits_f32(uint32_t bits) override;
  S add(S a, S b) override;
  S sub(S a, S b) override;
  S mul(S a, S b) override;
  S neg(S a) override;
  S div(S a, S b) override;
  S fma(S a, S b, S c) override;
  S sqrt(S a) override;
  S abs(S a) override;
  S copysign(S magnitude, S sign) override;
  S round_even(S a) override;
  S floor(S a) override;
  S bit_and(S a, S b) override;
  S bit_or(S a, S b) override;
  S bit_xor(S a, S b) override;
  S shift_left(S a, int count) override;
  S shift_right(S a, int count) override;
  S mul_high_u32(S a, S b) override;
  S eq(S a, S b) override;
  S ne(S a, S b) override;
  S lt(S a, S b) override;
  S le(S a, S b) override;
  S logical_and(S a, S b) override;
  S logical_or(S a, S b) override;
  S logical_not(S a) override;
  S select(S condition, S if_true, S if_false) override;
  S cast(S a, DType to) override;
  S bitcast(S a, DType to) override;
  S index(int axis) override;
  S linear_index_low() override;
  S linear_index_high() override;

 private:
  llvm::Value* get(S s) const { return unwrap(s).value; }
  S make(llvm::Value* value, DType dtype, bool is_bf16 = false) { return wrap({value, dtype, is_bf16}); }
  S unary(llvm::Intrinsic::ID id, S a, bool keeps_bf16);
  Lanes convert(const Lanes& a, DType to);
  llvm::Value* without_denormals(llvm::Value* value);
  llvm::Value* float_to_u32(llvm::Value* value, llvm::Type* type);
  llvm::Value* linear_start();

  llvm::IRBuilder<>& ir_;
  std::vector<Lanes> values_;
  const Position* position_ = nullptr;
};

}  // namespace ws::cpu
