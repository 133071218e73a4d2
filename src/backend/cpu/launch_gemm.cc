// GEMM launches: operands by stride, and the store hole: a fused loop run over each finished tile.
#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm/parts.h"
#include "backend/cpu/launch.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

constexpr int kMaxHoleWords = 1024;  // argument words of one hole, copied to the stack for each tile

/// The store hole's loop with its arguments; the tile's address and row stride are filled in per tile.
class Hole {
 public:
  Hole(const Program& program, const LoopCall& call, const LoopCode& code, int64_t rows, AddressBook& book)
      : fn_(code.fn), rows_(rows) {
    const LoopKernel& k = *call.kernel;
    layout_ = {static_cast<int>(k.accesses.size()), k.rank, static_cast<int>(k.scalars.size())};
    WS_ASSERT(layout_.words() <= kMaxHoleWords, "a store hole with {} accesses", k.accesses.size());
    args_.assign(static_cast<size_t>(layout_.words()), 0);
    for (int d = 0; d < k.rank; ++d) args_[static_cast<size_t>(layout_.dim(d))] = call.dims[static_cast<size_t>(d)];
    for (int a = 0; a < layout_.accesses; ++a) {
      const View& v = call.accesses[static_cast<size_t>(a)];
      if (v.buffer < 0) {
        tiles_.push_back(a);
        continue;
      }
      for (int d = 0; d < k.rank; ++d) args_[static_cast<size_t>(layout_.stride(a, d))] = v.strides[static_cast<size_t>(d)];
      const auto bytes = static_cast<int64_t>(size_of(program.buffers[static_cast<size_t>(v.buffer)].dtype));
      book.want(&args_[static_cast<size_t>(layout_.pointer(a))], v.buffer, v.offset * bytes);
    }
    for (int s = 0; s < layout_.scalars; ++s)
      args_[static_cast<size_t>(layout_.scalar(s))] = call.scalars[static_cast<size_t>(s)];
    row_multiples_.assign(static_cast<size_t>(k.rank), 1);
    for (size_t d = row_multiples_.size(); d > 2; --d) row_multiples_[d - 3] = row_multiples_[d - 2] * call.dims[d - 2];
  }

  static void run(void* self, float* tile, int64_t ld, int64_t batch, int64_t m0, int64_t n0, int64_t mc, int64_t nc,
                  int worker) {
    const Hole& hole = *static_cast<const Hole*>(self);
    int64_t args[kMaxHoleWords];
    std::memcpy(args, hole.args_.data(), hole.args_.size() * sizeof(int64_t));
    const int64_t row = batch * hole.rows_ + m0;
    float* origin = tile - (row * ld + n0);  // where element (0, 0) of the whole result would be
    const int rank = hole.layout_.rank;
    for (int a : hole.tiles_) {
      std::memcpy(&args[hole.layout_.pointer(a)], &origin, sizeof origin);
      for (int d = 0; d + 1 < rank; ++d) args[hole.layout_.stride(a, d)] = ld * hole.row_multiples_[static_cast<size_t>(d)];
      args[hole.layout_.stride(a, rank - 1)] = 1;
    }
    hole.fn_(args, row, row + mc, n0, n0 + nc, hole.context->scratch_of(worker));
  }

  RunContext* context = nullptr;

 private:
  LoopFn fn_;
  int64_t rows_;
  LoopArgsLayout layout_{};
  std::vector<int64_t> args_;
  std::vector<int> tiles_;
  std::vector<int64_t> row_multiples_;  // by dim before the last: rows that one step of it passes
};

Gemm plain_shape(const GemmCall& call) {
  Gemm g;
  g.batch = call.batch;
  g.m = call.m;
  g.n = call.n;
  g.k = call.k;
  g.a.batch_stride = call.a.strides[0];
  g.a.row_stride = call.a.strides[1];
  g.a.col_stride = call.a.strides[2];
  g.b.batch_stride = call.b.strides[0];
  g.b.row_stride = call.b.strides[1];
  g.b.col_stride = call.b.strides[2];
  g.operand_dtype = call.operand_dtype;
  g.result_dtype = call.result_dtype;
  g.c_batch_stride = call.c.strides[0];
  g.c_row_stride = call.c.strides[1];
  if (call.store != nullptr) g.store = &Hole::run;  // only whether there is one matters for sizes
  return g;
}

class GemmLaunch final : public Launch {
 public:
  GemmLaunch(const Program& program, const GemmCall& call, const LoopCode* store, Isa isa, AddressBook& book)
      : gemm_(plain_shape(call)), isa_(gemm_isa(isa)) {
    const auto operand_bytes = static_cast<int64_t>(size_of(call.operand_dtype));
    const bool split = call.bf16_parts > 0;
    if (split) gemm_ = split_gemm(gemm_, call.bf16_parts, isa_, operands_);
    book.want(split ? &operands_.a.data : &gemm_.a.data, call.a.buffer, call.a.offset * operand_bytes);
    book.want(split ? &operands_.b.data : &gemm_.b.data, call.b.buffer, call.b.offset * operand_bytes);
    if (call.store != nullptr) {
      hole_ = std::make_unique<Hole>(program, *call.store, *store, call.m, book);
      gemm_.store = &Hole::run;
      gemm_.store_context = hole_.get();
      find_store_operands(program, *call.store, book);
    } else {
      book.want(&gemm_.c, call.c.buffer, call.c.offset * static_cast<int64_t>(size_of(call.result_dtype)));
    }
    if (call.workspace >= 0) book.want(&workspace_, call.workspace, 0);
  }
  void run(RunContext& context) override {
    if (hole_ != nullptr) hole_->context = &context;
    gemm(gemm_, isa_, workspace_, context.workers);
  }

 private:
  /// What the hole reads and writes element by element, reads first.
  void find_store_operands(const Program& program, const LoopCall& store, AddressBook& book) {
    std::vector<int> met;
    for (const View& v : store.accesses) {
      if (v.buffer < 0 || v.dims.rank() != 2 || v.strides[1] != 1 || v.strides[0] == 0) continue;
      const ProgramBuffer& b = program.buffers[static_cast<size_t>(v.buffer)];
      const int memory = b.alias_of >= 0 ? b.alias_of : v.buffer;
      if (gemm_.num_store_operands == kMaxStoreOperands || std::find(met.begin(), met.end(), memory) != met.end()) continue;
      met.push_back(memory);
      const auto bytes = static_cast<int64_t>(size_of(b.dtype));
      StoreOperand& x = gemm_.store_operands[gemm_.num_store_operands++];
      x.row_bytes = v.strides[0] * bytes, x.element_bytes = bytes;
      book.want(&x.data, v.buffer, v.offset * bytes);
    }
  }

  Gemm gemm_;
  SplitOperands operands_;
  GemmIsa isa_;
  std::unique_ptr<Hole> hole_;
  void* workspace_ = nullptr;
};

}  // namespace

Gemm gemm_shape(const GemmCall& call, Isa isa) {
  const Gemm g = plain_shape(call);
  SplitOperands unused;  // sizes ask only whether there are holes
  return call.bf16_parts > 0 ? split_gemm(g, call.bf16_parts, gemm_isa(isa), unused) : g;
}

std::unique_ptr<Launch> launch_gemm(const Program& program, const GemmCall& call, const LoopCode* store, Isa isa,
                                    AddressBook& book) {
  return std::make_unique<GemmLaunch>(program, call, store, isa, book);
}

}  // namespace ws::cpu
