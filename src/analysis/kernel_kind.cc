#include "analysis/kernel_kind.h"

#include <algorithm>
#include <cmath>

namespace ws {
namespace {

bool reduces(const LoopCall& loop) {
  return std::any_of(loop.kernel->body.begin(), loop.kernel->body.end(), [](const LoopInstr& i) {
    return i.kind == LoopInstr::Kind::kFold || i.kind == LoopInstr::Kind::kReduceRow || i.kind == LoopInstr::Kind::kReduceColumn;
  });
}

std::string kind_of_library(const LibraryCall& call) {
  if (call.op == nullptr) return "movement";  // a copy
  switch (call.op->lowering) {
    case Lowering::kAttention:
    case Lowering::kAttentionGrad: return "attention";
    case Lowering::kCheck: return "check";
    default: return "movement";
  }
}

}  // namespace

std::string kind_of(const KernelCall& call) {
  if (std::holds_alternative<GemmCall>(call.what)) return "matmul";
  if (const auto* loop = std::get_if<LoopCall>(&call.what)) return reduces(*loop) ? "reduction" : "elementwise";
  return kind_of_library(std::get<LibraryCall>(call.what));
}

RateKey rate_key(const Program& program, const KernelCall& call) {
  RateKey key{kind_of(call)};
  if (const auto* gemm = std::get_if<GemmCall>(&call.what)) {
    key.size = std::cbrt(static_cast<double>(gemm->m) * static_cast<double>(gemm->n) * static_cast<double>(gemm->k));
    if (program.buffers[static_cast<size_t>(gemm->a.buffer)].dtype == DType::bf16 || gemm->bf16_parts > 0) key.kind += " bf16";
    if (gemm->bf16_parts == 2) key.times = 3;
  } else if (key.kind == "attention") {
    const auto& library = std::get<LibraryCall>(call.what);
    if (!library.views.empty() && program.buffers[static_cast<size_t>(library.views[0].buffer)].dtype == DType::bf16)
      key.kind += " bf16";
  }
  return key;
}

}  // namespace ws
