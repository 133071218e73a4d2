#include "schedule/clone_call.h"

namespace ws {
namespace {

using Map = std::function<int(int)>;

struct MoveTo {
  const Map& buffer;
  void move(int& b) const {
    if (b >= 0) b = buffer(b);
  }
  void operator()(LoopCall& loop) const {
    for (View& view : loop.accesses) move(view.buffer);
  }
  void operator()(GemmCall& gemm) const {
    for (View* view : {&gemm.a, &gemm.b, &gemm.c}) move(view->buffer);
    if (gemm.store) (*this)(*gemm.store);
    move(gemm.workspace);
  }
  void operator()(LibraryCall& library) const {
    for (View& view : library.views) move(view.buffer);
    move(library.workspace);
  }
};

}  // namespace

KernelCall clone_call(const KernelCall& call, const Map& buffer) {
  KernelCall copy = call;
  const MoveTo to{buffer};
  std::visit(to, copy.what);
  for (auto* list : {&copy.reads, &copy.writes})
    for (int& b : *list) to.move(b);
  for (auto& pair : copy.in_place)
    for (int& b : pair) to.move(b);
  return copy;
}

}  // namespace ws
