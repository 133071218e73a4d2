#include "schedule/loop_kernel.h"

#include <fmt/core.h>

namespace ws {
namespace {

const char* name_of(Walk walk) {
  switch (walk) {
    case Walk::kElements: return "elements";
    case Walk::kRows: return "rows";
    case Walk::kRowBlocks: return "row_blocks";
    case Walk::kFlatBlocks: return "flat_blocks";
  }
  return "?";
}

const char* name_of(Step step) {
  switch (step) {
    case Step::kSplat: return "splat";
    case Step::kUnit: return "unit";
    case Step::kStrided: return "strided";
    case Step::kSwapped: return "swapped";
  }
  return "?";
}

const char* name_of(LoopInstr::Kind kind) {
  switch (kind) {
    case LoopInstr::Kind::kLoad: return "load";
    case LoopInstr::Kind::kFold: return "fold";
    case LoopInstr::Kind::kScalar: return "scalar";
    case LoopInstr::Kind::kOp: return "op";
    case LoopInstr::Kind::kReduceRow: return "reduce_row";
    case LoopInstr::Kind::kReduceColumn: return "reduce_column";
    case LoopInstr::Kind::kStore: return "store";
  }
  return "?";
}

}  // namespace

std::string LoopKernel::key() const {
  std::string text = fmt::format("loop {} rank={}\n", name_of(walk), rank);
  for (const LoopAccess& a : accesses) text += fmt::format("access {} {}\n", ws::name_of(a.dtype), name_of(a.step));
  for (DType d : scalars) text += fmt::format("scalar {}\n", ws::name_of(d));
  for (size_t i = 0; i < body.size(); ++i) {
    const LoopInstr& in = body[i];
    text += fmt::format("%{} = {} {}", i, name_of(in.kind), ws::name_of(in.dtype));
    if (in.op) text += fmt::format(" {}{}", in.op->name, in.attrs.str());
    if (in.is_max) text += " max";
    for (int operand : in.operands) text += fmt::format(" %{}", operand);
    if (in.access >= 0) text += fmt::format(" @{}", in.access);
    text += '\n';
  }
  return text;
}

}  // namespace ws
