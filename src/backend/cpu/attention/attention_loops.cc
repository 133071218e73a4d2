#include "backend/cpu/attention/attention_loops.h"

#include "backend/cpu/attention/attention.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

// Appends instructions; each method gives the id of the value.
class Rows {
 public:
  Rows() {
    kernel_.walk = Walk::kRows;
    kernel_.rank = 2;
    kernel_.scalars = {DType::f32};
  }
  int load(int access, Step step) { return add(Kind::kLoad, {}, declare(access, step)); }
  int scalar() { return add(Kind::kScalar, {}, 0); }
  int op(std::string_view name, std::vector<int> operands) {
    const int id = add(Kind::kOp, std::move(operands));
    kernel_.body.back().op = find_op(name);
    WS_ASSERT(kernel_.body.back().op != nullptr, "no op {}", name);
    return id;
  }
  /// The value rounded to `dtype`, as an f32.
  int rounded(int value, DType dtype) { return dtype == DType::f32 ? value : cast(cast(value, dtype), DType::f32); }
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
    const int id = op("cast", {value});
    kernel_.body.back().dtype = dtype;
    kernel_.body.back().attrs.set("dtype", dtype);
    return id;
  }
  int declare(int access, Step step) {
    WS_ASSERT(access == static_cast<int>(kernel_.accesses.size()), "accesses are declared in order");
    kernel_.accesses.push_back({DType::f32, step});
    return access;
  }
  LoopKernel kernel_;
};

}  // namespace

std::shared_ptr<const LoopKernel> SoftmaxLoop::kernel(DType dtype) {
  Rows rows;
  const int scaled = rows.op("mul", {rows.load(kScores, Step::kUnit), rows.scalar()});
  const int row_max = rows.reduce(true, scaled);
  const int e = rows.op("exp", {rows.op("sub", {scaled, row_max})});
  const int row_sum = rows.reduce(false, e);
  rows.store(kWeights, Step::kUnit, rows.rounded(rows.op("div", {e, row_sum}), dtype));
  rows.store(kRowMax, Step::kSplat, row_max);
  rows.store(kRowSum, Step::kSplat, row_sum);
  return rows.finish();
}

std::shared_ptr<const LoopKernel> SoftmaxGradLoop::kernel(DType dtype) {
  Rows rows;
  const int scores = rows.load(kScores, Step::kUnit), grad_p = rows.load(kGradWeights, Step::kUnit);
  const int row_max = rows.load(kRowMax, Step::kSplat), row_sum = rows.load(kRowSum, Step::kSplat), scale = rows.scalar();
  const int e = rows.op("exp", {rows.op("sub", {rows.op("mul", {scores, scale}), row_max})});
  const int p = rows.op("div", {e, row_sum});
  const int mean = rows.reduce(false, rows.op("mul", {grad_p, p}));
  const int grad_t = rows.op("mul", {rows.op("sub", {grad_p, mean}), p});
  rows.store(kWeights, Step::kUnit, rows.rounded(p, dtype));
  rows.store(kGradScores, Step::kUnit, rows.rounded(rows.op("mul", {grad_t, scale}), dtype));
  return rows.finish();
}

std::vector<std::shared_ptr<const LoopKernel>> attention_loops(bool backward, DType dtype) {
  return {backward ? SoftmaxGradLoop::kernel(dtype) : SoftmaxLoop::kernel(dtype)};
}

}  // namespace ws::cpu
