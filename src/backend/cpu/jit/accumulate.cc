#include "backend/cpu/jit/accumulate.h"

#include <limits>
#include <numeric>

#include <llvm/IR/Constants.h>

#include "support/error.h"

namespace ws::cpu {

using llvm::ConstantFP;
using llvm::ConstantInt;

// A float's bits as an integer sort like the float where the sign is clear; where it is set the magnitude must be flipped.
llvm::Value* Accumulator::reorder(llvm::Value* integers) {
  const unsigned width = integers->getType()->getScalarSizeInBits();
  llvm::Value* sign = ir_.CreateAShr(integers, uint64_t{width - 1});
  return ir_.CreateXor(integers,
                       ir_.CreateAnd(sign, ConstantInt::get(integers->getType(), llvm::APInt::getSignedMaxValue(width))));
}

llvm::Value* Accumulator::encode(llvm::Value* lanes) {
  if (!ordered()) return lanes;
  llvm::Type* type = vectors_.vector_of(integer_type());
  llvm::Constant* highest = ConstantInt::get(type, llvm::APInt::getSignedMaxValue(type->getScalarSizeInBits()));
  return ir_.CreateSelect(ir_.CreateFCmpUNO(lanes, lanes), highest, reorder(ir_.CreateBitCast(lanes, type)));
}

Lanes Accumulator::decode(llvm::Value* vector) {
  if (!ordered()) return {vector, dtype_};
  return {ir_.CreateBitCast(reorder(vector), vectors_.vector_of(vectors_.computing_element(dtype_))), dtype_};
}

llvm::Value* Accumulator::start() {
  llvm::Type* type = vectors_.vector_of(vectors_.computing_element(dtype_));
  WS_ASSERT(dtype_ != DType::boolean, "a reduction of booleans");
  if (!is_max_ || dtype_ == DType::u32) return llvm::Constant::getNullValue(type);
  if (is_floating(dtype_)) return encode(ConstantFP::getInfinity(type, true));
  return ConstantInt::get(type, llvm::APInt::getSignedMinValue(32));
}

llvm::Value* Accumulator::identity() {
  if (!is_max_ && is_floating(dtype_)) return ConstantFP::getNegativeZero(vectors_.computing_element(dtype_));
  return ir_.CreateExtractElement(start(), uint64_t{0});
}

llvm::Value* Accumulator::combine(llvm::Value* a, llvm::Value* b) {
  if (is_max_) return ir_.CreateBinaryIntrinsic(dtype_ == DType::u32 ? llvm::Intrinsic::umax : llvm::Intrinsic::smax, a, b);
  return is_floating(dtype_) ? ir_.CreateFAdd(a, b) : ir_.CreateAdd(a, b);
}

llvm::Value* Accumulator::add(llvm::Value* accumulator, llvm::Value* lanes, llvm::Value* mask) {
  llvm::Value* value = encode(lanes);
  return combine(accumulator, mask ? ir_.CreateSelect(mask, value, start()) : value);
}

llvm::Value* Accumulator::fold(llvm::Value* accumulator) {
  for (int width = kLanes / 2; width >= 1; width /= 2) {
    std::vector<int> low(static_cast<size_t>(width)), high(static_cast<size_t>(width));
    std::iota(low.begin(), low.end(), 0);
    std::iota(high.begin(), high.end(), width);
    accumulator = combine(ir_.CreateShuffleVector(accumulator, low), ir_.CreateShuffleVector(accumulator, high));
  }
  return ir_.CreateExtractElement(accumulator, uint64_t{0});
}

}  // namespace ws::cpu
