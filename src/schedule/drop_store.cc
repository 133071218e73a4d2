#include "schedule/drop_store.h"

#include <algorithm>

namespace ws {
namespace {

using Kind = LoopInstr::Kind;
size_t at(int i) { return static_cast<size_t>(i); }

bool has_access(const LoopInstr& i) { return i.access >= 0 && i.kind != Kind::kScalar; }
bool reduces(const LoopInstr& i) { return i.kind == Kind::kReduceRow || i.kind == Kind::kReduceColumn; }

double window_bytes(const View& v, DType dtype) {
  double count = 1;
  for (int i = 0; i < v.dims.rank(); ++i)
    if (v.strides[at(i)] != 0) count *= static_cast<double>(v.dims[i]);
  return count * static_cast<double>(size_of(dtype));
}

/// By instruction: whether something other than a store to `buffer` needs it. Empty where the stores cannot go.
std::vector<bool> needed_without(const LoopCall& loop, int buffer) {
  const std::vector<LoopInstr>& body = loop.kernel->body;
  const auto buffer_of = [&](const LoopInstr& i) { return loop.accesses[at(i.access)].buffer; };
  std::vector<bool> needed(body.size(), false);
  bool drops = false, writes = false, reduced = false, reads_tile = false;
  for (size_t i = body.size(); i-- > 0;) {
    const LoopInstr& in = body[i];
    const bool touches = has_access(in) && buffer_of(in) == buffer;
    if (touches && in.kind != Kind::kStore) return {};
    drops |= touches;
    if (!touches && (in.kind == Kind::kStore || in.kind == Kind::kReduceColumn)) needed[i] = writes = true;
    if (!needed[i]) continue;
    for (int operand : in.operands) needed[at(operand)] = true;
    reduced |= reduces(in);
    reads_tile |= in.kind == Kind::kLoad && buffer_of(in) < 0;
  }
  const bool has_tile = std::any_of(loop.accesses.begin(), loop.accesses.end(), [](const View& v) { return v.buffer < 0; });
  const bool fits = (reduced || loop.kernel->walk == Walk::kElements) && reads_tile == has_tile;
  return drops && writes && fits ? needed : std::vector<bool>{};
}

LoopCall only(const LoopCall& loop, const std::vector<bool>& needed) {
  const LoopKernel& old = *loop.kernel;
  std::vector<bool> used(loop.accesses.size(), false);
  for (size_t i = 0; i < old.body.size(); ++i)
    if (needed[i] && has_access(old.body[i])) used[at(old.body[i].access)] = true;
  auto kernel = std::make_shared<LoopKernel>();
  kernel->walk = old.walk;
  kernel->rank = old.rank;
  kernel->scalars = old.scalars;
  LoopCall call;
  call.dims = loop.dims;
  call.scalars = loop.scalars;
  std::vector<int> access(used.size(), -1), value(old.body.size(), -1);
  for (size_t a = 0; a < used.size(); ++a) {
    if (!used[a]) continue;
    access[a] = static_cast<int>(kernel->accesses.size());
    kernel->accesses.push_back(old.accesses[a]);
    call.accesses.push_back(loop.accesses[a]);
    call.folds.push_back(loop.folds[a]);
  }
  for (size_t i = 0; i < old.body.size(); ++i) {
    if (!needed[i]) continue;
    LoopInstr in = old.body[i];
    for (int& operand : in.operands) operand = value[at(operand)];
    if (has_access(in)) in.access = access[at(in.access)];
    value[i] = static_cast<int>(kernel->body.size());
    kernel->body.push_back(std::move(in));
  }
  call.kernel = std::move(kernel);
  return call;
}

}  // namespace

bool drop_store(KernelCall& call, int buffer) {
  auto* gemm = std::get_if<GemmCall>(&call.what);
  LoopCall* loop = gemm != nullptr ? gemm->store.get() : std::get_if<LoopCall>(&call.what);
  if (loop == nullptr || loop->kernel == nullptr) return false;
  const std::vector<bool> needed = needed_without(*loop, buffer);
  if (needed.empty()) return false;
  LoopCall less = only(*loop, needed);
  const auto touches = [&](const LoopCall& l, int b) {
    return std::any_of(l.accesses.begin(), l.accesses.end(), [&](const View& v) { return v.buffer == b; });
  };
  const auto is_gone = [&](int b) {
    return touches(*loop, b) && !touches(less, b) && (gemm == nullptr || (gemm->a.buffer != b && gemm->b.buffer != b));
  };
  for (auto* list : {&call.reads, &call.writes}) std::erase_if(*list, is_gone);
  std::erase_if(call.in_place, [&](const auto& pair) { return is_gone(pair[0]) || is_gone(pair[1]); });
  const auto bytes = [](const LoopCall& l) {
    double sum = 0;
    for (size_t a = 0; a < l.accesses.size(); ++a)
      if (l.accesses[a].buffer >= 0 && l.folds[a][0] == 0) sum += window_bytes(l.accesses[a], l.kernel->accesses[a].dtype);
    return sum;
  };
  call.cost.bytes -= bytes(*loop) - bytes(less);
  *loop = std::move(less);
  return true;
}

}  // namespace ws
