#include "backend/cpu/jit/loop_emitter.h"

#include <algorithm>

#include "backend/cpu/jit/row_emitter.h"

namespace ws::cpu {
namespace {

using Kind = LoopInstr::Kind;

/// Walks the units of a call, which are rows, blocks of rows or flat blocks, and has a RowEmitter fill them in.
class LoopEmitter {
 public:
  LoopEmitter(llvm::Module& module, const LoopKernel& kernel, const LoopPlan& plan, Isa isa)
      : kernel_(kernel), plan_(plan), isa_(isa), module_(module), ir_(module.getContext()), loops_(ir_), args_(ir_, kernel),
        rows_(module, ir_, loops_, args_, kernel, plan, isa) {}

  void emit() {
    llvm::Type* i64 = ir_.getInt64Ty();
    llvm::Type* pointer = ir_.getPtrTy();
    auto* type = llvm::FunctionType::get(ir_.getVoidTy(), {pointer, i64, i64, i64, i64, pointer}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kEntryName, module_);
    set_target_attributes(*function_, isa_);
    args_.bind(function_->getArg(0));
    ir_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
    rows_.emit_call_level(function_->getArg(5));
    switch (kernel_.walk) {
      case Walk::kElements:
      case Walk::kRows: walk_rows(); break;
      case Walk::kRowBlocks: walk_row_blocks(); break;
      case Walk::kFlatBlocks: walk_flat_blocks(); break;
    }
    ir_.CreateRetVoid();
  }

 private:
  Value* begin() const { return function_->getArg(1); }
  Value* end() const { return function_->getArg(2); }
  Value* constant(int64_t v) { return ir_.getInt64(static_cast<uint64_t>(v)); }
  Value* advance(Value* base, Value* bytes) { return ir_.CreateGEP(ir_.getInt8Ty(), base, bytes); }
  const LoopInstr& instr(int i) const { return kernel_.body[static_cast<size_t>(i)]; }
  DType dtype_of(int a) const { return kernel_.accesses[static_cast<size_t>(a)].dtype; }
  int num_accesses() const { return args_.num_accesses(); }

  bool is_column_target(int a) const {
    return std::any_of(kernel_.body.begin(), kernel_.body.end(),
                       [&](const LoopInstr& in) { return in.kind == Kind::kReduceColumn && in.access == a; });
  }
  /// Row-level stores of flat blocks write one element a unit.
  bool is_unit_target(int a) const {
    return kernel_.walk == Walk::kFlatBlocks &&
           std::any_of(plan_.row_stores.begin(), plan_.row_stores.end(), [&](int i) { return instr(i).access == a; });
  }

  /// Index along each of the first `count` axes of the flattened index `flat`.
  Values decompose(Value* flat, int count) {
    Values out(static_cast<size_t>(count), constant(0));
    if (count == 0) return out;
    return loops_.if_then("decompose", ir_.CreateICmpNE(flat, constant(0)), out, [&] {
      Values index(static_cast<size_t>(count));
      Value* rest = flat;
      for (int d = count - 1; d > 0; --d) {
        index[static_cast<size_t>(d)] = ir_.CreateURem(rest, args_.dim(d));
        rest = ir_.CreateUDiv(rest, args_.dim(d));
      }
      index[0] = rest;
      return index;
    });
  }

  /// Address of element (index.., 0) of each access; column and unit targets: of what the unit writes.
  Values bases_at(const Values& index, Value* unit) {
    Values out;
    for (int a = 0; a < num_accesses(); ++a) {
      Value* base = args_.pointer(a);
      const int64_t size = static_cast<int64_t>(size_of(dtype_of(a)));
      if (is_column_target(a)) {
        base = advance(base, ir_.CreateMul(ir_.CreateMul(unit, args_.inner_dim()), constant(size)));
      } else if (is_unit_target(a)) {
        base = advance(base, ir_.CreateMul(unit, constant(size)));
      } else if (!index.empty()) {
        Value* offset = constant(0);
        for (size_t d = 0; d < index.size(); ++d)
          offset = ir_.CreateAdd(offset, ir_.CreateMul(index[d], args_.stride_bytes(a, static_cast<int>(d))));
        base = advance(base, offset);
      }
      out.push_back(base);
    }
    return out;
  }

  /// Rows 0..count-1 along the last outer axis, from `first`: where the caller allows it by as many as the plan says, then one by one.
  void sweep_rows(const Row& first, Value* count, Value* low, Value* high) {
    Value* together = constant(0);
    if (plan_.rows > 1) {
      Value* allowed = ir_.CreateICmpNE(function_->getArg(3), constant(0));
      together = ir_.CreateSelect(allowed, ir_.CreateAnd(count, constant(-plan_.rows)), constant(0));
      sweep_rows(first, constant(0), together, plan_.rows, low, high);
    }
    sweep_rows(first, together, count, 1, low, high);
  }
  void sweep_rows(const Row& first, Value* from, Value* to, int num_rows, Value* low, Value* high) {
    const int axis = kernel_.rank - 2;
    loops_.loop("row", from, to, num_rows, {}, [&](Value* k, const Values&) -> Values {
      Rows rows;
      for (int r = 0; r < num_rows; ++r) {
        Value* at = r == 0 ? k : ir_.CreateAdd(k, constant(r));
        Row row = first;
        row.place = r;
        row.index = ir_.CreateAdd(first.index, at);
        row.outer.back() = ir_.CreateAdd(first.outer.back(), at);
        for (int a = 0; a < num_accesses(); ++a)
          if (!is_column_target(a))
            row.base[static_cast<size_t>(a)] =
                advance(row.base[static_cast<size_t>(a)], ir_.CreateMul(at, args_.stride_bytes(a, axis)));
        rows.push_back(std::move(row));
      }
      rows_.process(rows, low, high);
      return {};
    });
  }

  void walk_rows() {
    const bool elements = kernel_.walk == Walk::kElements;
    Value* low = elements ? function_->getArg(3) : constant(0);
    Value* high = elements ? function_->getArg(4) : args_.inner_dim();
    const int outer = kernel_.rank - 1;
    if (outer == 0) {
      loops_.if_then("row", ir_.CreateICmpSLT(begin(), end()), {}, [&]() -> Values {
        Rows rows(1);
        rows[0].base = bases_at({}, nullptr);
        rows[0].index = constant(0);
        rows_.process(rows, low, high);
        return {};
      });
      return;
    }
    // A chunk is a run of rows along the last outer axis; between chunks the outer indices advance like an odometer.
    Values state = decompose(begin(), outer);
    state.insert(state.begin(), begin());
    loops_.while_loop(
        "chunk", state, [&](const Values& v) { return ir_.CreateICmpSLT(v[0], end()); },
        [&](const Values& v) {
          Row first;
          first.index = v[0];
          first.outer.assign(v.begin() + 1, v.end());
          first.base = bases_at(first.outer, nullptr);
          Value* left = ir_.CreateSub(args_.dim(outer - 1), first.outer.back());
          Value* count = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, ir_.CreateSub(end(), v[0]));
          sweep_rows(first, count, low, high);
          Values next(v.size());
          next[0] = ir_.CreateAdd(v[0], count);
          next.back() = constant(0);
          Value* carry = constant(1);
          for (size_t d = static_cast<size_t>(outer) - 1; d > 0; --d) {
            Value* moved = ir_.CreateAdd(v[d], carry);
            Value* wraps = ir_.CreateICmpEQ(moved, args_.dim(static_cast<int>(d) - 1));
            next[d] = ir_.CreateSelect(wraps, constant(0), moved);
            carry = ir_.CreateZExt(wraps, ir_.getInt64Ty());
          }
          return next;
        });
  }

  void walk_row_blocks() {
    const int axis = kernel_.rank - 2;
    Value* num_rows = args_.dim(axis);
    Value* blocks = ir_.CreateLShr(ir_.CreateAdd(num_rows, constant(kRowBlock - 1)), 6);
    static_assert(kRowBlock == 64);
    loops_.loop("unit", begin(), end(), 1, {}, [&](Value* unit, const Values&) -> Values {
      Value* before = axis == 0 ? constant(0) : ir_.CreateUDiv(unit, blocks);
      Value* block = axis == 0 ? unit : ir_.CreateSub(unit, ir_.CreateMul(before, blocks));
      Value* start = ir_.CreateMul(block, constant(kRowBlock));
      Row first;
      first.outer = decompose(before, axis);
      first.outer.push_back(start);
      first.index = ir_.CreateAdd(ir_.CreateMul(before, num_rows), start);
      first.base = bases_at(first.outer, unit);
      rows_.clear_column_targets(first);
      Value* count = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, constant(kRowBlock), ir_.CreateSub(num_rows, start));
      sweep_rows(first, count, constant(0), args_.inner_dim());
      return {};
    });
  }

  void walk_flat_blocks() {
    loops_.loop("unit", begin(), end(), 1, {}, [&](Value* unit, const Values&) -> Values {
      Rows rows(1);
      rows[0].base = bases_at({}, unit);
      rows[0].index = constant(0);
      Value* low = ir_.CreateMul(unit, constant(kFlatBlock));
      Value* high = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, args_.inner_dim(), ir_.CreateAdd(low, constant(kFlatBlock)));
      rows_.process(rows, low, high);
      return {};
    });
  }

  const LoopKernel& kernel_;
  const LoopPlan& plan_;
  Isa isa_;
  llvm::Module& module_;
  llvm::IRBuilder<> ir_;
  IrLoops loops_;
  LoopArguments args_;
  RowEmitter rows_;
  llvm::Function* function_ = nullptr;
};

}  // namespace

void emit_loop(llvm::Module& module, const LoopKernel& kernel, const LoopPlan& plan, Isa isa) {
  LoopEmitter(module, kernel, plan, isa).emit();
}

}  // namespace ws::cpu
