// fp32 GEMM against oneDNN and against a measured FMA peak, on shapes of whole training steps.
//   gemm_bench [--threads 1,2] [--rounds 5] [--only SUBSTRING] [--isa avx512|avx2]
// Noise-proof: sides are interleaved, each round gives one ratio, the median of the ratios counts; the FMA probe runs around
// every round. Absolute figures drift with the machine's clock, ratios do not.
#include <fmt/core.h>

#if defined(WS_HAVE_DNNL) && defined(__x86_64__)
#include <dlfcn.h>
#include <dnnl.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/gemm/gemm.h"
#include "gemm_bench_support.h"

namespace {

using namespace ws;
using namespace ws::cpu;
using namespace ws::bench;

struct Shape {
  const char* group;
  int64_t m, k, n;
  bool a_transposed = false, b_transposed = false;
  bool is_large() const { return m * n * k >= int64_t{1} << 28; }
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"gpt forward", 8192, 512, 1536},
      {"gpt forward", 8192, 512, 512},
      {"gpt forward", 8192, 512, 1365},
      {"gpt forward", 8192, 1365, 512},
      {"gpt weight gradient", 512, 8192, 1536, true},
      {"gpt weight gradient", 1365, 8192, 512, true},
      {"encoder forward", 4096, 256, 768},
      {"encoder forward", 4096, 256, 1024},
      {"encoder forward", 4096, 1024, 256},
      {"encoder weight gradient", 256, 4096, 1024, true},
      {"mlp", 256, 512, 512},
  };
  return all;
}

/// oneDNN runs on OpenMP's threads, whichever OpenMP it came with.
void set_onednn_threads(int threads) {
  if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(threads);
}

std::string title(const Shape& s) {
  return fmt::format("[{}x{}]{} x [{}x{}]{}", s.m, s.k, s.a_transposed ? "^T" : "", s.k, s.n, s.b_transposed ? "^T" : "");
}

struct Row {
  Shape shape;
  double ours_gflops = 0, ratio = 0, share = 0, spread = 0;
  bool noisy = false;
};

Row measure(const Shape& s, GemmIsa isa, SpinWorkers& workers, int rounds) {
  Buffer a(s.m * s.k), b(s.k * s.n), c(s.m * s.n), c_other(s.m * s.n);
  fill(a, 1), fill(b, 2);
  Gemm g;
  g.m = s.m, g.n = s.n, g.k = s.k;
  g.a.data = a.floats(), g.b.data = b.floats(), g.c = c.floats();
  g.a.row_stride = s.a_transposed ? 1 : s.k, g.a.col_stride = s.a_transposed ? s.m : 1;
  g.b.row_stride = s.b_transposed ? 1 : s.n, g.b.col_stride = s.b_transposed ? s.k : 1;
  g.c_row_stride = s.n;
  Buffer workspace(gemm_workspace_bytes(g, isa, workers.num_threads()) / 4 + 16);
  const auto ours = [&] { gemm(g, isa, workspace.floats(), workers); };
  const auto theirs = [&] {
    dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a.floats(),
               s.a_transposed ? s.m : s.k, b.floats(), s.b_transposed ? s.k : s.n, 0.0f, c_other.floats(), s.n);
  };
  set_onednn_threads(workers.num_threads());
  ours(), theirs();
  double worst = 0;
  for (int64_t i = 0; i < s.m * s.n; ++i)
    worst = std::max(worst, std::abs(static_cast<double>(c.floats()[i]) - c_other.floats()[i]));
  if (worst > 1e-3 * std::sqrt(static_cast<double>(s.k))) {
    fmt::print("{} differs from oneDNN by {}\n", title(s), worst);
    std::exit(1);
  }

  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  std::vector<double> ratios, shares, rates;
  bool noisy = false;
  for (int round = 0, tries = 0; round < rounds; ++tries) {
    const double peak_before = fma_peak_gflops(isa, workers);
    const double ours_s = best_seconds(ours, 0.02);
    const double peak_between = fma_peak_gflops(isa, workers);
    const double theirs_s = best_seconds(theirs, 0.02);
    rest();  // OpenMP's threads spin on for a while
    const double peak_after = fma_peak_gflops(isa, workers);
    const auto [low, high] = std::minmax({peak_before, peak_between, peak_after});
    if (high > 1.1 * low) {  // the machine changed meanwhile: again, or say so
      if (tries < 2 * rounds) continue;
      noisy = true;
    }
    ratios.push_back(theirs_s / ours_s);
    rates.push_back(flops / ours_s * 1e-9);
    shares.push_back(rates.back() / std::max(peak_before, peak_between));
    ++round;
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {s, median(rates), median(ratios), median(shares), *high / *low - 1, noisy};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> thread_counts = {1, 2};
  int rounds = 5;
  std::string only;
  GemmIsa isa = __builtin_cpu_supports("avx512f") ? GemmIsa::avx512 : GemmIsa::avx2;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") {
      thread_counts.clear();
      for (size_t at = 0; at < value.size();
           at = value.find(',', at) == std::string::npos ? value.size() : value.find(',', at) + 1)
        thread_counts.push_back(std::atoi(value.c_str() + at));
    } else if (flag == "--rounds") {
      rounds = std::atoi(value.c_str());
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--isa") {
      isa = value == "avx2" ? GemmIsa::avx2 : GemmIsa::avx512;
    } else {
      fmt::print("usage: gemm_bench [--threads 1,2] [--rounds 5] [--only SUBSTRING] [--isa avx512|avx2]\n");
      return 2;
    }
  }
  for (int threads : thread_counts) {
    SpinWorkers workers(threads);
    fmt::print("\n{} thread{}, {}, oneDNN {}.{}.{}, median of {} rounds\n", threads, threads > 1 ? "s" : "",
               isa == GemmIsa::avx2 ? "avx2" : "avx512", dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch,
               rounds);
    fmt::print("{:<26}{:<32}{:>9}{:>9}{:>10}{:>9}\n", "", "product", "GFLOP/s", "of peak", "x oneDNN", "spread");
    double log_sum = 0, worst = 1e9, least_share = 1;
    int count = 0;
    for (const Shape& s : shapes()) {
      if (title(s).find(only) == std::string::npos) continue;
      const Row row = measure(s, isa, workers, rounds);
      fmt::print("{:<26}{:<32}{:>9.1f}{:>8.1f}%{:>10.3f}{:>8.1f}%{}\n", s.group, title(s), row.ours_gflops, 100 * row.share,
                 row.ratio, 100 * row.spread, row.noisy ? "  too noisy" : "");
      std::fflush(stdout);
      log_sum += std::log(row.ratio), worst = std::min(worst, row.ratio), ++count;
      if (s.is_large()) least_share = std::min(least_share, row.share);
    }
    if (count > 0)
      fmt::print("geometric mean {:.3f}, lowest {:.3f}; least share of the peak among large ones {:.1f} %\n",
                 std::exp(log_sum / count), worst, 100 * least_share);
  }
}

#else
int main() { fmt::print("built without oneDNN: nothing to compare with\n"); }
#endif
