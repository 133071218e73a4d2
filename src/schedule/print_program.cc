// Text of a Program for DUMP, EXPLAIN=fusion and `inspect`.
#include <fmt/format.h>

#include "schedule/program.h"

namespace ws {
namespace {

std::string text(const Program& p, const View& v) {
  if (v.buffer < 0) return "tile";
  const ProgramBuffer& b = p.buffers[static_cast<size_t>(v.buffer)];
  std::string s = fmt::format("b{}", v.buffer);
  if (v.offset != 0) s += fmt::format("+{}", v.offset);
  s += fmt::format(":{}(", name_of(b.dtype));
  for (int i = 0; i < v.dims.rank(); ++i)
    s += fmt::format("{}{}*{}", i ? ", " : "", v.dims[i], v.strides[static_cast<size_t>(i)]);
  return s + ")";
}

std::string text(const Program& p, const LoopCall& loop) {
  static constexpr const char* kWalks[] = {"elements", "rows", "row blocks", "flat blocks"};
  std::string s = fmt::format("loop over {} [", kWalks[static_cast<int>(loop.kernel->walk)]);
  for (size_t i = 0; i < loop.dims.size(); ++i) s += fmt::format("{}{}", i ? ", " : "", loop.dims[i]);
  s += "]";
  for (const LoopInstr& i : loop.kernel->body) {
    if (i.access < 0 || i.kind == LoopInstr::Kind::kScalar) continue;
    const bool writes = i.kind == LoopInstr::Kind::kStore || i.kind == LoopInstr::Kind::kReduceColumn;
    s += (writes ? " -> " : " <- ") + text(p, loop.accesses[static_cast<size_t>(i.access)]);
  }
  return s;
}

}  // namespace

std::string print(const Program& p) {
  std::string s = fmt::format("program {}: {} kernels, {} buffers\n", p.name, p.calls.size(), p.buffers.size());
  for (size_t c = 0; c < p.calls.size(); ++c) {
    const KernelCall& call = p.calls[c];
    s += fmt::format("{:4} {}{}\n     ", c, call.name, call.path.empty() ? "" : "  @" + call.path);
    if (const auto* loop = std::get_if<LoopCall>(&call.what)) s += text(p, *loop);
    if (const auto* gemm = std::get_if<GemmCall>(&call.what)) {
      s += fmt::format("gemm {}x[{}x{}]x[{}x{}] <- {} <- {}", gemm->batch, gemm->m, gemm->k, gemm->k, gemm->n, text(p, gemm->a),
                       text(p, gemm->b));
      if (gemm->bf16_parts > 0) s += fmt::format(" in {} bf16 part{}", gemm->bf16_parts, gemm->bf16_parts == 1 ? "" : "s");
      s += gemm->store ? "\n       store hole: " + text(p, *gemm->store) : " -> " + text(p, gemm->c);
    }
    if (const auto* library = std::get_if<LibraryCall>(&call.what)) {
      s += library->op == nullptr ? "copy" : std::string(library->op->name);
      for (const View& v : library->views) s += " " + text(p, v);
    }
    s += fmt::format("\n     cut here: {}; {:.3g} MFLOP, {:.3g} MB\n", call.reason, call.cost.flops / 1e6, call.cost.bytes / 1e6);
  }
  return s;
}

}  // namespace ws
