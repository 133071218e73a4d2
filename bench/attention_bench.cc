// attention() against the same thing written out (matmul, softmax, matmul; both compiled), forward and backward, in turn: a Markdown
// table. Processor time of one thread, so that a busy machine only blurs it; medians of the rounds; peak is that of FMAs, or of dot
// products for bf16 where the machine has them, probed beside each round; FLOPs are those of visible pairs with the products that a
// backward pass without stored scores needs (14 a pair and feature).
//   bench_attention_bench [--rounds N] [--dtype f32|bf16]
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "analysis/roof_probes.h"
#include "backend/cpu/isa.h"
#include "gemm_bench_support.h"
#include "random_tensor.h"
#include "support/flags.h"
#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace {

using namespace ws;
using bench::median, bench::random_tensor, bench::thread_seconds;
using cpu::Isa;

struct Problem {
  int64_t batch, heads, length, size;
  bool causal;
  DType dtype;
};

double seconds_of(const auto& body) {
  const double start = thread_seconds();
  body();
  return thread_seconds() - start;
}

Tensor mask_of(int64_t length) {
  std::vector<float> mask(static_cast<size_t>(length * length), 0.0f);
  for (int64_t t = 0; t < length; ++t)
    for (int64_t s = t + 1; s < length; ++s) mask[static_cast<size_t>(t * length + s)] = -std::numeric_limits<float>::infinity();
  return Tensor::from(std::span<const float>(mask), {length, length});
}

/// Forward and backward of a function of q, k and v, compiled.
template <class Attend>
auto step_of(const Attend& attend, std::vector<Variable> qkv, DType dtype) {
  return jit(
      [=](const Tensor& upstream) {
        const auto in_dtype = [&](size_t i) { return qkv[i].value().cast(dtype); };
        const Tensor out = attend(in_dtype(0), in_dtype(1), in_dtype(2));
        return grad((out.cast(DType::f32) * upstream).sum(), qkv).values;
      },
      qkv);
}

void compare(const Problem& p, int rounds, Isa isa) {
  const Shape shape{p.batch, p.length, p.heads, p.size};
  std::vector<Variable> qkv;
  for (unsigned i = 0; i < 3; ++i) qkv.emplace_back(std::string(1, "qkv"[i]), random_tensor(shape, i + 1), true);
  const Tensor upstream = random_tensor(shape, 9), mask = mask_of(p.length);
  const double scale = 1 / std::sqrt(static_cast<double>(p.size));
  auto fused =
      step_of([&](const Tensor& q, const Tensor& k, const Tensor& v) { return attention(q, k, v, p.causal); }, qkv, p.dtype);
  auto written_out = step_of(
      [&](const Tensor& q, const Tensor& k, const Tensor& v) {
        const auto heads_first = [](const Tensor& x) { return x.transpose({0, 2, 1, 3}).contiguous(); };
        Tensor scores = matmul(heads_first(q), heads_first(k), false, true) * scale;
        if (p.causal) scores = scores + mask;
        return matmul(softmax(scores).cast(p.dtype), heads_first(v)).transpose({0, 2, 1, 3});
      },
      qkv, p.dtype);
  const bool dot_products = p.dtype == DType::bf16 && isa >= Isa::avx512_bf16;
  std::vector<double> ms, ratio, share;
  for (int round = -1; round < rounds; ++round) {
    constexpr int kProbes = 100000;
    double flops = 0;
    const double probe = seconds_of([&] { flops = dot_products ? bf16_probe(kProbes) : fma_probe(isa, kProbes); });
    const double a = seconds_of([&] { fused(upstream); }), b = seconds_of([&] { written_out(upstream); });
    if (round < 0) continue;  // compiles
    const auto length = static_cast<double>(p.length);
    const double pairs = p.causal ? length * (length + 1) / 2 : length * length;
    ms.push_back(a * 1e3);
    ratio.push_back(b / a);
    share.push_back(14 * pairs * static_cast<double>(p.size * p.batch * p.heads) / a / (flops / probe));
  }
  const auto mib = [](const auto& step) { return static_cast<double>(step.memory_analysis().temporary_bytes) / (1 << 20); };
  fmt::print("| {} x {} | {} | {} | {} | {:.1f} | {:.0f} % | {:.2f} | {:.1f} | {:.1f} |\n", p.batch, p.heads, p.length,
             p.causal ? "causal" : "full", name_of(p.dtype), median(ms), 100 * median(share), median(ratio), mib(fused),
             mib(written_out));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
    if (std::string(argv[i]) == "--dtype") only = argv[i + 1];
  }
  set_flag("threads", "1", "this benchmark");
  const Isa isa = cpu::best_isa();
  fmt::print("One thread, {}, head size 64, medians of {} rounds:\n\n", cpu::name_of(isa), rounds);
  fmt::print(
      "| batch x heads | length | mask | dtype | ms | of peak | written out / this | temporaries, MiB | written out, MiB "
      "|\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool causal : {true, false})
      for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{64, 128}, {4, 1024}})
        if (only.empty() || only == name_of(dtype)) compare({batch, 8, length, 64, causal, dtype}, rounds, isa);
}
