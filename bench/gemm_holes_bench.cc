// What a fused store costs over the plain product (issue: at most 5 % in fp32 where k >= 512): compiled graphs, as a step runs them.
//   gemm_holes_bench [THREADS] [ROUNDS] [1: as markdown]
// Both sides in turn, one ratio a round, the median counts; one thread is timed by its own processor time.
#include <fmt/core.h>

#include <bit>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gemm_bench_support.h"
#include "ir/graph.h"
#include "runtime/executable.h"

namespace {

using namespace ws;
using namespace ws::bench;

struct Case {
  const char* name;
  const char* body;  // from %p, the product, to %y
};

/// Products [m, k] x [k, n] of `dtype`; %r is as large as the result, %b a row.
std::string graph_text(const Case& c, const char* dtype, int64_t m, int64_t k, int64_t n) {
  std::string text = R"(graph main(%x: DTYPE[M, K], %w: DTYPE[K, N], %r: f32[M, N], %b: f32[N]) {
    %p = matmul %x, %w {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[M, N]
    BODY
    return %y "y"
  })";
  const auto replace = [&](const std::string& word, const std::string& by) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size()) text.replace(at, word.size(), by);
  };
  if (std::string(c.body).empty()) replace("return %y", "return %p");
  replace("BODY", c.body);
  replace("DTYPE", dtype);
  replace("[M, K]", fmt::format("[{}, {}]", m, k));
  replace("[K, N]", fmt::format("[{}, {}]", k, n));
  replace("[M, N]", fmt::format("[{}, {}]", m, n));
  replace("[N]", fmt::format("[{}]", n));
  return text;
}

struct Run {
  Run(const std::string& text, int threads) : graph(parse(text)) {
    executable = Executable::compile(graph, {.num_threads = threads, .input_layouts = {}});
    int seed = 0;
    for (const GraphInput& in : graph.inputs()) {
      const Type& t = graph.type_of(in.value);
      memory.push_back(std::make_unique<Buffer>(t.shape.num_elements()));
      fill(*memory.back(), static_cast<unsigned>(++seed));
      // Random bits are no numbers: a bf16 operand takes the upper halves.
      if (t.dtype == DType::bf16)
        for (int64_t i = 0; i < t.shape.num_elements(); ++i)
          reinterpret_cast<uint16_t*>(memory.back()->floats())[i] =
              static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(i % 251) / 251.0f) >> 16);
      inputs.push_back(memory.back()->floats());
    }
    memory.push_back(std::make_unique<Buffer>(graph.type_of(graph.outputs()[0].value).shape.num_elements()));
    outputs = {memory.back()->floats()};
  }
  void operator()() { executable->run(inputs.data(), outputs.data()); }
  Graph graph;
  std::unique_ptr<Executable> executable;
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<void*> inputs, outputs;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const bool markdown = argc > 3 && std::string(argv[3]) == "1";
  const std::vector<Case> cases = {
      {"bias", "%c = broadcast %b {shape = [M, N]} : f32[M, N]\n%y = add %p, %c : f32[M, N]"},
      {"relu", "%y = relu %p : f32[M, N]"},
      {"residual", "%y = add %p, %r : f32[M, N]"},
      {"cast to bf16", "%y = cast %p {dtype = bf16} : bf16[M, N]"},
  };
  struct Size {
    int64_t m, k, n;
  };
  if (markdown)
    fmt::print("\n| store | product | f32 | bf16 |\n|---|---|---|---|\n");
  else
    fmt::print("fused over plain, {} thread(s), median of {} rounds\n", threads, rounds);
  for (const Size& s : std::vector<Size>{{8192, 512, 512}, {8192, 1365, 512}, {4096, 1024, 256}})
    for (const Case& c : cases) {
      fmt::print(fmt::runtime(markdown ? "| {} | [{}x{}] x [{}x{}] |" : "{:<14} [{}x{}] x [{}x{}]  "), c.name, s.m, s.k, s.k,
                 s.n);
      for (const char* dtype : {"f32", "bf16"}) {
        Run plain(graph_text({"plain", ""}, dtype, s.m, s.k, s.n), threads);
        Run fused(graph_text(c, dtype, s.m, s.k, s.n), threads);
        plain(), fused();
        std::vector<double> ratios;
        const auto clock = threads == 1 ? thread_seconds : now_seconds;
        for (int round = 0; round < rounds; ++round) {
          const double plain_s = best_seconds(plain, 0.03, clock);
          ratios.push_back(best_seconds(fused, 0.03, clock) / plain_s);
        }
        fmt::print(fmt::runtime(markdown ? " {:+.1f} % |" : "  {:+.1f} %"), 100 * (median(ratios) - 1));
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
}
