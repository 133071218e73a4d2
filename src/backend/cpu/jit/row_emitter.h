// RowEmitter: what a kernel does with rows once it stands at them: its values by level (of the call, of a row, of an element) and its
// passes over the elements. Which rows, and in what order, is loop_emitter.cc's. Includes LLVM: for the code generator's own files only.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include <llvm/IR/Constants.h>

#include "backend/cpu/jit/accumulate.h"
#include "backend/cpu/jit/ir_loops.h"
#include "backend/cpu/jit/loop_arguments.h"
#include "backend/cpu/jit/loop_plan.h"
#include "backend/cpu/jit/vector_memory.h"
#include "support/error.h"

namespace ws::cpu {

using llvm::Value;

/// What is known of one row while it is swept.
struct Row {
  Values base;                // by access: address of the row's first element
  Values outer;               // index along each outer axis
  Value* index = nullptr;     // flattened
  int place = 0;              // among the rows of this sweep
  std::vector<Lanes> values;  // by instruction: row-level values
};
using Rows = std::vector<Row>;  // swept side by side

/// One vector of one row inside an iteration.
struct Spot {
  const Row* row = nullptr;
  Value* inner = nullptr;     // index of lane 0 along the inner axis
  std::vector<Lanes> values;  // by instruction: element-level values
};

class RowEmitter {
 public:
  RowEmitter(llvm::Module& module, llvm::IRBuilder<>& ir, IrLoops& loops, LoopArguments& args, const LoopKernel& kernel,
             const LoopPlan& plan, Isa isa)
      : kernel_(kernel), plan_(plan), ir_(ir), loops_(loops), vectors_(ir), memory_(module, ir, vectors_, isa), args_(args) {}

  /// What is the same for all rows, computed once, ahead of them. `scratch`: where passes leave values for later ones.
  void emit_call_level(Value* scratch) {
    scratch_ = scratch;
    call_values_.resize(kernel_.body.size());
    for (int i = 0; i < static_cast<int>(kernel_.body.size()); ++i) {
      const LoopInstr& in = instr(i);
      if (level(i) != Level::kCall) continue;
      Lanes& value = call_values_[static_cast<size_t>(i)];
      if (in.kind == Kind::kScalar) {
        // A scalar's word holds its computing type: a bf16 constant is an f32 that bf16 can hold.
        const DType dtype = kernel_.scalars[static_cast<size_t>(in.access)];
        Value* address = args_.scalar_address(in.access);
        value = memory_.load_splat(address, computing_type(dtype));
        value.is_bf16 = dtype == DType::bf16;
      } else if (in.kind == Kind::kOp) {
        std::vector<Lanes> operands;
        for (int operand : in.operands) operands.push_back(call_values_[static_cast<size_t>(operand)]);
        value = emit_op(in, operands, nullptr);
      }
    }
  }

  /// All passes over elements low..high-1 of these rows, side by side, and what each row stores.
  void process(Rows& rows, Value* low, Value* high) {
    for (Row& row : rows) row.values.resize(kernel_.body.size());
    const int num_passes = static_cast<int>(plan_.passes.size());
    for (int p = 0; p <= num_passes; ++p) {
      for (Row& row : rows) emit_row_level(row, p);
      if (p < num_passes) emit_pass(plan_.passes[static_cast<size_t>(p)], rows, low, high);
    }
    for (int i : plan_.row_stores)
      for (const Row& row : rows) {
        const LoopInstr& in = instr(i);
        memory_.store_one(value_of(in.operands[0], row), row.base[static_cast<size_t>(in.access)], dtype_of(in.access));
      }
  }

  /// The sums over rows begin.
  void clear_column_targets(const Row& row) {
    for (const LoopInstr& in : kernel_.body) {
      if (in.kind != Kind::kReduceColumn) continue;
      const DType dtype = dtype_of(in.access);
      const Lanes start = Accumulator(ir_, vectors_, dtype, in.is_max).start_lanes();
      sweep(constant(0), args_.inner_dim(), 1, false, {}, [&](Value* i, int, const Part& part, Values) -> Values {
        memory_.store(start, element(row.base[static_cast<size_t>(in.access)], in.access, i), dtype, Step::kUnit, nullptr, part);
        return {};
      });
    }
  }

 private:
  using Kind = LoopInstr::Kind;

  Value* constant(int64_t v) { return ir_.getInt64(static_cast<uint64_t>(v)); }
  Value* advance(Value* base, Value* bytes) { return ir_.CreateGEP(ir_.getInt8Ty(), base, bytes); }
  const LoopInstr& instr(int i) const { return kernel_.body[static_cast<size_t>(i)]; }
  const LoopAccess& access(int a) const { return kernel_.accesses[static_cast<size_t>(a)]; }
  DType dtype_of(int a) const { return access(a).dtype; }
  Level level(int i) const { return plan_.level[static_cast<size_t>(i)]; }

  Lanes emit_op(const LoopInstr& in, const std::vector<Lanes>& operands, const Position* position) {
    vectors_.begin(position);
    std::vector<ScalarBuilder::S> handles;
    for (const Lanes& lanes : operands) handles.push_back(vectors_.wrap(lanes));
    const Lanes result = vectors_.unwrap(in.op->emit(vectors_, handles, in.attrs));
    WS_ASSERT(result.dtype == computing_type(in.dtype), "{} emits {} for {}", in.op->name, name_of(result.dtype),
              name_of(in.dtype));
    return as_declared(result, in.dtype);
  }
  /// A bf16 value is rounded where the graph makes it; one from a product's tile, which is f32, where it is loaded. An f32 value that
  /// was bf16 before counts as any other: rounded again, a denormal that came from memory becomes zero, as it does op by op.
  Lanes as_declared(const Lanes& lanes, DType dtype) {
    if (dtype == DType::bf16) return vectors_.round_to_bf16(lanes);
    return {lanes.value, lanes.dtype};
  }

  const Lanes& value_of(int i, const Row& row) const {
    return level(i) == Level::kCall ? call_values_[static_cast<size_t>(i)] : row.values[static_cast<size_t>(i)];
  }
  const Lanes& value_of(int i, const Spot& spot) const {
    return level(i) == Level::kElement ? spot.values[static_cast<size_t>(i)] : value_of(i, *spot.row);
  }
  template <class Where>
  std::vector<Lanes> operands_of(const LoopInstr& in, const Where& where) const {
    std::vector<Lanes> out;
    for (int operand : in.operands) out.push_back(value_of(operand, where));
    return out;
  }

  void emit_row_level(Row& row, int depth) {
    for (int i = 0; i < static_cast<int>(kernel_.body.size()); ++i) {
      const LoopInstr& in = instr(i);
      if (level(i) != Level::kRow || plan_.depth[static_cast<size_t>(i)] != depth) continue;
      Lanes& value = row.values[static_cast<size_t>(i)];
      if (in.kind == Kind::kLoad) {
        value = as_declared(memory_.load_splat(row.base[static_cast<size_t>(in.access)], dtype_of(in.access)), in.dtype);
      } else if (in.kind == Kind::kFold) {
        value = emit_fold(in, {row.base[static_cast<size_t>(in.access)]},
                          [&](Value* address) { return memory_.load_splat(address, dtype_of(in.access)); })[0];
      } else if (in.kind == Kind::kOp) {
        value = emit_op(in, operands_of(in, row), nullptr);
      }
    }
  }

  /// Folds of values that start at each of `addresses`, in step with one another.
  template <class Load>
  std::vector<Lanes> emit_fold(const LoopInstr& in, Values addresses, Load&& load) {
    Accumulator accumulator(ir_, vectors_, in.dtype, in.is_max);
    Value* step = args_.fold_stride_bytes(in.access);
    const size_t n = addresses.size();
    Values carried = addresses;
    for (Value* address : addresses) carried.push_back(accumulator.encode(load(address).value));
    carried = loops_.loop("fold", constant(1), args_.fold_count(in.access), 1, carried, [&](Value*, Values v) {
      for (size_t s = 0; s < n; ++s) {
        v[s] = advance(v[s], step);
        v[n + s] = accumulator.add(v[n + s], load(v[s]).value, nullptr);
      }
      return v;
    });
    std::vector<Lanes> out;
    for (size_t s = 0; s < n; ++s) out.push_back(as_declared(accumulator.decode(carried[n + s]), in.dtype));
    return out;
  }

  // --- one pass over the elements --------------------------------------------------------------------------------------

  /// body(i, vectors, part, carried) for each group of `unroll` whole vectors, then for what is left, masked vector by vector;
  /// `in_one`: masked from the start, so that there is one body.
  template <class Body>
  Values sweep(Value* low, Value* high, int unroll, bool in_one, Values carried, Body&& body) {
    if (in_one)
      return loops_.loop("vectors", low, high, kLanes, carried,
                         [&](Value* i, const Values& v) { return body(i, 1, memory_.first(ir_.CreateSub(high, i), true), v); });
    const int64_t step = int64_t{kLanes} * unroll;
    Value* stop = ir_.CreateAdd(low, ir_.CreateAnd(ir_.CreateSub(high, low), constant(-step)));
    carried =
        loops_.loop("vectors", low, stop, step, carried, [&](Value* i, const Values& v) { return body(i, unroll, Part{}, v); });
    auto rest = [&](Value* i, const Values& v) { return body(i, 1, memory_.first(ir_.CreateSub(high, i)), v); };
    if (unroll == 1) return loops_.if_then("part", ir_.CreateICmpSLT(stop, high), carried, [&] { return rest(stop, carried); });
    return loops_.loop("part", stop, high, kLanes, carried, rest);
  }

  Accumulator accumulator_of(int i) { return {ir_, vectors_, instr(i).dtype, instr(i).is_max}; }

  bool has_masked_accesses(const LoopPass& pass) const {
    auto masked = [&](int i) { return instr(i).kind == Kind::kOp || memory_.has_masked_access(dtype_of(instr(i).access)); };
    return std::all_of(pass.computes.begin(), pass.computes.end(), masked) &&
           std::all_of(pass.stores.begin(), pass.stores.end(), masked);
  }

  /// Several rows fill an iteration by themselves.
  int unroll_of(const LoopPass& pass, const Rows& rows) const { return rows.size() > 1 ? 1 : pass.unroll; }
  /// Of one row. A maximum may use an accumulator for each vector of an iteration, as its order does not matter; a sum has one.
  int accumulators_of(int i, int unroll) const { return instr(i).is_max ? unroll : 1; }

  void emit_pass(const LoopPass& pass, Rows& rows, Value* low, Value* high) {
    const int unroll = unroll_of(pass, rows);
    auto body = [&](Value* i, int vectors, const Part& part, const Values& carried) {
      return emit_body(pass, rows, low, i, vectors, part, carried);
    };
    const bool in_one = pass.is_heavy && has_masked_accesses(pass);
    if (pass.reductions.empty()) {
      sweep(low, high, unroll, in_one, {}, body);
      return;
    }
    // By reduction, then by row.
    auto sweep_block = [&](Value* from, Value* to) {
      Values start;
      for (int i : pass.reductions)
        start.insert(start.end(), rows.size() * static_cast<size_t>(accumulators_of(i, unroll)), accumulator_of(i).start());
      const Values lanes = sweep(from, to, unroll, in_one, start, body);
      Values folded;
      size_t at = 0;
      for (int i : pass.reductions)
        for (size_t r = 0; r < rows.size(); ++r) {
          Value* whole = lanes[at++];
          for (int u = 1; u < accumulators_of(i, unroll); ++u) whole = accumulator_of(i).combine(whole, lanes[at++]);
          folded.push_back(accumulator_of(i).fold(whole));
        }
      return folded;
    };
    auto reduction_of = [&](size_t total) { return pass.reductions[total / rows.size()]; };
    Values totals;
    const bool has_sum = std::any_of(pass.reductions.begin(), pass.reductions.end(), [&](int i) { return !instr(i).is_max; });
    if (kernel_.walk == Walk::kFlatBlocks || !has_sum) {
      totals = sweep_block(low, high);
    } else {
      for (int i : pass.reductions) totals.insert(totals.end(), rows.size(), accumulator_of(i).identity());
      Value* stop = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, high, constant(1));  // an empty row has one empty block
      totals = loops_.loop("block", low, stop, kFlatBlock, totals, [&](Value* from, Values sums) {
        Value* to = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, high, ir_.CreateAdd(from, constant(kFlatBlock)));
        const Values folded = sweep_block(from, to);
        for (size_t t = 0; t < sums.size(); ++t) sums[t] = accumulator_of(reduction_of(t)).combine(sums[t], folded[t]);
        return sums;
      });
    }
    for (size_t t = 0; t < totals.size(); ++t) {
      const int i = reduction_of(t);
      rows[t % rows.size()].values[static_cast<size_t>(i)] =
          as_declared(accumulator_of(i).decode(vectors_.splat(totals[t])), instr(i).dtype);
    }
  }

  Value* element(Value* base, int a, Value* i) {
    switch (access(a).step) {
      case Step::kSplat:
      case Step::kStrided: return advance(base, ir_.CreateMul(i, args_.inner_stride_bytes(a)));
      case Step::kUnit:
      case Step::kSwapped: return ir_.CreateGEP(vectors_.memory_element(dtype_of(a)), base, i);
    }
    return base;
  }
  /// An element-level value into an access without inner stride can only be a row of one element; its stride serves.
  Step store_step(int a) const { return access(a).step == Step::kSplat ? Step::kStrided : access(a).step; }
  Value* stride_of(int a) {
    return access(a).step == Step::kStrided || access(a).step == Step::kSplat ? args_.inner_stride_bytes(a) : nullptr;
  }

  Value* scratch_address(int i, const Spot& spot, Value* low) {
    Value* length = kernel_.walk == Walk::kFlatBlocks
                        ? constant(kFlatBlock)
                        : ir_.CreateAnd(ir_.CreateAdd(args_.inner_dim(), constant(kLanes - 1)), constant(-kLanes));
    const int slot = plan_.slot[static_cast<size_t>(i)] * plan_.rows + spot.row->place;
    Value* start = advance(scratch_, ir_.CreateMul(length, constant(int64_t{8} * slot)));
    return ir_.CreateGEP(vectors_.memory_element(value_dtype(i)), start, ir_.CreateSub(spot.inner, low));
  }
  DType value_dtype(int i) const { return computing_type(instr(i).dtype); }

  Values emit_body(const LoopPass& pass, const Rows& rows, Value* low, Value* i, int vectors, const Part& part, Values carried) {
    std::vector<Spot> spots;  // by vector, then by row
    for (int u = 0; u < vectors; ++u) {
      Value* inner = u == 0 ? i : ir_.CreateAdd(i, constant(int64_t{kLanes} * u));
      for (const Row& row : rows) spots.push_back({&row, inner, std::vector<Lanes>(kernel_.body.size())});
    }
    emit_loads(pass, spots, low, part);
    if (&pass == plan_.prefetching_pass() && rows.size() == 1) emit_prefetches(spots);
    for (int v : pass.computes)
      if (instr(v).kind == Kind::kOp)
        for (Spot& spot : spots) {
          const Position position{spot.row->outer, spot.row->index, position_dim(instr(v)), spot.inner};
          spot.values[static_cast<size_t>(v)] = emit_op(instr(v), operands_of(instr(v), spot), &position);
        }
    for (int v : pass.saves)
      for (Spot& spot : spots)
        memory_.store(spot.values[static_cast<size_t>(v)], scratch_address(v, spot, low), value_dtype(v), Step::kUnit, nullptr,
                      Part{});
    emit_stores(pass, spots, part);
    emit_columns(pass, spots, rows.size(), part);
    accumulate(pass, spots, rows, part, carried);
    return carried;
  }

  /// While this pass computes, what the first pass over the next row reads comes from memory, and what the last one over this row writes.
  void emit_prefetches(const std::vector<Spot>& spots) {
    const auto prefetch = [&](int a, bool is_write, int64_t rows_ahead) {
      if (access(a).step != Step::kUnit) return;
      Value* ahead = ir_.CreateMul(args_.stride_bytes(a, kernel_.rank - 2), constant(rows_ahead));
      for (const Spot& spot : spots) {
        Value* wanted = ir_.CreateICmpSLE(args_.inner_dim(), constant(plan_.max_prefetched_elements));
        Value* address = element(spot.row->base[static_cast<size_t>(a)], a, ir_.CreateSelect(wanted, spot.inner, constant(0)));
        memory_.prefetch(advance(address, ahead), is_write);
      }
    };
    for (int v : plan_.passes.front().computes)
      if (instr(v).kind == Kind::kLoad) prefetch(instr(v).access, false, 1);
    for (int v : plan_.passes.back().stores) prefetch(instr(v).access, true, 0);
  }

  Value* position_dim(const LoopInstr& in) { return in.op->has(kIndexed) ? args_.inner_dim() : nullptr; }

  // All loads of an iteration come first: a store may write, in place, what one of them reads.
  void emit_loads(const LoopPass& pass, std::vector<Spot>& spots, Value* low, const Part& part) {
    for (int v : pass.reloads)
      for (Spot& spot : spots) {
        Lanes& value = spot.values[static_cast<size_t>(v)];
        value = memory_.load(scratch_address(v, spot, low), value_dtype(v), Step::kUnit, nullptr, Part{});
        value.is_bf16 = instr(v).dtype == DType::bf16;
      }
    for (int v : pass.computes) {
      const LoopInstr& in = instr(v);
      if (in.kind == Kind::kOp) continue;
      auto address = [&](const Spot& spot) {
        return element(spot.row->base[static_cast<size_t>(in.access)], in.access, spot.inner);
      };
      auto load = [&](Value* at) {
        return memory_.load(at, dtype_of(in.access), access(in.access).step, stride_of(in.access), part);
      };
      if (in.kind == Kind::kLoad) {
        for (Spot& spot : spots) spot.values[static_cast<size_t>(v)] = as_declared(load(address(spot)), in.dtype);
      } else {
        Values addresses;
        for (const Spot& spot : spots) addresses.push_back(address(spot));
        const std::vector<Lanes> folded = emit_fold(in, addresses, load);
        for (size_t s = 0; s < spots.size(); ++s) spots[s].values[static_cast<size_t>(v)] = folded[s];
      }
    }
  }

  void emit_stores(const LoopPass& pass, std::vector<Spot>& spots, const Part& part) {
    for (int v : pass.stores) {
      const LoopInstr& in = instr(v);
      for (Spot& spot : spots)
        memory_.store(value_of(in.operands[0], spot),
                      element(spot.row->base[static_cast<size_t>(in.access)], in.access, spot.inner), dtype_of(in.access),
                      store_step(in.access), stride_of(in.access), part);
    }
  }

  // Rows ascending for each column; the target stays in the innermost cache.
  void emit_columns(const LoopPass& pass, const std::vector<Spot>& spots, size_t num_rows, const Part& part) {
    for (int v : pass.columns) {
      const LoopInstr& in = instr(v);
      Accumulator accumulator(ir_, vectors_, dtype_of(in.access), in.is_max);
      for (size_t u = 0; u < spots.size(); u += num_rows) {
        Value* target = element(spots[u].row->base[static_cast<size_t>(in.access)], in.access, spots[u].inner);
        Value* sum = accumulator.encode(memory_.load(target, dtype_of(in.access), Step::kUnit, nullptr, part).value);
        for (size_t r = 0; r < num_rows; ++r) sum = accumulator.add(sum, value_of(in.operands[0], spots[u + r]).value, nullptr);
        memory_.store(accumulator.decode(sum), target, dtype_of(in.access), Step::kUnit, nullptr, part);
      }
    }
  }

  void accumulate(const LoopPass& pass, const std::vector<Spot>& spots, const Rows& rows, const Part& part, Values& carried) {
    const int unroll = unroll_of(pass, rows);
    size_t at = 0;
    for (int i : pass.reductions) {
      const auto width = static_cast<size_t>(accumulators_of(i, unroll));
      for (size_t s = 0; s < spots.size(); ++s) {
        const size_t row = s % rows.size(), vector = s / rows.size();
        Value*& lanes = carried[at + row * width + (width > 1 ? vector : 0)];
        lanes = accumulator_of(i).add(lanes, value_of(instr(i).operands[0], spots[s]).value, part.mask);
      }
      at += width * rows.size();
    }
  }

  const LoopKernel& kernel_;
  const LoopPlan& plan_;
  llvm::IRBuilder<>& ir_;
  IrLoops& loops_;
  VectorScalarBuilder vectors_;
  VectorMemory memory_;
  LoopArguments& args_;
  Value* scratch_ = nullptr;
  std::vector<Lanes> call_values_;
};

}  // namespace ws::cpu
