// fp32 products in bf16 parts (matmul_precision) against fp32: time on one thread, and how far each is from double precision.
//   matmul_precision_bench [ROUNDS] [1: as markdown]
// The sides take turns, one ratio a round, the median counts, by the thread's own processor time. The error is the root of the mean
// square over 2,000 elements, relative to that of the exact result.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "backend/cpu/gemm/parts.h"
#include "backend/cpu/isa.h"
#include "gemm_bench_support.h"
#include "support/float_mode.h"

namespace {

using namespace ws;
using namespace ws::cpu;
using namespace ws::bench;

struct Side {
  SplitOperands operands;  // before the product that is made of them
  Gemm gemm;
  Buffer c, workspace;
  Workers& workers;
  GemmIsa isa;
  Side(const Gemm& g, int parts, GemmIsa with, Workers& on)
      : gemm(parts > 0 ? split_gemm(g, parts, with, operands) : g), c(g.m * g.n),
        workspace(gemm_workspace_bytes(gemm, with, 1) / 4 + 16), workers(on), isa(with) {
    gemm.c = c.floats();
    gemm.c_row_stride = g.n;
  }
  void operator()() { cpu::gemm(gemm, isa, workspace.floats(), workers); }
  double error(const float* a, const float* b) {
    double wrong = 0, all = 0;
    std::mt19937 random(7);
    for (int t = 0; t < 2000; ++t) {
      const auto i = static_cast<int64_t>(random() % static_cast<uint32_t>(gemm.m)),
                 j = static_cast<int64_t>(random() % static_cast<uint32_t>(gemm.n));
      double exact = 0;
      for (int64_t p = 0; p < depth; ++p)
        exact += static_cast<double>(a[i * a_row + p * a_col]) * static_cast<double>(b[p * gemm.n + j]);
      const double off = static_cast<double>(c.floats()[i * gemm.n + j]) - exact;
      wrong += off * off, all += exact * exact;
    }
    return std::sqrt(wrong / all);
  }
  int64_t depth = 0, a_row = 0, a_col = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const bool markdown = argc > 2 && std::string(argv[2]) == "1";
  const auto isa = static_cast<GemmIsa>(static_cast<int>(best_isa()) + static_cast<int>(GemmIsa::avx2));
  FlushDenormals mode;
  SpinWorkers one(1);
  struct Shape {
    int64_t m, k, n;
    bool a_transposed;
  };
  if (markdown)
    fmt::print("| product | fp32 error | high: error | time | bf16: error | time |\n|---|---|---|---|---|---|\n");
  else
    fmt::print("product: error of fp32; of high and its time over fp32's; of bf16 and its\n");
  for (const Shape& s : std::vector<Shape>{{8192, 512, 1536, false},
                                           {8192, 1365, 512, false},
                                           {512, 8192, 1536, true},
                                           {1365, 8192, 512, true},
                                           {4096, 256, 1024, false},
                                           {4096, 1024, 256, false},
                                           {256, 4096, 1024, true},
                                           {256, 512, 512, false}}) {
    Buffer a(s.m * s.k), b(s.k * s.n);
    fill(a, 1), fill(b, 2);
    Gemm g;
    g.m = s.m, g.n = s.n, g.k = s.k;
    g.a.data = a.floats(), g.b.data = b.floats();
    g.a.row_stride = s.a_transposed ? 1 : s.k, g.a.col_stride = s.a_transposed ? s.m : 1;
    g.b.row_stride = s.n, g.b.col_stride = 1;
    Side plain(g, 0, isa, one), high(g, 2, isa, one), bf16(g, 1, isa, one);
    std::vector<double> of_high, of_bf16;
    for (Side* side : {&plain, &high, &bf16}) {
      side->depth = s.k, side->a_row = g.a.row_stride, side->a_col = g.a.col_stride;
      (*side)();
    }
    for (int round = 0; round < rounds; ++round) {
      const double base = best_seconds(plain, 0.03, thread_seconds);
      of_high.push_back(best_seconds(high, 0.03, thread_seconds) / base);
      of_bf16.push_back(best_seconds(bf16, 0.03, thread_seconds) / base);
    }
    fmt::print(fmt::runtime(markdown ? "| [{}x{}] x [{}x{}]{} | {:.1e} | {:.1e} | {:.2f}x | {:.1e} | {:.2f}x |\n"
                                     : "[{}x{}] x [{}x{}]{:<11} {:.1e};  {:.1e} {:.2f}x;  {:.1e} {:.2f}x\n"),
               s.m, s.k, s.k, s.n, s.a_transposed ? " (a turned)" : "", plain.error(a.floats(), b.floats()),
               high.error(a.floats(), b.floats()), median(of_high), bf16.error(a.floats(), b.floats()), median(of_bf16));
    std::fflush(stdout);
  }
}
