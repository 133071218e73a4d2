#include "backend/cpu/attention/attention_loops.h"

#include "backend/cpu/attention/attention.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

// Appends instructions; each method gives the id of the value.
class Rows {
 public:
  explicit Rows(size_t num_scalars) {
    kernel_.walk = Walk::kRows;
    kernel_.rank = 2;
    kernel_.scalars.assign(num_scalars, DType::f32);
  }
  int load(int access, Step step, DType dtype = DType::f32) {
    const int id = add(Kind::kLoad, {}, declare(access, step, dtype));
    kernel_.body.back().dtype = dtype;
    return id;
  }
  int scalar(int slot) { return add(Kind::kScalar, {}, slot); }
  int op(std::string_view name, std::vector<int> operands, DType dtype = DType::f32) {
    const int id = add(Kind::kOp, std::move(operands));
    kernel_.body.back().dtype = dtype;
    kernel_.body.back().op = find_op(name);
    WS_ASSERT(kernel_.body.back().op != nullptr, "no op {}", name);
    return id;
  }
  /// The value rounded to `dtype`, as an f32.
  int rounded(int value, DType dtype) { return dtype == DType::f32 ? value : cast(cast(value, dtype), DType::f32); }
  int reciprocal(int row_sum, int one) { return op("div", {one, row_sum}); }
  int reduce(bool is_max, int value) {
    const int id = add(Kind::kReduceRow, {value});
    kernel_.body.back().is_max = is_max;
    return id;
  }
  void store(int access, Step step, int value) { add(Kind::kStore, {value}, declare(access, step)); }
  std::shared_ptr<const LoopKernel> finish() { return std::make_shared<const LoopKernel>(std::move(kernel_)); }

 private:
  using Kind = LoopInstr::Kind;
  int add(Kind kind, std::vector<int> operands, int access = -1) {
    LoopInstr instr;
    instr.kind = kind;
    instr.operands = std::move(operands);
    instr.access = access;
    kernel_.body.push_back(std::move(instr));
    return static_cast<int>(kernel_.body.size()) - 1;
  }
  int cast(int value, DType dtype) {
    const int id = op("cast", {value}, dtype);
    kernel_.body.back().attrs.set("dtype", dtype);
    return id;
  }
  int declare(int access, Step step, DType dtype = DType::f32) {
    WS_ASSERT(access == static_cast<int>(kernel_.accesses.size()), "accesses are declared in order");
    kernel_.accesses.push_back({dtype, step});
    return access;
  }
  LoopKernel kernel_;
};

}  // namespace

std::shared_ptr<const LoopKernel> SoftmaxLoop::kernel(DType dtype) {
  Rows rows(kNumScalars);
  const int scaled = rows.op("mul", {rows.load(kScores, Step::kUnit), rows.scalar(kScale)});
  const int row_max = rows.reduce(true, scaled);
  const int e = rows.op("exp", {rows.op("sub", {scaled, row_max})});
  const int row_sum = rows.reduce(false, e);
  rows.store(kWeights, Step::kUnit, rows.rounded(rows.op("mul", {e, rows.reciprocal(row_sum, rows.scalar(kOne))}), dtype));
  rows.store(kRowMax, Step::kSplat, row_max);
  rows.store(kRowSum, Step::kSplat, row_sum);
  return rows.finish();
}

std::shared_ptr<const LoopKernel> SoftmaxGradLoop::kernel(DType dtype) {
  Rows rows(kNumScalars);
  const int scores = rows.load(kScores, Step::kUnit), grad_p = rows.load(kGradWeights, Step::kUnit);
  const int row_max = rows.load(kRowMax, Step::kSplat), row_sum = rows.load(kRowSum, Step::kSplat), scale = rows.scalar(kScale);
  const int e = rows.op("exp", {rows.op("sub", {rows.op("mul", {scores, scale}), row_max})});
  const int p = rows.op("mul", {e, rows.reciprocal(row_sum, rows.scalar(kOne))});
  const int mean = rows.reduce(false, rows.op("mul", {grad_p, p}));
  const int grad_t = rows.op("mul", {rows.op("sub", {grad_p, mean}), p});
  rows.store(kWeights, Step::kUnit, rows.rounded(p, dtype));
  rows.store(kGradScores, Step::kUnit, rows.rounded(rows.op("mul", {grad_t, scale}), dtype));
  return rows.finish();
}

std::shared_ptr<const LoopKernel> MaskedSoftmaxLoop::kernel(DType dtype) {
  Rows rows(kNumScalars);
  const int scores = rows.load(kScores, Step::kUnit), seen = rows.load(kSeen, Step::kUnit, DType::boolean);
  const int kept = rows.load(kKept, Step::kUnit, DType::boolean), nothing = rows.scalar(kMinusInfinity),
            zero = rows.scalar(kZero);
  const int scaled = rows.op("select", {seen, rows.op("mul", {scores, rows.scalar(kScale)}), nothing});
  const int high = rows.reduce(true, scaled);
  const int row_max = rows.op("select", {rows.op("eq", {high, nothing}, DType::boolean), zero, high});
  const int e = rows.op("exp", {rows.op("sub", {scaled, row_max})});
  const int row_sum = rows.reduce(false, e);
  const int divisor = rows.op("select", {rows.op("eq", {row_sum, zero}, DType::boolean), rows.scalar(kOne), row_sum});
  const int p = rows.op("mul", {e, rows.reciprocal(divisor, rows.scalar(kOne))});
  const int w = rows.op("select", {kept, rows.op("mul", {p, rows.scalar(kKeepFactor)}), zero});
  rows.store(kWeights, Step::kUnit, rows.rounded(w, dtype));
  rows.store(kRowMax, Step::kSplat, row_max);
  rows.store(kRowSum, Step::kSplat, row_sum);
  return rows.finish();
}

std::shared_ptr<const LoopKernel> MaskedSoftmaxGradLoop::kernel(DType dtype) {
  Rows rows(kNumScalars);
  const int scores = rows.load(kScores, Step::kUnit), grad_w = rows.load(kGradWeights, Step::kUnit);
  const int seen = rows.load(kSeen, Step::kUnit, DType::boolean), kept = rows.load(kKept, Step::kUnit, DType::boolean);
  const int row_max = rows.load(kRowMax, Step::kSplat), row_sum = rows.load(kRowSum, Step::kSplat);
  const int scale = rows.scalar(kScale), zero = rows.scalar(kZero), factor = rows.scalar(kKeepFactor);
  const int scaled = rows.op("select", {seen, rows.op("mul", {scores, scale}), rows.scalar(kMinusInfinity)});
  const int e = rows.op("exp", {rows.op("sub", {scaled, row_max})});
  const int divisor = rows.op("select", {rows.op("eq", {row_sum, zero}, DType::boolean), rows.scalar(kOne), row_sum});
  const int p = rows.op("mul", {e, rows.reciprocal(divisor, rows.scalar(kOne))});
  const int grad_p = rows.op("select", {kept, rows.op("mul", {grad_w, factor}), zero});
  const int mean = rows.reduce(false, rows.op("mul", {grad_p, p}));
  const int grad_t = rows.op("select", {seen, rows.op("mul", {rows.op("sub", {grad_p, mean}), p}), zero});
  const int w = rows.op("select", {kept, rows.op("mul", {p, factor}), zero});
  rows.store(kWeights, Step::kUnit, rows.rounded(w, dtype));
  rows.store(kGradScores, Step::kUnit, rows.rounded(rows.op("mul", {grad_t, scale}), dtype));
  return rows.finish();
}

std::vector<std::shared_ptr<const LoopKernel>> attention_loops(bool backward, DType dtype, GemmIsa isa, bool masked) {
  const DType stored = has_bf16_pairs(dtype, isa) ? DType::f32 : dtype;  // rounded where they become pairs
  if (masked) return {backward ? MaskedSoftmaxGradLoop::kernel(stored) : MaskedSoftmaxLoop::kernel(stored)};
  return {backward ? SoftmaxGradLoop::kernel(stored) : SoftmaxLoop::kernel(stored)};
}

}  // namespace ws::cpu
