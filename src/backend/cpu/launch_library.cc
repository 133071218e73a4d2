// Library launches: structural ops that are one routine each.
#include <cstring>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/launch.h"
#include "backend/cpu/rows/rows.h"
#include "support/communicator.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

DType dtype_of(const Program& p, const View& v) { return p.buffers[static_cast<size_t>(v.buffer)].dtype; }

/// A window whose address is filled in by the book.
struct Window {
  Strided array;
  size_t element_bytes = 0;
  void bind(const Program& p, const View& v, AddressBook& book) {
    array.dims = v.dims;
    array.strides = v.strides;
    element_bytes = size_of(dtype_of(p, v));
    book.want(&array.data, v.buffer, v.offset * static_cast<int64_t>(element_bytes));
  }
};

/// Any routine over the call's windows.
template <class Body>
class RoutineLaunch final : public Launch {
 public:
  RoutineLaunch(const Program& p, const LibraryCall& call, AddressBook& book, bool may_stop, Body body)
      : windows_(call.views.size()), may_stop_(may_stop), body_(std::move(body)) {
    for (size_t i = 0; i < windows_.size(); ++i) windows_[i].bind(p, call.views[i], book);
  }
  void run(RunContext& context) override { body_(windows_, context); }
  bool may_stop() const override { return may_stop_; }

 private:
  std::vector<Window> windows_;
  bool may_stop_;
  Body body_;
};

template <class Body>
std::unique_ptr<Launch> routine(const Program& p, const LibraryCall& call, AddressBook& book, Body body, bool may_stop = false) {
  return std::make_unique<RoutineLaunch<Body>>(p, call, book, may_stop, std::move(body));
}

using Windows = std::vector<Window>;

std::unique_ptr<Launch> launch_check(const Program& p, const LibraryCall& call, int index, AddressBook& book) {
  const DType dtype = dtype_of(p, call.views[0]);
  const bool range = call.op->name == "check_range";
  const int64_t low = range ? call.attrs.integer("low") : 0, high = range ? call.attrs.integer("high") : 0;
  return routine(
      p, call, book,
      [=](Windows& w, RunContext& c) {
        const CheckResult r = range ? check_range(w[0].array, low, high, c.workers) : check_finite(w[0].array, dtype, c.workers);
        if (!r.ok) c.status = {index, r.value};
        std::memcpy(w[1].array.data, w[0].array.data, static_cast<size_t>(w[0].array.dims.num_elements()) * w[0].element_bytes);
      },
      true);
}

/// In place on the results, so that the inputs are free once this has run.
std::unique_ptr<Launch> launch_begin(const Program& p, const LibraryCall& call, AddressBook& book) {
  return routine(p, call, book,
                 [id = call.attrs.integer("bucket"), bucket = std::vector<Communicator::Numbers>(call.views.size() / 2)](
                     Windows& w, RunContext& c) mutable {
                   for (size_t i = 0; i < bucket.size(); ++i) {
                     const Window &from = w[2 * i], &to = w[2 * i + 1];
                     if (from.array.data != to.array.data) copy(to.array, from.array, to.element_bytes, c.workers);
                     bucket[i] = {static_cast<float*>(to.array.data), to.array.dims.num_elements()};
                   }
                   communicator().begin_sum(id, bucket);
                 });
}

std::unique_ptr<Launch> launch_collective(const Program& p, const LibraryCall& call, AddressBook& book) {
  if (call.phase == LibraryCall::Phase::begin) return launch_begin(p, call, book);
  if (call.phase == LibraryCall::Phase::finish)
    return routine(p, call, book, [id = call.attrs.integer("bucket")](Windows&, RunContext&) { communicator().finish_sum(id); });
  const DType dtype = dtype_of(p, call.views[0]);
  if (call.op->name == "all_reduce") {
    const auto how = call.attrs.flag("maximum") ? Communicator::Reduction::maximum : Communicator::Reduction::sum;
    return routine(p, call, book, [dtype, how](Windows& w, RunContext&) {
      communicator().all_reduce(w[0].array.data, w[1].array.data, w[0].array.dims.num_elements(), dtype, how);
    });
  }
  const Shape& all = call.views[1].dims;
  const int64_t rows = call.attrs.integer("rows");
  const int64_t row_bytes = rows == 0 ? 0 : all.num_elements() / rows * static_cast<int64_t>(size_of(dtype));
  std::vector<int64_t> bytes;
  for (int r = 0; r < communicator().num_ranks(); ++r) {
    const auto [begin, end] = rows_of_rank(rows, communicator().num_ranks(), r);
    bytes.push_back((end - begin) * row_bytes);
  }
  return routine(p, call, book,
                 [bytes](Windows& w, RunContext&) { communicator().all_gather(w[0].array.data, w[1].array.data, bytes); });
}

// --- attention --------------------------------------------------------------------------------------------------------------

Attention attention_shape(const Program& p, const LibraryCall& call) {
  const View &q = call.views[0], &k = call.views[1];
  Attention a;
  a.batch = q.dims[0];
  a.queries = q.dims[1];
  a.heads = q.dims[2];
  a.head_size = q.dims[3];
  a.keys = k.dims[1];
  a.causal = call.attrs.flag("causal");
  a.scale = static_cast<float>(call.attrs.number("scale"));
  a.q.dtype = dtype_of(p, q);
  a.masked = call.attrs.find("dropout") != nullptr;
  if (a.masked) a.masking.dropout = call.attrs.number("dropout"), a.masking.first_row = call.attrs.integer("first_row");
  return a;
}

class AttentionLaunch final : public Launch {
 public:
  AttentionLaunch(const Program& p, const LibraryCall& call, Isa isa, std::span<const LoopCode> loops, AddressBook& book)
      : a_(attention_shape(p, call)), isa_(gemm_isa(isa)), backward_(call.op->lowering == Lowering::kAttentionGrad),
        loops_(loops.begin(), loops.end()) {
    size_t next = 0;
    const auto tensor = [&](AttentionTensor& t) { bind(t, p, call.views[next++], book); };
    const auto address = [&](auto*& pointer) {
      const View& v = call.views[next++];
      book.want(&pointer, v.buffer, v.offset * static_cast<int64_t>(sizeof *pointer));
    };
    tensor(a_.q), tensor(a_.k), tensor(a_.v);
    if (a_.masked) {
      const auto& strides = call.views[next].strides;
      AttentionMasking& m = a_.masking;
      m.batch_stride = strides[0], m.head_stride = strides[1], m.query_stride = strides[2], m.key_stride = strides[3];
      address(m.mask), address(m.key0), address(m.key1);
    }
    if (!backward_) tensor(a_.out);
    address(a_.row_max), address(a_.row_sum);
    if (backward_) tensor(a_.grad_out), tensor(a_.grad_q), tensor(a_.grad_k), tensor(a_.grad_v);
    if (call.workspace >= 0) book.want(&workspace_, call.workspace, 0);
    a_.loops = loops_.data();
  }
  void run(RunContext& context) override {
    if (backward_)
      attention_backward(a_, isa_, workspace_, context.workers);
    else
      attention_forward(a_, isa_, workspace_, context.workers);
  }

 private:
  static void bind(AttentionTensor& t, const Program& p, const View& v, AddressBook& book) {
    t.batch_stride = v.strides[0];
    t.time_stride = v.strides[1];
    t.head_stride = v.strides[2];
    t.dtype = dtype_of(p, v);
    book.want(&t.data, v.buffer, v.offset * static_cast<int64_t>(size_of(t.dtype)));
  }
  Attention a_;
  GemmIsa isa_;
  bool backward_;
  std::vector<LoopCode> loops_;
  void* workspace_ = nullptr;
};

}  // namespace

std::vector<std::shared_ptr<const LoopKernel>> loops_of(const Program& p, const LibraryCall& call, Isa isa) {
  if (call.op == nullptr) return {};
  if (call.op->lowering == Lowering::kAttention)
    return attention_loops(false, dtype_of(p, call.views[0]), gemm_isa(isa), call.attrs.find("dropout") != nullptr);
  if (call.op->lowering == Lowering::kAttentionGrad)
    return attention_loops(true, dtype_of(p, call.views[0]), gemm_isa(isa), call.attrs.find("dropout") != nullptr);
  return {};
}

int64_t library_workspace_bytes(const LibraryCall& call, const Program& p, Isa isa, int num_threads) {
  if (call.op == nullptr) return 0;
  if (call.op->lowering != Lowering::kAttention && call.op->lowering != Lowering::kAttentionGrad) return 0;
  return attention_workspace_bytes(attention_shape(p, call), gemm_isa(isa), num_threads,
                                   call.op->lowering == Lowering::kAttentionGrad);
}

std::unique_ptr<Launch> launch_library(const Program& p, const LibraryCall& call, int call_index, Isa isa,
                                       std::span<const LoopCode> loops, AddressBook& book) {
  if (call.op == nullptr)
    return routine(p, call, book, [](Windows& w, RunContext& c) { copy(w[1].array, w[0].array, w[0].element_bytes, c.workers); });
  switch (call.op->lowering) {
    case Lowering::kConcatenate: {
      const auto axis = static_cast<int>(call.attrs.integer("axis"));
      return routine(p, call, book,
                     [axis, parts = std::vector<Strided>(call.views.size() - 1)](Windows& w, RunContext& c) mutable {
                       for (size_t i = 0; i < parts.size(); ++i) parts[i] = w[i].array;
                       concatenate(w.back().array, parts, axis, w[0].element_bytes, c.workers);
                     });
    }
    case Lowering::kPad:
      return routine(p, call, book,
                     [low = call.attrs.integers("low"), interior = call.attrs.integers("interior")](Windows& w, RunContext& c) {
                       pad(w[1].array, w[0].array, low, interior, w[0].element_bytes, c.workers);
                     });
    case Lowering::kGather:
      return routine(p, call, book, [](Windows& w, RunContext& c) {
        gather(w[2].array, w[0].array, w[1].array, w[0].element_bytes, c.workers);
      });
    case Lowering::kScatterAdd: {
      const DType dtype = dtype_of(p, call.views[1]);
      return routine(p, call, book,
                     [dtype](Windows& w, RunContext& c) { scatter_add(w[2].array, w[0].array, w[1].array, dtype, c.workers); });
    }
    case Lowering::kCheck: return launch_check(p, call, call_index, book);
    case Lowering::kCollective: return launch_collective(p, call, book);
    case Lowering::kAttention:
    case Lowering::kAttentionGrad: return std::make_unique<AttentionLaunch>(p, call, isa, loops, book);
    default: WS_ASSERT(false, "the CPU has no routine for {}", call.op->name);
  }
}

}  // namespace ws::cpu
