// ThreadPool: persistent worker threads, made once per process, that a step borrows for its whole length.
// A job costs one store per worker to start and one atomic add per chunk; run() allocates nothing. A worker that wakes late
// finds the job closed and goes back: the caller never waits for a thread that holds no work.
// Bits: units may land on any thread, so results must not depend on it (that is the kernels' contract); workers take over the
// caller's floating-point mode, so neither do roundings.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "support/parallel.h"

namespace ws {

/// Processors this process may run on (its affinity mask), at least 1.
int available_cpus();

class ThreadPool final : public Workers {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Threads that take part, the caller included.
  int num_threads() const override { return active_.load(std::memory_order_relaxed); }
  /// The calling thread takes part as worker 0. Called from inside a task, it runs that job on the calling worker alone.
  /// One thread at a time: whoever shares a pool acquires it first.
  void run(int64_t units, int64_t grain, Task task, void* context) override;

  /// Changes how many threads take part; makes threads that are missing and keeps surplus ones asleep. If the system gives
  /// no more threads, num_threads() stays below what was asked. Not while a job runs.
  void resize(int num_threads);

  bool try_acquire() { return !held_.exchange(true, std::memory_order_acquire); }
  void release() { held_.store(false, std::memory_order_release); }

 private:
  // One per thread, on a cache line of its own: the caller announces a job here, the thread spins on it, then sleeps on it.
  struct alignas(64) Slot {
    std::atomic<uint32_t> announced{0};
    std::atomic<bool> asleep{false};
  };
  void work(Slot& slot, int worker);
  void take_chunks(uint32_t job, int worker);
  void wait_for_chunks(uint32_t chunks);
  void abandon_threads_of_parent();

  // The open job: its number in the upper half, chunks claimed so far in the lower. A claim is one compare-and-swap on both,
  // so a late worker cannot claim from a job whose description it has not read.
  alignas(64) std::atomic<uint64_t> claims_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};
  std::atomic<bool> caller_asleep_{false};
  // Description of the open job, written while claims_ is closed: who reads a part of a newer one fails to claim.
  alignas(64) std::atomic<Task> task_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<int64_t> units_{0}, chunk_units_{0};
  std::atomic<uint32_t> num_chunks_{0}, mode_{0};

  alignas(64) std::atomic<bool> held_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int> active_{1};
  std::atomic<bool> oversubscribed_{false};  // more threads than processors: do not spin
  uint32_t job_ = 0;
  uint32_t fork_generation_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;  // of workers 1, 2, ..
  std::vector<std::thread> threads_;
};

/// Workers for one step: the process's pool if no other thread holds it, else the calling thread alone. Same bits either way.
class WorkersLease {
 public:
  explicit WorkersLease(int num_threads);
  ~WorkersLease();
  WorkersLease(const WorkersLease&) = delete;
  WorkersLease& operator=(const WorkersLease&) = delete;
  Workers& workers() { return pool_ != nullptr ? static_cast<Workers&>(*pool_) : serial_; }

 private:
  ThreadPool* pool_ = nullptr;
  SerialWorkers serial_;
};

}  // namespace ws
