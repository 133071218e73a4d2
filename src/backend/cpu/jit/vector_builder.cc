#include "backend/cpu/jit/vector_builder.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Intrinsics.h>

#include "support/error.h"

namespace ws::cpu {

using llvm::ConstantFP;
using llvm::ConstantInt;
using llvm::Intrinsic::ID;
using S = ScalarBuilder::S;

S VectorScalarBuilder::wrap(const Lanes& lanes) {
  values_.push_back(lanes);
  return {static_cast<int>(values_.size()) - 1, lanes.dtype};
}

llvm::Type* VectorScalarBuilder::computing_element(DType dtype) const {
  switch (dtype) {
    case DType::f32:
    case DType::bf16: return ir_.getFloatTy();
    case DType::f64: return ir_.getDoubleTy();
    case DType::i32:
    case DType::u32: return ir_.getInt32Ty();
    case DType::boolean: return ir_.getInt1Ty();
  }
  return nullptr;
}

llvm::Type* VectorScalarBuilder::memory_element(DType dtype) const {
  if (dtype == DType::bf16) return ir_.getInt16Ty();
  if (dtype == DType::boolean) return ir_.getInt8Ty();
  return computing_element(dtype);
}

llvm::Type* VectorScalarBuilder::vector_of(llvm::Type* element) const { return llvm::FixedVectorType::get(element, kLanes); }

llvm::Value* VectorScalarBuilder::splat(llvm::Value* element) { return ir_.CreateVectorSplat(kLanes, element); }

llvm::Constant* VectorScalarBuilder::iota(llvm::Type* element) const {
  std::vector<llvm::Constant*> lanes;
  for (int i = 0; i < kLanes; ++i) lanes.push_back(ConstantInt::get(element, static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(lanes);
}

Lanes VectorScalarBuilder::widen(llvm::Value* from_memory, DType dtype) {
  if (dtype == DType::boolean)
    return {ir_.CreateICmpNE(from_memory, llvm::Constant::getNullValue(from_memory->getType())), dtype};
  if (dtype != DType::bf16) return {from_memory, dtype};
  llvm::Value* bits = ir_.CreateShl(ir_.CreateZExt(from_memory, vector_of(ir_.getInt32Ty())), 16);
  return {ir_.CreateBitCast(bits, vector_of(ir_.getFloatTy())), DType::f32, true};
}

llvm::Value* VectorScalarBuilder::narrow(const Lanes& lanes, DType dtype) {
  WS_ASSERT(lanes.dtype == computing_type(dtype), "a value of {} stored as {}", name_of(lanes.dtype), name_of(dtype));
  if (dtype == DType::boolean) return ir_.CreateZExt(lanes.value, vector_of(ir_.getInt8Ty()));
  if (dtype != DType::bf16) return lanes.value;
  llvm::Value* bits = ir_.CreateBitCast(round_to_bf16(lanes).value, vector_of(ir_.getInt32Ty()));
  return ir_.CreateTrunc(ir_.CreateLShr(bits, 16), vector_of(ir_.getInt16Ty()));
}

// To nearest even by adding 0x7fff plus the last kept bit; a NaN keeps its sign and gets its quiet bit instead. A denormal compares
// equal to zero, as the step reads it, and becomes one.
Lanes VectorScalarBuilder::round_to_bf16(const Lanes& lanes) {
  if (lanes.is_bf16) return lanes;
  auto word = [&](uint32_t w) { return ConstantInt::get(vector_of(ir_.getInt32Ty()), w); };
  llvm::Value* bits = ir_.CreateBitCast(lanes.value, vector_of(ir_.getInt32Ty()));
  llvm::Value* last_kept = ir_.CreateAnd(ir_.CreateLShr(bits, 16), word(1));
  llvm::Value* rounded = ir_.CreateAdd(bits, ir_.CreateAdd(last_kept, word(0x7fff)));
  llvm::Value* quiet = ir_.CreateOr(bits, word(0x400000));
  llvm::Value* picked = ir_.CreateSelect(ir_.CreateFCmpUNO(lanes.value, lanes.value), quiet, rounded);
  llvm::Value* is_zero = ir_.CreateFCmpOEQ(lanes.value, llvm::Constant::getNullValue(lanes.value->getType()));
  llvm::Value* kept = ir_.CreateAnd(picked, ir_.CreateSelect(is_zero, word(0x80000000u), word(0xffff0000u)));
  return {ir_.CreateBitCast(kept, vector_of(ir_.getFloatTy())), DType::f32, true};
}

S VectorScalarBuilder::constant(DType dtype, double value) {
  llvm::Type* type = vector_of(computing_element(dtype));
  switch (dtype) {
    case DType::f32: return make(ConstantFP::get(type, static_cast<double>(static_cast<float>(value))), dtype);
    case DType::bf16: {
      const Lanes wide{ConstantFP::get(type, static_cast<double>(static_cast<float>(value))), DType::f32};
      return wrap(round_to_bf16(wide));
    }
    case DType::f64: return make(ConstantFP::get(type, value), dtype);
    case DType::i32:
    case DType::u32: return make(ConstantInt::get(type, static_cast<uint64_t>(static_cast<int64_t>(value)) & 0xffffffffu), dtype);
    case DType::boolean: return make(ConstantInt::get(type, value != 0 ? 1 : 0), dtype);
  }
  return {};
}

S VectorScalarBuilder::bits_f32(uint32_t bits) {
  llvm::APFloat value(llvm::APFloat::IEEEsingle(), llvm::APInt(32, bits));
  return make(ConstantFP::get(vector_of(ir_.getFloatTy()), value), DType::f32);
}

S VectorScalarBuilder::add(S a, S b) {
  return make(is_floating(a.dtype) ? ir_.CreateFAdd(get(a), get(b)) : ir_.CreateAdd(get(a), get(b)), a.dtype);
}
S VectorScalarBuilder::sub(S a, S b) {
  return make(is_floating(a.dtype) ? ir_.CreateFSub(get(a), get(b)) : ir_.CreateSub(get(a), get(b)), a.dtype);
}
S VectorScalarBuilder::mul(S a, S b) {
  return make(is_floating(a.dtype) ? ir_.CreateFMul(get(a), get(b)) : ir_.CreateMul(get(a), get(b)), a.dtype);
}
S VectorScalarBuilder::neg(S a) {
  if (!is_floating(a.dtype)) return make(ir_.CreateNeg(get(a)), a.dtype);
  return make(ir_.CreateFNeg(get(a)), a.dtype, unwrap(a).is_bf16);
}
S VectorScalarBuilder::div(S a, S b) { return make(ir_.CreateFDiv(get(a), get(b)), a.dtype); }
S VectorScalarBuilder::fma(S a, S b, S c) {
  return make(ir_.CreateIntrinsic(llvm::Intrinsic::fma, {get(a)->getType()}, {get(a), get(b), get(c)}), a.dtype);
}

S VectorScalarBuilder::unary(ID id, S a, bool keeps_bf16) {
  return make(ir_.CreateUnaryIntrinsic(id, get(a)), a.dtype, keeps_bf16 && unwrap(a).is_bf16);
}
S VectorScalarBuilder::sqrt(S a) { return unary(llvm::Intrinsic::sqrt, a, false); }
S VectorScalarBuilder::abs(S a) { return unary(llvm::Intrinsic::fabs, a, true); }
S VectorScalarBuilder::round_even(S a) { return unary(llvm::Intrinsic::roundeven, a, false); }
S VectorScalarBuilder::floor(S a) { return unary(llvm::Intrinsic::floor, a, false); }
S VectorScalarBuilder::copysign(S magnitude, S sign) {
  return make(ir_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, get(magnitude), get(sign)), magnitude.dtype,
              unwrap(magnitude).is_bf16);
}

S VectorScalarBuilder::bit_and(S a, S b) { return make(ir_.CreateAnd(get(a), get(b)), a.dtype); }
S VectorScalarBuilder::bit_or(S a, S b) { return make(ir_.CreateOr(get(a), get(b)), a.dtype); }
S VectorScalarBuilder::bit_xor(S a, S b) { return make(ir_.CreateXor(get(a), get(b)), a.dtype); }
S VectorScalarBuilder::shift_left(S a, int count) { return make(ir_.CreateShl(get(a), static_cast<uint64_t>(count)), a.dtype); }
S VectorScalarBuilder::shift_right(S a, int count) {
  const auto n = static_cast<uint64_t>(count);
  return make(a.dtype == DType::i32 ? ir_.CreateAShr(get(a), n) : ir_.CreateLShr(get(a), n), a.dtype);
}
S VectorScalarBuilder::mul_high_u32(S a, S b) {
  llvm::Type* wide = vector_of(ir_.getInt64Ty());
  llvm::Value* product = ir_.CreateMul(ir_.CreateZExt(get(a), wide), ir_.CreateZExt(get(b), wide));
  return make(ir_.CreateTrunc(ir_.CreateLShr(product, 32), vector_of(ir_.getInt32Ty())), DType::u32);
}

S VectorScalarBuilder::eq(S a, S b) {
  return make(is_floating(a.dtype) ? ir_.CreateFCmpOEQ(get(a), get(b)) : ir_.CreateICmpEQ(get(a), get(b)), DType::boolean);
}
S VectorScalarBuilder::ne(S a, S b) {
  return make(is_floating(a.dtype) ? ir_.CreateFCmpUNE(get(a), get(b)) : ir_.CreateICmpNE(get(a), get(b)), DType::boolean);
}
S VectorScalarBuilder::lt(S a, S b) {
  if (is_floating(a.dtype)) return make(ir_.CreateFCmpOLT(get(a), get(b)), DType::boolean);
  return make(a.dtype == DType::i32 ? ir_.CreateICmpSLT(get(a), get(b)) : ir_.CreateICmpULT(get(a), get(b)), DType::boolean);
}
S VectorScalarBuilder::le(S a, S b) {
  if (is_floating(a.dtype)) return make(ir_.CreateFCmpOLE(get(a), get(b)), DType::boolean);
  return make(a.dtype == DType::i32 ? ir_.CreateICmpSLE(get(a), get(b)) : ir_.CreateICmpULE(get(a), get(b)), DType::boolean);
}
S VectorScalarBuilder::logical_and(S a, S b) { return make(ir_.CreateAnd(get(a), get(b)), DType::boolean); }
S VectorScalarBuilder::logical_or(S a, S b) { return make(ir_.CreateOr(get(a), get(b)), DType::boolean); }
S VectorScalarBuilder::logical_not(S a) { return make(ir_.CreateNot(get(a)), DType::boolean); }
// On bits: a select that LLVM sees as a maximum makes zeros of denormals, and what it sees depends on what else is in the kernel. The
// bounds of a formula (constants other than 0) are left to it: arithmetic follows, which makes zeros of them in any case.
S VectorScalarBuilder::select(S condition, S if_true, S if_false) {
  const auto is_bound = [](const llvm::Value* arm) {
    const auto* constant = llvm::dyn_cast<llvm::Constant>(arm);
    return constant != nullptr && !constant->isZeroValue();
  };
  llvm::Value *yes = get(if_true), *no = get(if_false), *result = nullptr;
  if (is_floating(if_true.dtype) && !is_bound(yes) && !is_bound(no)) {
    llvm::Type* bits = vector_of(if_true.dtype == DType::f64 ? ir_.getInt64Ty() : ir_.getInt32Ty());
    llvm::Value* chosen = ir_.CreateSelect(get(condition), ir_.CreateBitCast(yes, bits), ir_.CreateBitCast(no, bits));
    result = ir_.CreateBitCast(chosen, yes->getType());
  } else {
    result = ir_.CreateSelect(get(condition), yes, no);
  }
  return make(result, if_true.dtype, unwrap(if_true).is_bf16 && unwrap(if_false).is_bf16);
}

// By the signed conversion, which every instruction set has and which sends NaN to one value.
llvm::Value* VectorScalarBuilder::float_to_u32(llvm::Value* value, llvm::Type* type) {
  llvm::Constant* half = ConstantFP::get(value->getType(), 2147483648.0);
  llvm::Value* upper = ir_.CreateFCmpOGE(value, half);
  llvm::Value* reduced = ir_.CreateSelect(upper, ir_.CreateFSub(value, half), value);
  llvm::Value* top_bit = ir_.CreateSelect(upper, ConstantInt::get(type, 0x80000000u), ConstantInt::get(type, 0));
  return ir_.CreateXor(ir_.CreateFPToSI(reduced, type), top_bit);
}

// LLVM drops a widening that is narrowed again, and with it what made zeros of f32's denormals.
llvm::Value* VectorScalarBuilder::without_denormals(llvm::Value* value) {
  llvm::Type* words = vector_of(ir_.getInt32Ty());
  llvm::Value* is_zero = ir_.CreateFCmpOEQ(value, llvm::Constant::getNullValue(value->getType()));
  llvm::Value* kept = ir_.CreateSelect(is_zero, ConstantInt::get(words, 0x80000000u), llvm::Constant::getAllOnesValue(words));
  return ir_.CreateBitCast(ir_.CreateAnd(ir_.CreateBitCast(value, words), kept), value->getType());
}

Lanes VectorScalarBuilder::convert(const Lanes& a, DType to) {
  llvm::Type* type = vector_of(computing_element(to));
  if (a.dtype == to) return a;
  if (to == DType::boolean) {
    llvm::Constant* zero = llvm::Constant::getNullValue(a.value->getType());
    return {is_floating(a.dtype) ? ir_.CreateFCmpUNE(a.value, zero) : ir_.CreateICmpNE(a.value, zero), to};
  }
  if (a.dtype == DType::boolean) {
    llvm::Constant* one = is_floating(to) ? ConstantFP::get(type, 1.0) : ConstantInt::get(type, 1);
    return {ir_.CreateSelect(a.value, one, llvm::Constant::getNullValue(type)), to};
  }
  if (is_floating(a.dtype) && is_floating(to))
    return {to == DType::f64 ? ir_.CreateFPExt(without_denormals(a.value), type) : ir_.CreateFPTrunc(a.value, type), to};
  if (to == DType::u32 && is_floating(a.dtype)) return {float_to_u32(a.value, type), to};
  if (is_floating(a.dtype)) return {ir_.CreateFPToSI(a.value, type), to};
  if (is_floating(to)) return {a.dtype == DType::i32 ? ir_.CreateSIToFP(a.value, type) : ir_.CreateUIToFP(a.value, type), to};
  return {a.value, to};  // i32 and u32 share their bits
}

S VectorScalarBuilder::cast(S a, DType to) {
  const Lanes lanes = unwrap(a);
  if (to == DType::bf16) return wrap(round_to_bf16(convert(lanes, DType::f32)));
  return wrap(convert(lanes, to));
}
S VectorScalarBuilder::bitcast(S a, DType to) { return make(ir_.CreateBitCast(get(a), vector_of(computing_element(to))), to); }

S VectorScalarBuilder::index(int axis) {
  WS_ASSERT(position_, "index() outside an element-level op");
  const int last = static_cast<int>(position_->outer.size());
  if (axis < 0) axis += last + 1;
  WS_ASSERT(axis >= 0 && axis <= last, "index along axis {} of {}", axis, last + 1);
  llvm::Type* i32 = ir_.getInt32Ty();
  if (axis < last) return make(splat(ir_.CreateTrunc(position_->outer[static_cast<size_t>(axis)], i32)), DType::i32);
  return make(ir_.CreateAdd(splat(ir_.CreateTrunc(position_->inner, i32)), iota(i32)), DType::i32);
}

llvm::Value* VectorScalarBuilder::linear_start() {
  WS_ASSERT(position_, "linear_index() outside an element-level op");
  return ir_.CreateAdd(ir_.CreateMul(position_->row, position_->inner_dim), position_->inner);
}
S VectorScalarBuilder::linear_index_low() {
  llvm::Type* i32 = ir_.getInt32Ty();
  return make(ir_.CreateAdd(splat(ir_.CreateTrunc(linear_start(), i32)), iota(i32)), DType::u32);
}
S VectorScalarBuilder::linear_index_high() {
  llvm::Type* i32 = ir_.getInt32Ty();
  llvm::Value* start = linear_start();
  llvm::Value* low = splat(ir_.CreateTrunc(start, i32));
  llvm::Value* carried = ir_.CreateICmpULT(ir_.CreateAdd(low, iota(i32)), low);
  llvm::Value* high = splat(ir_.CreateTrunc(ir_.CreateLShr(start, 32), i32));
  return make(ir_.CreateAdd(high, ir_.CreateZExt(carried, vector_of(i32))), DType::u32);
}

}  // namespace ws::cpu
