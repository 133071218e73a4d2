#include "backend/cpu/jit/loop_plan.h"

#include <algorithm>

#include "backend/cpu/jit/fingerprint.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

using Kind = LoopInstr::Kind;

constexpr int kSlowLoadWeight = 24;  // sixteen loads, in operations
constexpr int kHeavyWeight = 100;    // operations of a body that is not worth compiling twice
constexpr int kWeightOfFourRows = 16, kWeightOfTwoRows = 48;
constexpr int64_t kLongRow = 2048,
                  kVeryLongRow = 1 << 20;  // elements; where prefetching a row of little or much arithmetic stops paying
constexpr int kRecomputeLimit = 10;        // cheap ops that are computed again rather than kept

class Planner {
 public:
  explicit Planner(const LoopKernel& kernel) : kernel_(kernel), count_(static_cast<int>(kernel.body.size())) {}

  LoopPlan plan() {
    check();
    find_levels();
    find_passes();
    for (LoopPass& pass : plan_.passes) {
      pass.unroll = unroll_of(pass);
      pass.is_heavy = weight_of(pass) >= kHeavyWeight && !has_slow_load(pass);
    }
    plan_.rows = rows_of_sweep();
    choose_prefetching_pass();
    return std::move(plan_);
  }

 private:
  const LoopInstr& instr(int i) const { return kernel_.body[static_cast<size_t>(i)]; }
  Level& level(int i) { return plan_.level[static_cast<size_t>(i)]; }
  int& depth(int i) { return plan_.depth[static_cast<size_t>(i)]; }
  int& slot(int i) { return plan_.slot[static_cast<size_t>(i)]; }
  const LoopAccess& access(const LoopInstr& in) const { return kernel_.accesses[static_cast<size_t>(in.access)]; }

  void check() const {
    WS_ASSERT(kernel_.rank >= 1 && kernel_.rank <= kMaxRank, "rank {}", kernel_.rank);
    WS_ASSERT(kernel_.walk != Walk::kFlatBlocks || kernel_.rank == 1, "flat blocks are of rank 1");
    WS_ASSERT(kernel_.walk != Walk::kRowBlocks || kernel_.rank >= 2, "row blocks need two dims");
    for (int i = 0; i < count_; ++i) {
      const LoopInstr& in = instr(i);
      for (int operand : in.operands) {
        WS_ASSERT(operand >= 0 && operand < i, "operand {} of instruction {}", operand, i);
        const Kind kind = instr(operand).kind;
        WS_ASSERT(kind != Kind::kStore && kind != Kind::kReduceColumn, "instruction {} reads {}, which has no value", i, operand);
      }
      switch (in.kind) {
        case Kind::kLoad:
        case Kind::kFold: check_access(i); break;
        case Kind::kStore:
          check_access(i);
          check_one_operand(i);
          break;
        case Kind::kScalar:
          WS_ASSERT(in.access >= 0 && in.access < static_cast<int>(kernel_.scalars.size()), "instruction {}", i);
          break;
        case Kind::kOp: WS_ASSERT(in.op && in.op->emit, "instruction {}: an op that has no emit", i); break;
        case Kind::kReduceRow:
          check_one_operand(i);
          WS_ASSERT(kernel_.walk != Walk::kElements, "instruction {}: a reduction in a kernel of elements", i);
          break;
        case Kind::kReduceColumn:
          check_access(i);
          check_one_operand(i);
          WS_ASSERT(kernel_.walk == Walk::kRowBlocks && access(in).dtype != DType::bf16 && access(in).step == Step::kUnit,
                    "instruction {}", i);
          break;
      }
    }
  }
  void check_access(int i) const {
    WS_ASSERT(instr(i).access >= 0 && instr(i).access < static_cast<int>(kernel_.accesses.size()), "access of instruction {}", i);
  }
  void check_one_operand(int i) const { WS_ASSERT(instr(i).operands.size() == 1, "instruction {}", i); }

  void find_levels() {
    plan_.level.assign(static_cast<size_t>(count_), Level::kCall);
    plan_.depth.assign(static_cast<size_t>(count_), 0);
    plan_.slot.assign(static_cast<size_t>(count_), -1);
    for (int i = 0; i < count_; ++i) {
      const LoopInstr& in = instr(i);
      for (int operand : in.operands) {
        level(i) = std::max(level(i), level(operand));
        depth(i) = std::max(depth(i), depth(operand));
      }
      switch (in.kind) {
        case Kind::kLoad:
        case Kind::kFold: level(i) = access(in).step == Step::kSplat ? Level::kRow : Level::kElement; break;
        case Kind::kScalar: break;
        case Kind::kOp:
          if (in.op->has(kIndexed)) level(i) = Level::kElement;
          break;
        case Kind::kReduceRow:
          level(i) = Level::kRow;
          ++depth(i);
          break;
        case Kind::kReduceColumn: level(i) = Level::kElement; break;
        case Kind::kStore:
          level(i) = level(in.operands[0]) != Level::kElement && access(in).step == Step::kSplat ? Level::kRow : Level::kElement;
          break;
      }
    }
  }

  // Stores wait for the last pass: they may overwrite, in place, what earlier passes read.
  void find_passes() {
    int num_passes = 0;
    for (int i = 0; i < count_; ++i) {
      const LoopInstr& in = instr(i);
      if (in.kind == Kind::kReduceRow) num_passes = std::max(num_passes, depth(i));
      if (in.kind == Kind::kReduceColumn || (in.kind == Kind::kStore && level(i) == Level::kElement))
        num_passes = std::max(num_passes, depth(i) + 1);
    }
    plan_.passes.resize(static_cast<size_t>(num_passes));
    for (int i = 0; i < count_; ++i) {
      const LoopInstr& in = instr(i);
      if (in.kind == Kind::kReduceRow) plan_.passes[static_cast<size_t>(depth(i) - 1)].reductions.push_back(i);
      if (in.kind == Kind::kReduceColumn) plan_.passes.back().columns.push_back(i);
      if (in.kind == Kind::kStore && level(i) == Level::kElement) plan_.passes.back().stores.push_back(i);
      if (in.kind == Kind::kStore && level(i) == Level::kRow) plan_.row_stores.push_back(i);
    }
    find_recompute_cost();
    first_pass_.assign(static_cast<size_t>(count_), -1);
    for (int p = 0; p < num_passes; ++p) {
      LoopPass& pass = plan_.passes[static_cast<size_t>(p)];
      std::vector<bool> seen(static_cast<size_t>(count_), false);
      for (const auto* roots : {&pass.reductions, &pass.stores, &pass.columns})
        for (int root : *roots) demand(instr(root).operands[0], p, seen);
      std::sort(pass.computes.begin(), pass.computes.end());
      std::sort(pass.reloads.begin(), pass.reloads.end());
    }
  }

  void demand(int i, int p, std::vector<bool>& seen) {
    if (level(i) != Level::kElement || seen[static_cast<size_t>(i)]) return;
    seen[static_cast<size_t>(i)] = true;
    int& first = first_pass_[static_cast<size_t>(i)];
    if (first >= 0 && keep_[static_cast<size_t>(i)]) {
      if (slot(i) < 0) {
        slot(i) = plan_.num_slots++;
        plan_.passes[static_cast<size_t>(first)].saves.push_back(i);
      }
      plan_.passes[static_cast<size_t>(p)].reloads.push_back(i);
      return;
    }
    if (first < 0) first = p;
    for (int operand : instr(i).operands) demand(operand, p, seen);
    plan_.passes[static_cast<size_t>(p)].computes.push_back(i);
  }

  void find_recompute_cost() {
    keep_.assign(static_cast<size_t>(count_), false);
    std::vector<int> cost(static_cast<size_t>(count_), 0);
    for (int i = 0; i < count_; ++i) {
      if (level(i) != Level::kElement) continue;
      int& c = cost[static_cast<size_t>(i)];
      c = 1;
      for (int operand : instr(i).operands) c += cost[static_cast<size_t>(operand)];
      const LoopInstr& in = instr(i);
      if (is_slow_load(in) || (in.kind == Kind::kOp && (in.op->has(kExpensive) || c > kRecomputeLimit))) {
        keep_[static_cast<size_t>(i)] = true;
        c = 1;
      }
    }
  }

  int weight_of(const LoopPass& pass) const {
    int weight = 0;
    for (int i : pass.computes) {
      const LoopInstr& in = instr(i);
      if (in.kind == Kind::kOp) weight += emitted_operations(kernel_, in);
      if (in.kind == Kind::kLoad && access(in).step == Step::kStrided) weight += kSlowLoadWeight;
      if (in.kind == Kind::kLoad && (access(in).dtype == DType::bf16 || access(in).step == Step::kSwapped)) weight += 1;
    }
    return weight;
  }

  // Only light bodies gain from more than one vector an iteration; the others hide latency by themselves and would only compile longer.
  int unroll_of(const LoopPass& pass) const {
    const int weight = weight_of(pass);
    for (int i : pass.computes)
      if (instr(i).kind == Kind::kFold) return weight <= 8 ? 4 : 2;
    bool has_max = false;
    for (int i : pass.reductions) has_max |= instr(i).is_max;
    if (has_max && weight <= 4) return 4;
    return weight <= 2 ? 4 : weight <= 8 ? 2 : 1;
  }

  // Chains of heavy bodies overlap by themselves; more rows would spill registers and compile longer.
  int rows_of_sweep() const {
    if (kernel_.walk != Walk::kRows && kernel_.walk != Walk::kRowBlocks) return 1;
    int weight = 0;
    for (const LoopPass& pass : plan_.passes) {
      if (has_slow_load(pass)) return 1;
      weight = std::max(weight, weight_of(pass));
    }
    return weight <= kWeightOfFourRows ? 4 : weight <= kWeightOfTwoRows ? 2 : 1;
  }

  // A row's first pass waits for what it reads, its last one for what it writes; memory is idle during those between. The heaviest of them
  // asks ahead. Where even that one is light, long rows stream well by themselves.
  void choose_prefetching_pass() {
    const auto num_passes = static_cast<int>(plan_.passes.size());
    if (kernel_.rank < 2) return;
    int most = 0;
    for (int p = 1; p + 1 < num_passes; ++p) {
      const int weight = weight_of(plan_.passes[static_cast<size_t>(p)]);
      if (weight <= most) continue;
      most = weight;
      plan_.prefetching = p;
    }
    plan_.max_prefetched_elements = most <= kWeightOfFourRows ? kLongRow : kVeryLongRow;
  }

  bool has_slow_load(const LoopPass& pass) const {
    return std::any_of(pass.computes.begin(), pass.computes.end(), [&](int i) { return is_slow_load(instr(i)); });
  }
  bool is_slow_load(const LoopInstr& in) const {
    return in.kind == Kind::kFold || (in.kind == Kind::kLoad && access(in).step == Step::kStrided);
  }

  const LoopKernel& kernel_;
  int count_;
  LoopPlan plan_;
  std::vector<bool> keep_;       // worth a scratch row where a later pass needs it
  std::vector<int> first_pass_;  // where the value is first computed
};

}  // namespace

LoopPlan plan_loop(const LoopKernel& kernel) { return Planner(kernel).plan(); }

}  // namespace ws::cpu
