// GEMM against oneDNN and against a measured peak, on shapes of whole training steps, in fp32 and in bf16 (operands and result).
//   gemm_bench [--threads 1,2] [--rounds 5] [--shapes steps,thin,deep] [--only SUBSTRING] [--isa avx2|avx512|avx512_bf16] [--dtype f32|bf16]
//              [--markdown 1]
// Noise-proof: sides are interleaved, each round gives one ratio, the median of the ratios counts; a probe of the peak runs around
// every round. Absolute figures drift with the machine's clock, ratios do not.
#include <fmt/core.h>

#if defined(WS_HAVE_DNNL) && defined(__x86_64__)
#include <dlfcn.h>
#include <dnnl.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/isa.h"
#include "gemm_bench_support.h"
#include "support/bf16.h"
#include "support/float_mode.h"

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

struct ShapeList {
  const char *name, *title;
  std::vector<Shape> shapes;
};

const std::vector<ShapeList>& shape_lists() {
  static const std::vector<Shape> steps = {
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
      {"wide", 512, 1024, 2048},
      {"wide", 2048, 2048, 2048},
  };
  static const std::vector<Shape> thin = {
      {"one row", 1, 512, 512},
      {"one row", 1, 512, 512, false, true},
      {"one row", 1, 4096, 4096},
      {"one column", 4096, 512, 1},
      {"few rows", 8, 512, 512},
      {"few rows", 6, 4096, 4096},
      {"small head", 256, 512, 10},
      {"small head gradient", 512, 256, 10, true},
      {"small head gradient", 512, 8192, 10, true},
      {"small head gradient", 8192, 28, 512, false, true},
      {"few features", 256, 13, 512},
      {"few features", 4096, 13, 256},
      {"shallow", 2048, 16, 2048},
      {"shallow", 2048, 128, 2048},
  };
  static const std::vector<Shape> deep = {
      {"dot", 1, 100000, 1},
      {"few chains", 4, 100000, 1},
      {"few chains", 1, 100000, 16},
      {"few chains", 8, 100000, 8, true},
      {"narrow layers", 16, 100000, 16, true},
      {"narrow layers", 32, 8192, 32, true},
      {"narrow layers", 64, 100000, 64, true},
      {"narrow layers", 128, 8192, 16, true},
      {"narrow layers", 256, 8192, 64, true},
      {"convolution", 27, 100000, 32, true},
      {"convolution", 288, 65536, 32, true},
  };
  static const std::vector<ShapeList> all = {
      {"steps", "products of whole steps", steps}, {"thin", "thin products", thin}, {"deep", "small results of a deep k", deep}};
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
  double ours_gflops = 0, theirs_gflops = 0, ratio = 0, share = 0, spread = 0, error = 0;
  bool noisy = false;
};

/// One product and its operands.
struct Product {
  Product(const Shape& shape, DType dtype, GemmIsa isa, Workers& workers)
      : s(shape), a(s.m * s.k), b(s.k * s.n), c(s.m * s.n), c_other(s.m * s.n), a16(s.m * s.k), b16(s.k * s.n) {
    fill(a, 1), fill(b, 2);
    const bool is_bf16 = dtype == DType::bf16;
    if (is_bf16) round(a, a16), round(b, b16);
    g.m = s.m, g.n = s.n, g.k = s.k;
    g.operand_dtype = g.result_dtype = dtype;
    g.a.data = a.floats(), g.b.data = b.floats();
    if (is_bf16) g.a.data = a16.data(), g.b.data = b16.data();
    g.c = c.floats();
    g.a.row_stride = s.a_transposed ? 1 : s.k, g.a.col_stride = s.a_transposed ? s.m : 1;
    g.b.row_stride = s.b_transposed ? 1 : s.n, g.b.col_stride = s.b_transposed ? s.k : 1;
    g.c_row_stride = s.n;
    workspace = std::make_unique<Buffer>(gemm_workspace_bytes(g, isa, workers.num_threads()) / 4 + 16);
    if (is_bf16) make_primitive();
  }
  /// oneDNN has no product of bf16 where the processor has none.
  bool has_theirs() const { return g.operand_dtype == DType::f32 || primitive; }
  void theirs() {
    if (!has_theirs()) return;
    if (g.operand_dtype == DType::f32)
      dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a.floats(),
                 s.a_transposed ? s.m : s.k, b.floats(), s.b_transposed ? s.k : s.n, 0.0f, c_other.floats(), s.n);
    else
      primitive.execute(stream, arguments), stream.wait();
  }
  float result(void* from, int64_t i) const {
    return g.result_dtype == DType::bf16 ? widen(static_cast<const Bf16*>(from)[i]) : static_cast<const float*>(from)[i];
  }
  /// The largest error of some elements against double precision, by the size of what is summed.
  double error() {
    double worst = 0;
    for (int64_t t = 0; t < 500; ++t) {
      const int64_t i = t * 7919 % s.m, j = t * 104729 % s.n;
      double sum = 0, size = 0;
      for (int64_t p = 0; p < s.k; ++p) {
        const double term = static_cast<double>(a.floats()[i * g.a.row_stride + p * g.a.col_stride]) *
                            static_cast<double>(b.floats()[p * g.b.row_stride + j * g.b.col_stride]);
        sum += term, size += term * term;
      }
      worst = std::max(worst, std::abs(static_cast<double>(result(g.c, i * s.n + j)) - sum) / std::sqrt(size));
    }
    return worst;
  }

  Shape s;
  Buffer a, b, c, c_other;
  std::vector<Bf16> a16, b16;
  Gemm g;
  std::unique_ptr<Buffer> workspace;

 private:
  static void round(Buffer& x, std::vector<Bf16>& to) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = narrow(x.floats()[i]), x.floats()[i] = widen(to[i]);
  }
  void make_primitive() {
    using dnnl::memory;
    const auto type = memory::data_type::bf16;
    const memory::desc a_desc({s.m, s.k}, type, memory::dims{g.a.row_stride, g.a.col_stride}),
        b_desc({s.k, s.n}, type, memory::dims{g.b.row_stride, g.b.col_stride}), c_desc({s.m, s.n}, type, memory::dims{s.n, 1});
    try {
      primitive = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a_desc, b_desc, c_desc), engine));
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
    arguments = {{DNNL_ARG_SRC, memory(a_desc, engine, a16.data())},
                 {DNNL_ARG_WEIGHTS, memory(b_desc, engine, b16.data())},
                 {DNNL_ARG_DST, memory(c_desc, engine, c_other.floats())}};
  }
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::unordered_map<int, dnnl::memory> arguments;
};

Row measure(const Shape& s, DType dtype, GemmIsa isa, SpinWorkers& workers, int rounds) {
  Product product(s, dtype, isa, workers);
  const auto ours = [&] { gemm(product.g, isa, product.workspace->floats(), workers); };
  const auto theirs = [&] { product.theirs(); };
  set_onednn_threads(workers.num_threads());
  ours(), theirs();
  double worst = 0;
  for (int64_t i = 0; i < s.m * s.n && product.has_theirs(); ++i) {
    const double x = product.result(product.c.floats(), i), y = product.result(product.c_other.floats(), i);
    worst = std::max(worst, std::abs(x - y) - (dtype == DType::bf16 ? 0x1p-7 * std::abs(y) : 0));
  }
  if (worst > 1e-3 * std::sqrt(static_cast<double>(s.k))) {
    fmt::print("{} differs from oneDNN by {}\n", title(s), worst);
    std::exit(1);
  }

  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const auto clock = workers.num_threads() == 1 ? thread_seconds : now_seconds;
  const auto peak = [&] { return peak_gflops(isa, dtype, workers); };
  std::vector<double> ratios, shares, rates, their_rates;
  bool noisy = false;
  for (int round = 0, tries = 0; round < rounds; ++tries) {
    const double peak_before = peak();
    const double ours_s = best_seconds(ours, 0.02, clock);
    const double peak_between = peak();
    const double theirs_s = product.has_theirs() ? best_seconds(theirs, 0.02, clock) : NAN;
    rest();  // OpenMP's threads spin on for a while
    const double peak_after = peak();
    const auto [low, high] = std::minmax({peak_before, peak_between, peak_after});
    if (high > 1.1 * low) {  // the machine changed meanwhile: again, or say so
      if (tries < 2 * rounds) continue;
      noisy = true;
    }
    ratios.push_back(theirs_s / ours_s);
    rates.push_back(flops / ours_s * 1e-9);
    their_rates.push_back(flops / theirs_s * 1e-9);
    shares.push_back(rates.back() / std::max(peak_before, peak_between));
    ++round;
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {s, median(rates), median(their_rates), median(ratios), median(shares), *high / *low - 1, product.error(), noisy};
}

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "gemm_bench: {}; see the comment at the top of bench/gemm_bench.cc\n", what);
  std::exit(2);
}

GemmIsa isa_named(const std::string& name) {
  const std::vector<std::string> names = {"amx_model", "portable", "avx2", "avx512", "avx512_bf16", "amx"};
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) fail("--isa: there is no " + name);
  return static_cast<GemmIsa>(at - names.begin());
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size(); at = std::min(list.find(',', at), list.size()) + 1)
    words.push_back(list.substr(at, std::min(list.find(',', at), list.size()) - at));
  return words;
}

void print_row(const Row& row, bool markdown) {
  const std::string name = title(row.shape), theirs = std::isnan(row.ratio) ? "none" : fmt::format("{:.1f}", row.theirs_gflops),
                    ratio = std::isnan(row.ratio) ? "" : fmt::format("{:.2f}", row.ratio),
                    noisy = row.noisy ? " (too noisy)" : "";
  if (markdown)
    fmt::print("| {} | {:.1f} | {} | {} | {:.0f} %{} | {:.1e} |\n", name, row.ours_gflops, theirs, ratio, 100 * row.share, noisy,
               row.error);
  else
    fmt::print("{:<26}{:<32}{:>9.1f}{:>9}{:>8}{:>8.1f}%{:>8.1f}%{:>10.1e}{}\n", row.shape.group, name, row.ours_gflops, theirs,
               ratio, 100 * row.spread, 100 * row.share, row.error, noisy);
  std::fflush(stdout);
}

/// The products of a list whose title has `only` in it, and what they come to.
void print_table(const ShapeList& list, const std::string& only, DType dtype, GemmIsa isa, const std::string& isa_name,
                 int threads, int rounds, bool markdown) {
  SpinWorkers workers(threads);
  fmt::print("\n{}, {} thread{}, {}, {}, oneDNN {}.{}.{}, median of {} rounds\n\n", name_of(dtype), threads,
             threads == 1 ? "" : "s", list.title, isa_name, dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch,
             rounds);
  if (markdown)
    fmt::print("| product | GFLOP/s | oneDNN | ratio | of peak | error |\n|---|---|---|---|---|---|\n");
  else
    fmt::print("{:<26}{:<32}{:>9}{:>9}{:>8}{:>9}{:>9}{:>10}\n", "", "product", "GFLOP/s", "oneDNN", "ratio", "spread", "of peak",
               "error");
  double log_sum = 0, worst = 1e9, least_share = 1;
  int count = 0;
  bool has_large = false;
  for (const Shape& s : list.shapes) {
    if (title(s).find(only) == std::string::npos) continue;
    const Row row = measure(s, dtype, isa, workers, rounds);
    print_row(row, markdown);
    if (!std::isnan(row.ratio)) log_sum += std::log(row.ratio), worst = std::min(worst, row.ratio);
    ++count;
    if (!s.is_large()) continue;
    has_large = true;
    least_share = std::min(least_share, row.share);
  }
  if (count == 0) return;
  if (worst < 1e9)
    fmt::print("\nGeometric mean of the ratios {:.3f}, lowest {:.3f}", std::exp(log_sum / count), worst);
  else
    fmt::print("\noneDNN has no product of {} on this processor", name_of(dtype));
  if (has_large) fmt::print("; least share of the peak among large ones {:.1f} %", 100 * least_share);
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::string thread_counts = "1,2", only, isa_name(name_of(best_isa())), dtypes = "f32,bf16", lists = "steps,thin,deep";
  int rounds = 5;
  bool markdown = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) fail(flag + " wants a value");
    const std::string value = argv[i + 1];
    if (flag == "--threads")
      thread_counts = value;
    else if (flag == "--rounds")
      rounds = std::atoi(value.c_str());
    else if (flag == "--shapes")
      lists = value;
    else if (flag == "--only")
      only = value;
    else if (flag == "--isa")
      isa_name = value;
    else if (flag == "--dtype")
      dtypes = value;
    else if (flag == "--markdown")
      markdown = value == "1";
    else
      fail(flag + "?");
  }
  const GemmIsa isa = isa_named(isa_name);
  const FlushDenormals mode;
  for (const std::string& dtype_name : words_of(dtypes)) {
    const auto dtype = dtype_from_name(dtype_name);
    if (!dtype || (*dtype != DType::f32 && *dtype != DType::bf16)) fail("--dtype: no products of " + dtype_name);
    for (const std::string& threads : words_of(thread_counts)) {
      if (std::atoi(threads.c_str()) < 1) fail("--threads: " + threads + " is no count");
      for (const std::string& name : words_of(lists)) {
        const auto is_named = [&](const ShapeList& list) { return name == list.name; };
        const auto list = std::find_if(shape_lists().begin(), shape_lists().end(), is_named);
        if (list == shape_lists().end()) fail("--shapes: there is no list " + name);
        print_table(*list, only, *dtype, isa, isa_name, std::atoi(threads.c_str()), rounds, markdown);
      }
    }
  }
}

#else
int main() { fmt::print("built without oneDNN: nothing to compare with\n"); }
#endif
