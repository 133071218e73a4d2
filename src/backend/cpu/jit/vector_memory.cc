#include "backend/cpu/jit/vector_memory.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Module.h>

namespace ws::cpu {
namespace {

llvm::Align align_of(DType dtype) { return llvm::Align(size_of(dtype)); }

}  // namespace

void set_target_attributes(llvm::Function& function, Isa isa) {
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.addFnAttr("denormal-fp-math", "preserve-sign,preserve-sign");
  if (isa == Isa::avx512) {
    function.addFnAttr("target-cpu", "x86-64-v4");
    function.addFnAttr("target-features", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+avx2,+fma,+f16c");
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
  } else {
    function.addFnAttr("target-cpu", "x86-64-v3");
    function.addFnAttr("target-features", "+avx2,+fma,+f16c");
    function.addFnAttr("prefer-vector-width", "256");
    function.addFnAttr("min-legal-vector-width", "256");
  }
}

Part VectorMemory::first(llvm::Value* count, bool mostly_whole) {
  llvm::Type* i32 = ir_.getInt32Ty();
  count = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, ir_.getInt64(kLanes));
  return {count, ir_.CreateICmpULT(vectors_.iota(i32), vectors_.splat(ir_.CreateTrunc(count, i32))), mostly_whole};
}

bool VectorMemory::has_masked_access(DType dtype) const { return isa_ == Isa::avx512 || size_of(dtype) >= 4; }

llvm::Value* VectorMemory::step_pointer(llvm::Value* pointer, llvm::Value* bytes) {
  return ir_.CreateGEP(ir_.getInt8Ty(), pointer, bytes);
}

llvm::Value* VectorMemory::lane_pointers(llvm::Value* pointer, llvm::Value* stride_bytes) {
  return step_pointer(pointer, ir_.CreateMul(vectors_.splat(stride_bytes), vectors_.iota(ir_.getInt64Ty())));
}

llvm::Value* VectorMemory::swap_pairs(llvm::Value* vector) {
  static constexpr int kSwap[kLanes] = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
  return ir_.CreateShuffleVector(vector, llvm::ArrayRef<int>(kSwap));
}

Lanes VectorMemory::load_splat(llvm::Value* pointer, DType dtype) {
  return vectors_.widen(vectors_.splat(ir_.CreateAlignedLoad(vectors_.memory_element(dtype), pointer, align_of(dtype))), dtype);
}

Lanes VectorMemory::load(llvm::Value* pointer, DType dtype, Step step, llvm::Value* stride_bytes, const Part& part) {
  llvm::Value* raw = load_raw(pointer, dtype, step == Step::kStrided ? stride_bytes : nullptr, part);
  return vectors_.widen(step == Step::kSwapped ? swap_pairs(raw) : raw, dtype);
}

llvm::Value* VectorMemory::load_raw(llvm::Value* pointer, DType dtype, llvm::Value* stride_bytes, const Part& part) {
  llvm::Type* element = vectors_.memory_element(dtype);
  llvm::Type* type = vectors_.vector_of(element);
  const llvm::Align align = align_of(dtype);
  if (!stride_bytes && !part.mask) return ir_.CreateAlignedLoad(type, pointer, align);
  if (!stride_bytes && has_masked_access(dtype))
    return ir_.CreateMaskedLoad(type, pointer, align, part.mask, llvm::Constant::getNullValue(type));
  if (stride_bytes && part.mask && isa_ == Isa::avx512 && size_of(dtype) >= 4)
    return ir_.CreateMaskedGather(type, lane_pointers(pointer, stride_bytes), align, part.mask,
                                  llvm::Constant::getNullValue(type));
  if (part.mask) {
    llvm::Value* stride = stride_bytes ? stride_bytes : ir_.getInt64(size_of(dtype));
    return ir_.CreateCall(partial_loader(element), {pointer, stride, part.count});
  }
  llvm::Value* vector =
      llvm::PoisonValue::get(type);  // sixteen loads are no slower than a gather, and on some processors twice as fast
  for (int lane = 0; lane < kLanes; ++lane) {
    if (lane > 0) pointer = step_pointer(pointer, stride_bytes);
    vector = ir_.CreateInsertElement(vector, ir_.CreateAlignedLoad(element, pointer, align), static_cast<uint64_t>(lane));
  }
  return vector;
}

void VectorMemory::store(const Lanes& lanes, llvm::Value* pointer, DType dtype, Step step, llvm::Value* stride_bytes,
                         const Part& part) {
  llvm::Value* vector = vectors_.narrow(lanes, dtype);
  store_raw(step == Step::kSwapped ? swap_pairs(vector) : vector, pointer, dtype, step == Step::kStrided ? stride_bytes : nullptr,
            part);
}

void VectorMemory::store_raw(llvm::Value* vector, llvm::Value* pointer, DType dtype, llvm::Value* stride_bytes,
                             const Part& part) {
  const llvm::Align align = align_of(dtype);
  if (part.mostly_whole) {  // some processors take tens of cycles for a masked store
    llvm::Value* whole = ir_.CreateICmpEQ(part.count, ir_.getInt64(kLanes));
    IrLoops(ir_).if_then_else(
        "whole", whole, [&] { store_raw(vector, pointer, dtype, stride_bytes, {}); },
        [&] {
          store_raw(vector, pointer, dtype, stride_bytes, {part.count, part.mask});
        });
  } else if (!stride_bytes && !part.mask) {
    ir_.CreateAlignedStore(vector, pointer, align);
  } else if (!stride_bytes && has_masked_access(dtype)) {
    if (isa_ == Isa::avx2)
      store_first(vector, pointer, align, part.count);
    else
      ir_.CreateMaskedStore(vector, pointer, align, part.mask);
  } else if (stride_bytes && part.mask && isa_ == Isa::avx512 && size_of(dtype) >= 4) {
    ir_.CreateMaskedScatter(vector, lane_pointers(pointer, stride_bytes), align, part.mask);
  } else if (part.mask) {
    llvm::Value* stride = stride_bytes ? stride_bytes : ir_.getInt64(size_of(dtype));
    ir_.CreateCall(partial_storer(vectors_.memory_element(dtype)), {vector, pointer, stride, part.count});
  } else {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane > 0) pointer = step_pointer(pointer, stride_bytes);
      ir_.CreateAlignedStore(ir_.CreateExtractElement(vector, static_cast<uint64_t>(lane)), pointer, align);
    }
  }
}

/// AVX2's masked stores take some processors tens of cycles: by halves instead, as the count's bits say.
void VectorMemory::store_first(llvm::Value* vector, llvm::Value* pointer, llvm::Align align, llvm::Value* count) {
  const auto lanes_of = [&](llvm::Value* from, int first, int lanes) {
    llvm::SmallVector<int, kLanes> order;
    for (int lane = first; lane < first + lanes; ++lane) order.push_back(lane);
    return ir_.CreateShuffleVector(from, order);
  };
  llvm::Type* element = llvm::cast<llvm::VectorType>(vector->getType())->getElementType();
  const auto store_where = [&](llvm::Value* condition, llvm::Value* lanes) {
    IrLoops(ir_).if_then_else(
        "lanes", condition, [&] { ir_.CreateAlignedStore(lanes, pointer, align); }, [] {});
  };
  store_where(ir_.CreateICmpEQ(count, ir_.getInt64(kLanes)), vector);
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) {
    llvm::Value* here = ir_.CreateAnd(count, ir_.getInt64(static_cast<uint64_t>(lanes)));
    llvm::Value *has = ir_.CreateICmpNE(here, ir_.getInt64(0)), *lower = lanes_of(vector, 0, lanes);
    store_where(has, lower);
    vector = ir_.CreateSelect(has, lanes_of(vector, lanes, lanes), lower);
    pointer = ir_.CreateGEP(element, pointer, here);
  }
}

void VectorMemory::store_one(const Lanes& lanes, llvm::Value* pointer, DType dtype) {
  ir_.CreateAlignedStore(ir_.CreateExtractElement(vectors_.narrow(lanes, dtype), uint64_t{0}), pointer, align_of(dtype));
}

void VectorMemory::prefetch(llvm::Value* pointer, bool is_write) {
  const auto flag = [&](int value) { return ir_.getInt32(static_cast<uint32_t>(value)); };
  const int level = is_write ? 3 : 2;  // what is read waits in L2: L1 has the rows at hand
  ir_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ir_.getPtrTy()}, {pointer, flag(is_write), flag(level), flag(1)});
}

// Out of line, as tails are rare and a body may have many of them.
template <class Body>
llvm::Function* VectorMemory::helper(const std::string& name, llvm::FunctionType* type, Body&& body) {
  if (llvm::Function* known = module_.getFunction(name)) return known;
  auto* function = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module_);
  function->addFnAttr(llvm::Attribute::NoInline);
  set_target_attributes(*function, isa_);
  const llvm::IRBuilder<>::InsertPointGuard guard(ir_);
  ir_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function));
  body(*function);
  return function;
}

llvm::Function* VectorMemory::partial_loader(llvm::Type* element) {
  llvm::Type* vector = vectors_.vector_of(element);
  llvm::Type* i64 = ir_.getInt64Ty();
  const std::string name =
      "load_part_" + std::to_string(element->getScalarSizeInBits()) + (element->isFloatingPointTy() ? "f" : "i");
  return helper(name, llvm::FunctionType::get(vector, {ir_.getPtrTy(), i64, i64}, false), [&](llvm::Function& f) {
    llvm::Value* buffer = ir_.CreateAlloca(vector);
    ir_.CreateStore(llvm::Constant::getNullValue(vector), buffer);
    IrLoops(ir_).loop(
        "lane", ir_.getInt64(0), f.getArg(2), 1, {f.getArg(0)}, [&](llvm::Value* lane, const Values& pointer) -> Values {
          const llvm::Align align(element->getScalarSizeInBits() / 8);
          ir_.CreateAlignedStore(ir_.CreateAlignedLoad(element, pointer[0], align), ir_.CreateGEP(element, buffer, lane), align);
          return {step_pointer(pointer[0], f.getArg(1))};
        });
    ir_.CreateRet(ir_.CreateLoad(vector, buffer));
  });
}

llvm::Function* VectorMemory::partial_storer(llvm::Type* element) {
  llvm::Type* vector = vectors_.vector_of(element);
  llvm::Type* i64 = ir_.getInt64Ty();
  const std::string name =
      "store_part_" + std::to_string(element->getScalarSizeInBits()) + (element->isFloatingPointTy() ? "f" : "i");
  return helper(
      name, llvm::FunctionType::get(ir_.getVoidTy(), {vector, ir_.getPtrTy(), i64, i64}, false), [&](llvm::Function& f) {
        llvm::Value* buffer = ir_.CreateAlloca(vector);
        ir_.CreateStore(f.getArg(0), buffer);
        IrLoops(ir_).loop("lane", ir_.getInt64(0), f.getArg(3), 1, {f.getArg(1)},
                          [&](llvm::Value* lane, const Values& pointer) -> Values {
                            const llvm::Align align(element->getScalarSizeInBits() / 8);
                            ir_.CreateAlignedStore(ir_.CreateAlignedLoad(element, ir_.CreateGEP(element, buffer, lane), align),
                                                   pointer[0], align);
                            return {step_pointer(pointer[0], f.getArg(2))};
                          });
        ir_.CreateRetVoid();
      });
}

}  // namespace ws::cpu
