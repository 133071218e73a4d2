// Attention against its composition (batched products, the same row loops over whole rows, everything in memory), interleaved:
// shares of the FMA peak probed beside each round, and the median of the ratios. FLOPs are those of visible pairs.
//   bench_attention_bench [--threads N] [--rounds N]
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <random>
#include <string>

#include "analysis/roof_probes.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_loops.h"
#include "backend/cpu/jit/loop_compiler.h"
#include "gemm_bench_support.h"
#include "runtime/thread_pool.h"
#include "support/float_mode.h"

namespace {

using namespace ws;
using namespace ws::cpu;
using bench::Buffer;

struct Shape4 {
  int64_t batch, heads, length, size;
  bool causal;
};

double seconds_of(const auto& body) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double start = now();
  body();
  return now() - start;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

class Bench {
 public:
  Bench(const Shape4& s, LoopCompiler& compiler, GemmIsa isa, Workers& workers)
      : s_(s), isa_(isa), workers_(workers), packed_(s.batch * s.length * 3 * s.heads * s.size), grads_(packed_.size()),
        out_(packed_.size() / 3), grad_out_(out_.size()), rows_(2 * s.batch * s.heads * s.length),
        scores_(s.batch * s.heads * s.length * s.length), grad_scores_(scores_.size()),
        loop_scratch_(workers.num_threads() * loop_scratch_floats()) {
    bench::fill(packed_, 1);
    bench::fill(grad_out_, 2);
    a_.batch = s.batch, a_.heads = s.heads, a_.queries = a_.keys = s.length, a_.head_size = s.size, a_.causal = s.causal;
    a_.scale = 1 / std::sqrt(static_cast<float>(s.size));
    const int64_t row = s.heads * s.size;
    const auto part = [&](Buffer& x, int64_t i) {
      return AttentionTensor{x.floats() + i * row, s.length * 3 * row, 3 * row, s.size, DType::f32};
    };
    a_.q = part(packed_, 0), a_.k = part(packed_, 1), a_.v = part(packed_, 2);
    a_.grad_q = part(grads_, 0), a_.grad_k = part(grads_, 1), a_.grad_v = part(grads_, 2);
    a_.out = {out_.floats(), s.length * row, row, s.size, DType::f32};
    a_.grad_out = {grad_out_.floats(), s.length * row, row, s.size, DType::f32};
    a_.row_max = rows_.floats(), a_.row_sum = rows_.floats() + rows_.size() / 2;
    forward_ = compiler.compile(attention_loops(false, DType::f32));
    backward_ = compiler.compile(attention_loops(true, DType::f32));
    workspace_.resize(static_cast<size_t>(attention_workspace_bytes(a_, isa, workers.num_threads())) / 4 + 16);
  }

  void fused() {
    void* const workspace = aligned(workspace_);
    a_.loops = forward_.data();
    attention_forward(a_, isa_, workspace, workers_);
    a_.loops = backward_.data();
    attention_backward(a_, isa_, workspace, workers_);
  }

  // Masked scores are computed and not looked at: what a mask would cost is left out.
  void composed() {
    const AttentionTensor scores = square(scores_), grad_scores = square(grad_scores_);
    products(a_.q, false, a_.k, true, scores);
    rows<SoftmaxLoop>(forward_[0], {scores_.floats(), scores_.floats(), a_.row_max, a_.row_sum}, {false, false, true, true});
    products(scores, false, a_.v, false, a_.out);
    products(a_.grad_out, false, a_.v, true, grad_scores);
    products(scores, true, a_.grad_out, false, a_.grad_v);
    rows<SoftmaxGradLoop>(
        backward_[0], {scores_.floats(), grad_scores_.floats(), a_.row_max, a_.row_sum, scores_.floats(), grad_scores_.floats()},
        {false, false, true, true, false, false});
    products(grad_scores, false, a_.k, false, a_.grad_q);
    products(grad_scores, true, a_.q, false, a_.grad_k);
  }

  double flops() const {
    const auto t = static_cast<double>(s_.length);
    return 14.0 * (s_.causal ? t * (t + 1) / 2 : t * t) * static_cast<double>(s_.size * s_.batch * s_.heads);
  }

 private:
  static void* aligned(std::vector<float>& x) {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(x.data()) + 63) / 64 * 64);
  }
  static float* floats(const AttentionTensor& x) { return static_cast<float*>(x.data); }
  int64_t loop_scratch_floats() const { return 2 * 4 * (s_.length + 32); }
  AttentionTensor square(Buffer& x) const {
    return {x.floats(), s_.heads * s_.length * s_.length, s_.length, s_.length * s_.length, DType::f32};
  }
  void products(const AttentionTensor& x, bool transpose_x, const AttentionTensor& y, bool transpose_y,
                const AttentionTensor& c) {
    const auto is_square = [&](const AttentionTensor& t) {
      return t.time_stride == s_.length && t.head_stride == s_.length * s_.length;
    };
    const int64_t n = is_square(c) ? s_.length : s_.size, k = is_square(x) ? s_.length : s_.size;
    for (int64_t b = 0; b < s_.batch; ++b) {
      Gemm g;
      g.batch = s_.heads, g.m = s_.length, g.n = n, g.k = k;
      g.a = {floats(x) + b * x.batch_stride, transpose_x ? 1 : x.time_stride, transpose_x ? x.time_stride : 1, x.head_stride};
      g.b = {floats(y) + b * y.batch_stride, transpose_y ? 1 : y.time_stride, transpose_y ? y.time_stride : 1, y.head_stride};
      g.c = floats(c) + b * c.batch_stride, g.c_row_stride = c.time_stride, g.c_batch_stride = c.head_stride;
      const auto floats = static_cast<size_t>(gemm_workspace_bytes(g, isa_, workers_.num_threads())) / 4 + 16;
      if (gemm_workspace_.size() < floats) gemm_workspace_.resize(floats);
      gemm(g, isa_, aligned(gemm_workspace_), workers_);
    }
  }
  template <class L>
  void rows(const LoopCode& code, const std::vector<float*>& pointers, const std::vector<bool>& one_a_row) {
    const LoopArgsLayout layout{L::kNumAccesses, 2, 1};
    std::vector<int64_t> args(static_cast<size_t>(layout.words()), 0);
    const auto set = [&](int word, int64_t value) { args[static_cast<size_t>(word)] = value; };
    const int64_t count = s_.batch * s_.heads * s_.length;
    set(layout.dim(0), count);
    set(layout.dim(1), s_.length);
    for (int i = 0; i < L::kNumAccesses; ++i) {
      const auto at = static_cast<size_t>(i);
      set(layout.pointer(i), static_cast<int64_t>(reinterpret_cast<intptr_t>(pointers[at])));
      set(layout.stride(i, 0), one_a_row[at] ? 1 : s_.length);
      set(layout.stride(i, 1), one_a_row[at] ? 0 : 1);
    }
    set(layout.scalar(0), std::bit_cast<uint32_t>(a_.scale));
    workers_.parallel_for(count, 16, [&](int64_t begin, int64_t end, int worker) {
      code.fn(args.data(), begin, end, 0, s_.length, loop_scratch_.floats() + worker * loop_scratch_floats());
    });
  }

  Shape4 s_;
  GemmIsa isa_;
  Workers& workers_;
  Buffer packed_, grads_, out_, grad_out_, rows_, scores_, grad_scores_, loop_scratch_;
  Attention a_;
  std::vector<LoopCode> forward_, backward_;
  std::vector<float> workspace_, gemm_workspace_;
};

double peak_flops(Isa isa, Workers& workers) {
  constexpr int64_t kRounds = 100000;
  const double one = fma_probe(isa, 1) * kRounds;
  const double seconds = seconds_of([&] {
    workers.parallel_for(workers.num_threads(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) fma_probe(isa, kRounds);
    });
  });
  return one * workers.num_threads() / seconds;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = available_cpus(), rounds = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  const FlushDenormals mode;
  const Isa isa = best_isa();
  const GemmIsa gemm_isa = isa == Isa::avx512 ? GemmIsa::avx512 : GemmIsa::avx2;
  LoopCompiler compiler({.isa = isa, .cache_directory = {}, .num_threads = 1});
  WorkersLease lease(threads);
  Workers& workers = lease.workers();
  fmt::print("{} thread{}, {}, median of {} rounds\n", workers.num_threads(), workers.num_threads() > 1 ? "s" : "", name_of(isa),
             rounds);
  for (const Shape4& s : {Shape4{64, 8, 128, 64, true},
                          {64, 8, 128, 64, false},
                          {8, 8, 1024, 64, true},
                          {8, 8, 1024, 64, false},
                          {32, 4, 128, 64, false}}) {
    Bench b(s, compiler, gemm_isa, workers);
    b.fused();
    b.composed();
    std::vector<double> share, ratio, ms;
    for (int r = 0; r < rounds; ++r) {
      const double before = peak_flops(isa, workers), fused = seconds_of([&] { b.fused(); });
      const double composed = seconds_of([&] { b.composed(); }), peak = std::max(before, peak_flops(isa, workers));
      share.push_back(b.flops() / fused / peak);
      ratio.push_back(composed / fused);
      ms.push_back(fused * 1e3);
    }
    fmt::print(
        "batch {:>2} heads {} length {:>4} size {} {:<7} forward and backward {:8.2f} ms   {:3.0f} % of peak   {:.2f}x "
        "composed\n",
        s.batch, s.heads, s.length, s.size, s.causal ? "causal" : "full", median(ms), 100 * median(share), median(ratio));
  }
}
