// Row kernels and optimizer updates against the bandwidth probed beside them, for sets that sit in L2 and sets that come from memory, and
// against oneDNN where it has the operation: a Markdown table. One thread. A kernel's roof is the time in which its arguments can be read
// once and its results written once: pairs of read and write at the rate of a copy of as many bytes, other reads at the rate of a sum.
// Probe, kernel and oneDNN in turn; medians of the rounds.
//   bench_rows_bench [--rounds 5] [--only SUBSTRING]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>

#include "analysis/roof_probes.h"
#include "backend/cpu/isa.h"
#include "gemm_bench_support.h"
#include "random_tensor.h"
#include "support/flags.h"
#include "support/float_mode.h"
#include "wholestep/wholestep.h"
#ifdef WS_HAVE_DNNL
#include <dlfcn.h>
#include <dnnl.hpp>
#endif

namespace {

using namespace ws;
using bench::Buffer, bench::best_seconds, bench::median, bench::random_tensor, bench::thread_seconds;

constexpr int64_t kColumns = 512;

Tensor random_labels(int64_t rows, int64_t classes) {
  std::vector<int32_t> values(static_cast<size_t>(rows));
  std::mt19937 random(7);
  for (int32_t& x : values) x = static_cast<int32_t>(random() % static_cast<unsigned>(classes));
  return Tensor::from(std::span<const int32_t>(values), Shape{rows});
}

/// A compiled program that does the kernel's work, its inputs, and whatever must live as long.
struct Work {
  std::function<Profile(int rounds)> profile;
  double read_bytes, written_bytes;
};

/// oneDNN's version of the same; empty where it has none.
using Other = std::function<std::function<void()>(int64_t rows)>;

struct Case {
  std::string name;
  double bytes_per_row;  // read and written, for the size of the set
  std::function<Work(int64_t rows)> make;
  Other other;
};

template <class Step>
Work work(Step step, std::vector<Tensor> inputs, double read, double written) {
  auto compiled = std::make_shared<Step>(std::move(step));
  return {[compiled, inputs](int rounds) { return compiled->profile(inputs, Roofs(), rounds); }, read, written};
}

constexpr double kRow = 4.0 * kColumns;

template <class Norm>
struct Normed final : Module {
  Norm norm{*this, "norm", kColumns};
  Normed() : Module(Key(0)) {}
  Tensor forward(const Tensor& x) const override { return norm(x); }
};

/// y = norm(x): reads x, writes y.
template <class Norm>
Work norm_forward(int64_t rows) {
  auto norm = std::make_shared<Normed<Norm>>();
  auto step = jit([norm](const Tensor& x) { return (*norm)(x); }, *norm);
  return work(std::move(step), {random_tensor({rows, kColumns}, 1)}, kRow * rows, kRow * rows);
}

/// Forward, summed with the upstream gradient so that there is a loss, then backward: each reads x and the upstream gradient; writes the
/// gradient of x.
template <class Norm>
Work norm_gradient(int64_t rows) {
  auto norm = std::make_shared<Normed<Norm>>();
  Variable x("x", random_tensor({rows, kColumns}, 1), true);
  std::vector<Variable> wanted = norm->parameters();
  wanted.push_back(x);
  auto step =
      jit([=](const Tensor& upstream) { return grad(((*norm)(x.value()) * upstream).sum({1}).sum(), wanted).values; }, wanted);
  return work(std::move(step), {random_tensor({rows, kColumns}, 2)}, 4 * kRow * rows, kRow * rows);
}

Work softmax_forward(int64_t rows) {
  return work(jit([](const Tensor& x) { return softmax(x); }), {random_tensor({rows, kColumns}, 1)}, kRow * rows, kRow * rows);
}

/// Loss and gradient: reads the logits, writes their gradient.
Work cross_entropy_gradient(int64_t rows) {
  std::vector<Variable> logits{Variable("logits", random_tensor({rows, kColumns}, 1), true)};
  auto step = jit(
      [=](const Tensor& labels) {
        Tensor loss = cross_entropy(logits[0].value(), labels);
        std::vector<Tensor> results = grad(loss, logits).values;
        results.push_back(loss);
        return results;
      },
      logits);
  return work(std::move(step), {random_labels(rows, kColumns)}, kRow * rows, kRow * rows);
}

/// An optimizer's update of a matrix from a gradient that is there; `state` moments an element.
template <class Rule>
Work update(int64_t rows, std::shared_ptr<Rule> optimizer, int state) {
  std::vector<Variable> w{Variable("w", random_tensor({rows, kColumns}, 1), true)};
  optimizer->attach(w);
  auto step = jit(
      [=](const Tensor& gradient) {
        optimizer->update({w, {gradient}, {}});
        return std::vector<Tensor>{};
      },
      w, *optimizer);
  return work(std::move(step), {random_tensor({rows, kColumns}, 2)}, (2.0 + state) * kRow * rows, (1.0 + state) * kRow * rows);
}

#ifdef WS_HAVE_DNNL
struct Dnnl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::memory::desc matrix(int64_t rows) const {
    return {{rows, kColumns}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::ab};
  }
  dnnl::memory filled(const dnnl::memory::desc& desc) const {
    dnnl::memory m(desc, engine);
    std::mt19937 random(3);
    auto* data = static_cast<float*>(m.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / 4; ++i) data[i] = static_cast<float>(random() % 1000) * 1e-3f;
    return m;
  }
};

std::function<void()> dnnl_layer_norm(int64_t rows) {
  auto d = std::make_shared<Dnnl>();
  using Norm = dnnl::layer_normalization_forward;
  Norm::primitive_desc desc(
      {dnnl::prop_kind::forward_inference, d->matrix(rows), 1e-5f, dnnl::normalization_flags::use_scale_shift}, d->engine);
  std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, d->filled(d->matrix(rows))},
                                                     {DNNL_ARG_DST, d->filled(d->matrix(rows))},
                                                     {DNNL_ARG_SCALE_SHIFT, d->filled(desc.weights_desc())}};
  return [d, run = Norm(desc), arguments]() mutable { run.execute(d->stream, arguments), d->stream.wait(); };
}

std::function<void()> dnnl_layer_norm_gradient(int64_t rows) {
  auto d = std::make_shared<Dnnl>();
  using Forward = dnnl::layer_normalization_forward;
  using Backward = dnnl::layer_normalization_backward;
  const auto flags = dnnl::normalization_flags::use_scale_shift;
  Forward::primitive_desc forward({dnnl::prop_kind::forward_training, d->matrix(rows), 1e-5f, flags}, d->engine);
  Backward::primitive_desc backward({dnnl::prop_kind::backward, d->matrix(rows), d->matrix(rows), 1e-5f, flags}, d->engine,
                                    forward);
  const dnnl::memory x = d->filled(d->matrix(rows)), scale = d->filled(forward.weights_desc()),
                     mean = d->filled(forward.mean_desc()), variance = d->filled(forward.variance_desc());
  std::unordered_map<int, dnnl::memory> there = {{DNNL_ARG_SRC, x},
                                                 {DNNL_ARG_DST, d->filled(d->matrix(rows))},
                                                 {DNNL_ARG_SCALE_SHIFT, scale},
                                                 {DNNL_ARG_MEAN, mean},
                                                 {DNNL_ARG_VARIANCE, variance}};
  std::unordered_map<int, dnnl::memory> back = {{DNNL_ARG_SRC, x},
                                                {DNNL_ARG_DIFF_DST, d->filled(d->matrix(rows))},
                                                {DNNL_ARG_DIFF_SRC, d->filled(d->matrix(rows))},
                                                {DNNL_ARG_SCALE_SHIFT, scale},
                                                {DNNL_ARG_DIFF_SCALE_SHIFT, d->filled(backward.diff_weights_desc())},
                                                {DNNL_ARG_MEAN, mean},
                                                {DNNL_ARG_VARIANCE, variance}};
  return [d, f = Forward(forward), b = Backward(backward), there, back]() mutable {
    f.execute(d->stream, there), b.execute(d->stream, back), d->stream.wait();
  };
}

std::function<void()> dnnl_softmax(int64_t rows) {
  auto d = std::make_shared<Dnnl>();
  using Softmax = dnnl::softmax_forward;
  Softmax::primitive_desc desc({dnnl::prop_kind::forward_inference, d->matrix(rows), 1}, d->engine);
  std::unordered_map<int, dnnl::memory> arguments = {{DNNL_ARG_SRC, d->filled(d->matrix(rows))},
                                                     {DNNL_ARG_DST, d->filled(d->matrix(rows))}};
  return [d, run = Softmax(desc), arguments]() mutable { run.execute(d->stream, arguments), d->stream.wait(); };
}
#else
const Other dnnl_layer_norm, dnnl_layer_norm_gradient, dnnl_softmax;
#endif

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"RMSNorm", 2 * kRow, norm_forward<RMSNorm>, {}},
      {"LayerNorm", 2 * kRow, norm_forward<LayerNorm>, dnnl_layer_norm},
      {"softmax", 2 * kRow, softmax_forward, dnnl_softmax},
      {"RMSNorm, forward and gradient", 3 * kRow, norm_gradient<RMSNorm>, {}},
      {"LayerNorm, forward and gradient", 3 * kRow, norm_gradient<LayerNorm>, dnnl_layer_norm_gradient},
      {"softmax cross-entropy and gradient", 2 * kRow, cross_entropy_gradient, {}},
      {"SGD", 3 * kRow, [](int64_t rows) { return update(rows, std::make_shared<SGD>(SGDOptions{.lr = 0.01}), 0); }, {}},
      {"SGD, momentum",
       5 * kRow,
       [](int64_t rows) { return update(rows, std::make_shared<SGD>(SGDOptions{.lr = 0.01, .momentum = 0.9}), 1); },
       {}},
      {"AdamW", 7 * kRow, [](int64_t rows) { return update(rows, std::make_shared<AdamW>(AdamWOptions{.lr = 0.001}), 2); }, {}},
  };
  return all;
}

/// Least seconds in which so many bytes can be read and written, from probes on sets of the same size.
double roof_seconds(double read, double written, cpu::Isa isa, double budget) {
  const auto floats = [](double bytes) { return std::max<int64_t>(static_cast<int64_t>(bytes / 4) / 128 * 128, 128); };
  const double both = std::min(read, written);
  const int64_t half = floats((read + written) / 2), all = floats(read + written);
  Buffer set(all + 128);
  const int64_t rounds = std::max<int64_t>(1, static_cast<int64_t>(1e6 / (read + written)));
  const double copy =
      best_seconds([&] { copy_probe(isa, set.floats() + half, set.floats(), half, rounds); }, budget, thread_seconds) /
      static_cast<double>(rounds * half * 8);
  const double sum = best_seconds([&] { read_probe(isa, set.floats(), all, rounds); }, budget, thread_seconds) /
                     static_cast<double>(rounds * all * 4);
  return 2 * both * copy + (read - both) * sum;
}

void run(const Case& c, const char* level, double set_bytes, int rounds, cpu::Isa isa) {
  const auto rows = std::max<int64_t>(static_cast<int64_t>(set_bytes / c.bytes_per_row), 1);
  const Work ours = c.make(rows);
  const std::function<void()> theirs = c.other ? c.other(rows) : std::function<void()>();
  const double bytes = ours.read_bytes + ours.written_bytes, budget = 0.02;
  const int steps = std::clamp(static_cast<int>(2e7 / bytes), 3, 200);
  std::vector<double> seconds, share, ratio;
  std::string kernels;
  for (int round = -1; round < rounds; ++round) {
    const double roof = roof_seconds(ours.read_bytes, ours.written_bytes, isa, budget);
    const Profile profile = ours.profile(steps);
    if (round < 0) continue;  // compiles, touches memory
    double time = 0;
    for (const Profile::Kernel& k : profile.kernels) time += k.seconds;
    kernels = std::to_string(profile.kernels.size());
    seconds.push_back(time), share.push_back(roof / time);
    if (theirs) ratio.push_back(best_seconds(theirs, budget, thread_seconds) / time);
  }
  fmt::print("| {} | {} | {} x {} | {} | {:.1f} | {:.1f} | {:.0f} % | {} |\n", c.name, level, rows, kColumns, kernels,
             1e6 * median(seconds), bytes / median(seconds) * 1e-9, 100 * median(share),
             theirs ? fmt::format("{:.2f}", median(ratio)) : "");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 5;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rounds") rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::string(argv[i]) == "--only") only = argv[i + 1];
  }
  set_flag("threads", "1", "this benchmark");
#ifdef WS_HAVE_DNNL
  if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(1);
#endif
  const cpu::Isa isa = cpu::best_isa();
  double l2 = 1 << 20, l3 = 32 << 20;
  for (const Roofs::Level& level : machine_roofs(1).levels) {
    if (level.name == "L2") l2 = static_cast<double>(level.bytes);
    if (level.name == "L3") l3 = static_cast<double>(level.bytes);
  }
  fmt::print("One thread, {}, fp32, rows of {}; medians of {} rounds:\n\n", cpu::name_of(isa), kColumns, rounds);
  fmt::print(
      "| kernel | data in | rows x columns | kernels | us | GB/s | of roof | oneDNN / this "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : cases()) {
    if (c.name.find(only) == std::string::npos) continue;
    run(c, "L2", l2 / 2, rounds, isa);
    run(c, "memory", std::clamp(4 * l3, 128e6, 512e6), rounds, isa);
  }
}
