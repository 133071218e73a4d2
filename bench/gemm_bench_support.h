// What the GEMM benchmarks share: aligned buffers, two spinning threads, timing, and the FMA peak as measured right now.
#pragma once
#include <immintrin.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "backend/cpu/gemm/gemm.h"

namespace ws::bench {

class Buffer {
 public:
  explicit Buffer(int64_t floats)
      : count_(floats), bytes_((static_cast<size_t>(floats) * 4 + (2u << 20) - 1) & ~((size_t{2} << 20) - 1)) {
    data_ = static_cast<float*>(std::aligned_alloc(2u << 20, bytes_));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::fill(data_, data_ + bytes_ / 4, 0.0f);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  float* floats() { return data_; }
  int64_t size() const { return count_; }

 private:
  int64_t count_;
  size_t bytes_;
  float* data_;
};

inline void fill(Buffer& buffer, unsigned seed) {
  std::mt19937 random(seed);
  for (int64_t i = 0; i < buffer.size(); ++i) buffer.floats()[i] = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
}

/// Threads that wait for work spinning a while, then asleep.
class SpinWorkers final : public Workers {
 public:
  explicit SpinWorkers(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { serve(i); });
  }
  ~SpinWorkers() override {
    task_ = nullptr;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (auto& t : others_) t.join();
  }
  int num_threads() const override { return threads_; }
  void run(int64_t units, int64_t grain, Task task, void* context) override {
    if (threads_ == 1) {
      if (units > 0) task(context, 0, units, 0);
      return;
    }
    units_ = units, grain_ = grain, task_ = task, context_ = context;
    next_.store(0);
    busy_.store(threads_ - 1);
    generation_.fetch_add(1);
    generation_.notify_all();
    work(0);
    while (busy_.load() > 0) _mm_pause();
  }

 private:
  void work(int worker) {
    for (int64_t begin; (begin = next_.fetch_add(grain_)) < units_;)
      task_(context_, begin, std::min(begin + grain_, units_), worker);
  }
  void serve(int worker) {
    for (int seen = 0;;) {
      for (int spins = 0; generation_.load() == seen && spins < 20000; ++spins) _mm_pause();
      generation_.wait(seen);
      seen = generation_.load();
      if (task_ == nullptr) return;
      work(worker);
      busy_.fetch_sub(1);
    }
  }

  int threads_;
  std::vector<std::thread> others_;
  std::atomic<int> generation_{0}, busy_{0};
  std::atomic<int64_t> next_{0};
  int64_t units_ = 0, grain_ = 1;
  Task task_ = nullptr;
  void* context_ = nullptr;
};

/// Seconds that this thread has run: on a machine shared with others, what one thread's work takes without their turns.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
inline double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

/// The least time of one call among calls that fill `budget` seconds, three at least. `clock`: thread_seconds where f stays on this
/// thread.
template <class F>
double best_seconds(F&& f, double budget, double (*clock)() = now_seconds) {
  double best = 1e30, start = now_seconds();
  for (int i = 0; i < 3 || now_seconds() - start < budget; ++i) {
    const double t = clock();
    f();
    best = std::min(best, clock() - t);
  }
  return best;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[gnu::target("avx512f")]] inline void fma_loop_avx512(int64_t steps) {
  __m512 acc[16];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("vfmadd213ps %2, %1, %0" : "+v"(a) : "v"(x), "v"(y));
  }
}
[[gnu::target("avx2,fma")]] inline void fma_loop_avx2(int64_t steps) {
  __m256 acc[12];
  for (auto& a : acc) a = _mm256_set1_ps(1.0f);
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (auto& a : acc) asm volatile("vfmadd213ps %2, %1, %0" : "+x"(a) : "x"(x), "x"(y));
  }
}

[[gnu::target("avx512f,avx512bf16")]] inline void dot_loop_avx512(int64_t steps) {
  __m512 acc[16];
  for (auto& a : acc) a = _mm512_set1_ps(1.0f);
  const __m512i x = _mm512_set1_epi32(0x3F003E80);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 16
    for (auto& a : acc) asm volatile("vdpbf16ps %1, %1, %0" : "+v"(a) : "v"(x));
  }
}

/// All workers at once on independent instructions in registers, best of a few: dot products for bf16 where the ISA has them, else
/// FMAs.
inline double peak_gflops(cpu::GemmIsa isa, DType dtype, Workers& workers) {
  const bool wide = isa >= cpu::GemmIsa::avx512, dots = dtype == DType::bf16 && isa >= cpu::GemmIsa::avx512_bf16;
  const auto loop = dots ? dot_loop_avx512 : wide ? fma_loop_avx512 : fma_loop_avx2;
  const int64_t steps = 60000;
  const double flops = 2.0 * static_cast<double>(steps) * (dots ? 16 * 32 : wide ? 16 * 16 : 12 * 8) * workers.num_threads();
  const double seconds = best_seconds(
      [&] {
        workers.parallel_for(workers.num_threads(), 1, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin; i < end; ++i) loop(steps);
        });
      },
      0.002, workers.num_threads() == 1 ? thread_seconds : now_seconds);
  return flops / seconds * 1e-9;
}

}  // namespace ws::bench
