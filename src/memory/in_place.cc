#include "memory/in_place.h"

#include <algorithm>

namespace ws {

namespace {

bool same_elements(const View& a, const View& b) {
  if (a.offset != b.offset || a.dims != b.dims) return false;
  for (int d = 0; d < a.dims.rank(); ++d)
    if (a.dims[d] != 1 && a.strides[static_cast<size_t>(d)] != b.strides[static_cast<size_t>(d)]) return false;
  return true;
}

// Every access of the two buffers in one kernel body, which must all walk the same elements in the same order.
class Accesses {
 public:
  Accesses(int write, int read) : write_(write), read_(read) {}

  void add(const View& view) {
    if (view.buffer != write_ && view.buffer != read_) return;
    if (!first_) first_ = &view;
    agree_ = agree_ && same_elements(*first_, view);
  }
  void add(const LoopCall& loop) {
    for (size_t a = 0; a < loop.accesses.size(); ++a) {
      const View& view = loop.accesses[a];
      if (view.buffer != write_ && view.buffer != read_) continue;
      const bool folds = a < loop.folds.size() && loop.folds[a][0] > 1;
      const bool swaps = a < loop.kernel->accesses.size() && loop.kernel->accesses[a].step == Step::kSwapped;
      agree_ = agree_ && !folds && !swaps;
      add(view);
    }
  }
  void forbid(const View& view) { agree_ = agree_ && view.buffer != read_; }
  bool agree() const { return agree_; }

 private:
  int write_, read_;
  const View* first_ = nullptr;
  bool agree_ = true;
};

struct Collect {
  Accesses& accesses;
  void operator()(const LoopCall& loop) const { accesses.add(loop); }
  void operator()(const GemmCall& gemm) const {
    accesses.forbid(gemm.a);  // every tile reads whole rows and columns of its operands
    accesses.forbid(gemm.b);
    if (gemm.store)
      accesses.add(*gemm.store);
    else
      accesses.add(gemm.c);
  }
  void operator()(const LibraryCall& library) const {
    for (const View& view : library.views) accesses.add(view);
  }
};

bool has(const std::vector<int>& list, int x) { return std::find(list.begin(), list.end(), x) != list.end(); }

}  // namespace

bool may_take_over(const Program& program, const std::vector<Lifetime>& lives, int c, int write, int read) {
  if (write == read || lives[static_cast<size_t>(write)].first != c || lives[static_cast<size_t>(read)].last != c ||
      lives[static_cast<size_t>(read)].first == c)
    return false;
  return could_take_over(program, c, write, read);
}

bool could_take_over(const Program& program, int c, int write, int read) {
  const KernelCall& call = program.calls[static_cast<size_t>(c)];
  const ProgramBuffer &w = program.buffers[static_cast<size_t>(write)], &r = program.buffers[static_cast<size_t>(read)];
  if (write == read ||
      std::find(call.in_place.begin(), call.in_place.end(), std::array<int, 2>{write, read}) == call.in_place.end())
    return false;
  if (size_of(w.dtype) != size_of(r.dtype) || w.num_bytes() > r.num_bytes()) return false;
  if (has(call.writes, read) || has(call.reads, write)) return false;
  Accesses accesses(write, read);
  std::visit(Collect{accesses}, call.what);
  return accesses.agree();
}

std::vector<int> find_takeovers(const Program& program, const std::vector<Lifetime>& lives, bool outputs_outside) {
  std::vector<int> from(program.buffers.size(), -1);
  std::vector<bool> taken(program.buffers.size());
  for (int c = 0; c < static_cast<int>(program.calls.size()); ++c) {
    for (const auto& [write, read] : program.calls[static_cast<size_t>(c)].in_place) {
      if (from[static_cast<size_t>(write)] >= 0 || taken[static_cast<size_t>(read)]) continue;
      if (!lives_in_arena(program.buffers[static_cast<size_t>(write)], outputs_outside)) continue;
      if (!lives_in_arena(program.buffers[static_cast<size_t>(read)], outputs_outside)) continue;
      if (!may_take_over(program, lives, c, write, read)) continue;
      from[static_cast<size_t>(write)] = read;
      taken[static_cast<size_t>(read)] = true;
    }
  }
  return from;
}

}  // namespace ws
