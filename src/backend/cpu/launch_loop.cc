// Loop launches: fills the argument words once, then splits the units among the workers.
#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm/cache_sizes.h"
#include "backend/cpu/launch.h"
#include "support/error.h"

namespace ws::cpu {

void AddressBook::set_base(int buffer, void* base) const {
  for (const Wish& w : by_buffer_[static_cast<size_t>(buffer)]) {
    char* address = static_cast<char*>(base) + w.byte_offset;
    std::memcpy(w.slot, &address, sizeof address);
  }
}

int64_t loop_scratch_bytes(const LoopCall& call, const LoopCode& code) {
  const int64_t inner = call.kernel->walk == Walk::kFlatBlocks ? kFlatBlock : call.dims.back();
  return code.scratch_slots * ((inner + kLanes - 1) / kLanes * kLanes) * 8;
}

namespace {

// Work worth a barrier, in rough nanoseconds on one thread.
constexpr double kParallelFrom = 12000;
constexpr double kGrainCost = 4000;

double cost_per_element(const LoopKernel& kernel) {
  double ns = 0;
  for (const LoopInstr& i : kernel.body) {
    if (i.kind == LoopInstr::Kind::kOp)
      ns += i.op->has(kExpensive) ? 0.6 : 0.04;
    else
      ns += 0.1;
  }
  return ns;
}

int64_t bytes_touched(const LoopCall& call) {
  int64_t bytes = 0;
  for (size_t a = 0; a < call.accesses.size(); ++a) {
    int64_t elements = 1;
    for (size_t d = 0; d < call.dims.size(); ++d)
      if (call.accesses[a].strides[d] != 0) elements *= call.dims[d];
    bytes += elements * static_cast<int64_t>(size_of(call.kernel->accesses[a].dtype));
  }
  return bytes;
}

class LoopLaunch final : public Launch {
 public:
  LoopLaunch(const Program& program, const LoopCall& call, const LoopCode& code, AddressBook& book) : fn_(code.fn) {
    const LoopKernel& k = *call.kernel;
    const LoopArgsLayout layout{static_cast<int>(k.accesses.size()), k.rank, static_cast<int>(k.scalars.size())};
    args_.assign(static_cast<size_t>(layout.words()), 0);
    for (int d = 0; d < k.rank; ++d) word(layout.dim(d)) = call.dims[static_cast<size_t>(d)];
    for (int a = 0; a < layout.accesses; ++a) {
      const View& v = call.accesses[static_cast<size_t>(a)];
      for (int d = 0; d < k.rank; ++d) word(layout.stride(a, d)) = v.strides[static_cast<size_t>(d)];
      word(layout.fold_count(a)) = call.folds[static_cast<size_t>(a)][0];
      word(layout.fold_stride(a)) = call.folds[static_cast<size_t>(a)][1];
      const auto bytes = static_cast<int64_t>(size_of(program.buffers[static_cast<size_t>(v.buffer)].dtype));
      book.want(&word(layout.pointer(a)), v.buffer, v.offset * bytes);
    }
    for (int s = 0; s < layout.scalars; ++s) word(layout.scalar(s)) = call.scalars[static_cast<size_t>(s)];
    split(call);
  }

  void run(RunContext& context) override {
    if (units_ == 0) return;
    if (serial_) {
      fn_(args_.data(), 0, outer_, inner_begin_, inner_, context.scratch);
      return;
    }
    if (chunks_per_outer_ == 0) {
      context.workers.parallel_for(units_, grain_, [&](int64_t begin, int64_t end, int worker) {
        fn_(args_.data(), begin, end, inner_begin_, inner_, context.scratch_of(worker));
      });
      return;
    }
    context.workers.parallel_for(units_, grain_, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t outer = u / chunks_per_outer_, from = u % chunks_per_outer_ * chunk_;
        fn_(args_.data(), outer, outer + 1, from, std::min(inner_, from + chunk_), context.scratch_of(worker));
      }
    });
  }

 private:
  int64_t& word(int i) { return args_[static_cast<size_t>(i)]; }

  void split(const LoopCall& call) {
    const LoopKernel& k = *call.kernel;
    inner_ = call.dims.back();
    int64_t elements = 1;
    for (int64_t d : call.dims) elements *= d;
    int64_t before = 1;  // product of all dims but the last `n`
    auto product_before = [&](int last) {
      before = 1;
      for (size_t d = 0; d + static_cast<size_t>(last) < call.dims.size(); ++d) before *= call.dims[d];
      return before;
    };
    switch (k.walk) {
      case Walk::kElements:
      case Walk::kRows: outer_ = product_before(1); break;
      case Walk::kRowBlocks: outer_ = product_before(2) * ((call.dims[call.dims.size() - 2] + kRowBlock - 1) / kRowBlock); break;
      case Walk::kFlatBlocks: outer_ = (call.dims[0] + kFlatBlock - 1) / kFlatBlock; break;
    }
    if (k.walk == Walk::kRows || k.walk == Walk::kRowBlocks) inner_begin_ = bytes_touched(call) <= cache_sizes().l2_bytes ? 1 : 0;
    units_ = elements == 0 && k.walk == Walk::kElements ? 0 : outer_;
    double per_element = cost_per_element(k);
    for (const auto& f : call.folds) per_element += 0.1 * static_cast<double>(f[0]);
    const double cost = per_element * static_cast<double>(elements);
    serial_ = cost < kParallelFrom || (outer_ == 1 && (k.walk != Walk::kElements || inner_ < 64));
    if (serial_) return;
    const double unit_cost = cost / static_cast<double>(outer_);
    if (k.walk == Walk::kElements && outer_ < 64 && inner_ >= 64) {
      const auto wanted = static_cast<int64_t>(kGrainCost / per_element);
      chunk_ = std::max<int64_t>(64, std::min((inner_ + 63) / 64 * 64, wanted / 64 * 64));
      chunks_per_outer_ = (inner_ + chunk_ - 1) / chunk_;
      units_ = outer_ * chunks_per_outer_;
      grain_ = 1;
      return;
    }
    grain_ = std::max<int64_t>(1, static_cast<int64_t>(kGrainCost / unit_cost));
  }

  LoopFn fn_;
  std::vector<int64_t> args_;
  int64_t units_ = 0, outer_ = 0, inner_begin_ = 0, inner_ = 0, grain_ = 1, chunk_ = 0, chunks_per_outer_ = 0;
  bool serial_ = true;
};

}  // namespace

std::unique_ptr<Launch> launch_loop(const Program& program, const LoopCall& call, const LoopCode& code, AddressBook& book) {
  return std::make_unique<LoopLaunch>(program, call, code, book);
}

}  // namespace ws::cpu
