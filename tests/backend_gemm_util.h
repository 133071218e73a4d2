// What the GEMM tests share: the contract spelled out naively, threads, guarded memory, strided operands.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "backend/cpu/gemm/cache_sizes.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/isa.h"
#include "support/bf16.h"

namespace ws::cpu::test {

/// AVX-512's on the processor where it has them, else on the model of its instructions (avx512_model/).
inline std::vector<GemmIsa> available_isas() {
  std::vector<GemmIsa> isas = {GemmIsa::portable};
#if defined(__x86_64__)
  if (supports(Isa::avx2)) isas.insert(isas.end(), {GemmIsa::avx2, GemmIsa::avx512, GemmIsa::avx512_bf16});
#endif
  return isas;
}

/// Whether it runs on a model of its instructions: large products are then left to those that have them.
inline bool is_modelled(GemmIsa isa) {
  return (isa == GemmIsa::avx512 && !supports(Isa::avx512)) || (isa == GemmIsa::avx512_bf16 && !supports(Isa::avx512_bf16));
}

inline std::string name_of(GemmIsa isa) {
  return std::vector<std::string>{"amx_model", "portable", "avx2", "avx512", "avx512_bf16", "amx"}[static_cast<size_t>(isa)];
}

/// Real threads, dynamic chunks: which thread gets what differs from run to run.
class ThreadWorkers final : public Workers {
 public:
  explicit ThreadWorkers(int threads) : threads_(threads) {}
  int num_threads() const override { return threads_; }
  void run(int64_t units, int64_t grain, Task task, void* context) override {
    std::atomic<int64_t> next{0};
    const auto work = [&](int worker) {
      for (int64_t begin; (begin = next.fetch_add(grain)) < units;) task(context, begin, std::min(begin + grain, units), worker);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads_; ++i) others.emplace_back(work, i);
    work(0);
    for (auto& t : others) t.join();
  }

 private:
  int threads_;
};

/// 64-byte aligned bytes between poisoned borders.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) : bytes_(bytes), total_((kBorder * 2 + bytes + 63) / 64 * 64) {
    memory_ = static_cast<unsigned char*>(std::aligned_alloc(64, static_cast<size_t>(total_)));
    std::memset(memory_, kPoison, static_cast<size_t>(total_));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { std::free(memory_); }
  void* data() { return memory_ + kBorder; }
  float* floats() { return reinterpret_cast<float*>(memory_ + kBorder); }
  bool intact() const {
    for (int64_t i = 0; i < kBorder; ++i)
      if (memory_[i] != kPoison) return false;
    for (int64_t i = kBorder + bytes_; i < total_; ++i)
      if (memory_[i] != kPoison) return false;
    return true;
  }

 private:
  static constexpr int64_t kBorder = 4096;
  static constexpr unsigned char kPoison = 0xA5;  // as fp32 a tiny negative number, not NaN
  int64_t bytes_, total_;
  unsigned char* memory_;
};

/// The first index where bits differ, or -1. All NaNs are equal.
inline int64_t first_difference(const float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (std::bit_cast<uint32_t>(x[i]) != std::bit_cast<uint32_t>(y[i])) return i;
  }
  return -1;
}

enum class Layout { kRowMajor, kTransposed, kBothStrided, kRowBroadcast, kColBroadcast, kScalar };
inline const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {Layout::kRowMajor,     Layout::kTransposed,   Layout::kBothStrided,
                                          Layout::kRowBroadcast, Layout::kColBroadcast, Layout::kScalar};
  return all;
}

/// A batched matrix in some layout, fp32 or bf16, in memory that ends right after its last element.
struct Matrix {
  std::vector<float> data;
  std::vector<Bf16> bf16;  // where dtype is bf16: what the operand reads; `data` then holds the same values
  DType dtype;
  GemmOperand operand;
  int64_t rows, cols;

  Matrix(int64_t batch, int64_t num_rows, int64_t num_cols, Layout layout, std::mt19937& random, bool shared_batch = false,
         DType type = DType::f32)
      : dtype(type), rows(num_rows), cols(num_cols) {
    GemmOperand& o = operand;
    switch (layout) {
      case Layout::kRowMajor: o.row_stride = cols + 3, o.col_stride = 1; break;
      case Layout::kTransposed: o.row_stride = 1, o.col_stride = rows + 5; break;
      case Layout::kBothStrided: o.row_stride = 2 * cols + 1, o.col_stride = 2; break;
      case Layout::kRowBroadcast: o.row_stride = 0, o.col_stride = 1; break;
      case Layout::kColBroadcast: o.row_stride = 1, o.col_stride = 0; break;
      case Layout::kScalar: o.row_stride = 0, o.col_stride = 0; break;
    }
    const int64_t item = rows && cols ? (rows - 1) * o.row_stride + (cols - 1) * o.col_stride + 1 : 0;
    o.batch_stride = shared_batch ? 0 : item + 7;
    data.resize(static_cast<size_t>(item + (batch - 1) * o.batch_stride));
    std::normal_distribution<float> normal;
    for (float& x : data) x = normal(random);
    data.shrink_to_fit();
    update();
  }
  /// After a change of `data`: rounds it where dtype is bf16.
  void update() {
    operand.data = data.data();
    if (dtype != DType::bf16) return;
    bf16.resize(data.size());
    for (size_t i = 0; i < data.size(); ++i) bf16[i] = narrow(data[i]), data[i] = widen(bf16[i]);
    operand.data = bf16.data();
  }
  float at(int64_t batch, int64_t i, int64_t j) const {
    return data[static_cast<size_t>(batch * operand.batch_stride + i * operand.row_stride + j * operand.col_stride)];
  }
};

/// The contract, letter by letter: blocks of 512, a chain of FMAs from +0 in each, block sums added ascending.
template <class A, class B>
float contract_element(int64_t k, A&& a, B&& b) {
  float sum = 0;
  for (int64_t block = 0; block < k; block += 512) {
    float chain = 0;
    for (int64_t p = block; p < std::min(block + 512, k); ++p) chain = std::fma(a(p), b(p), chain);
    sum = block == 0 ? chain : sum + chain;
  }
  return sum;
}

inline std::vector<float> contract_product(const Matrix& a, const Matrix& b, int64_t batch, int64_t m, int64_t n, int64_t k) {
  std::vector<float> c(static_cast<size_t>(batch * m * n));
  for (int64_t t = 0; t < batch; ++t)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        c[static_cast<size_t>((t * m + i) * n + j)] = contract_element(
            k, [&](int64_t p) { return a.at(t, i, p); }, [&](int64_t p) { return b.at(t, p, j); });
  return c;
}

inline Gemm product_of(const Matrix& a, const Matrix& b, int64_t batch, int64_t m, int64_t n, int64_t k) {
  Gemm g;
  g.batch = batch, g.m = m, g.n = n, g.k = k;
  g.a = a.operand, g.b = b.operand;
  g.operand_dtype = a.dtype;
  return g;
}

/// Runs into a dense [batch, m, n] (rows ldc apart inside guards); checks guards, padding between rows, and the workspace's borders.
template <class T>
std::vector<float> run_checked_as(Gemm g, GemmIsa isa, int threads, int64_t padding) {
  const int64_t ldc = g.n + padding;
  Guarded c(g.batch * g.m * ldc * static_cast<int64_t>(sizeof(T))), workspace(gemm_workspace_bytes(g, isa, threads));
  T* const elements = static_cast<T*>(c.data());
  const auto value = [&](int64_t i) {
    if constexpr (std::is_same_v<T, Bf16>)
      return widen(elements[i]);
    else
      return elements[i];
  };
  constexpr float kMark = -77;
  for (int64_t i = 0; i < g.batch * g.m * ldc; ++i) {
    if constexpr (std::is_same_v<T, Bf16>)
      elements[i] = narrow(kMark);
    else
      elements[i] = kMark;
  }
  g.c = elements;
  g.c_row_stride = ldc;
  g.c_batch_stride = g.m * ldc;
  ThreadWorkers workers(threads);
  gemm(g, isa, workspace.data(), workers);
  EXPECT_TRUE(c.intact()) << "wrote outside C";
  EXPECT_TRUE(workspace.intact()) << "wrote outside the workspace";
  std::vector<float> dense;
  for (int64_t row = 0; row < g.batch * g.m; ++row) {
    for (int64_t j = 0; j < g.n; ++j) dense.push_back(value(row * ldc + j));
    for (int64_t j = g.n; j < ldc; ++j) EXPECT_EQ(value(row * ldc + j), kMark) << "wrote between rows of C";
  }
  return dense;
}
inline std::vector<float> run_checked(const Gemm& g, GemmIsa isa, int threads, int64_t padding = 0) {
  return g.result_dtype == DType::bf16 ? run_checked_as<Bf16>(g, isa, threads, padding)
                                       : run_checked_as<float>(g, isa, threads, padding);
}

}  // namespace ws::cpu::test
