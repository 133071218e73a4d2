#include "runtime/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "support/float_mode.h"

namespace ws {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(50);  // longer than the gap between two kernels, shorter than anyone notices
constexpr int64_t kChunksPerThread = 8;                // so that a slowed thread holds up an eighth of its share, not all of it

constexpr uint32_t kClosed = 0xFFFFFFFFu;  // chunks claimed of a job that takes no more claims

thread_local const ThreadPool* current_pool = nullptr;  // whose task this thread runs
thread_local int current_worker = 0;

std::atomic<uint32_t> fork_generation{0};
ThreadPool* process_pool_or_null = nullptr;

// Spins until done() or until the time is up; says whether done.
template <class Done>
bool spin_until(const Done& done) {
  const auto deadline = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      _mm_pause();
    }
  } while (Clock::now() < deadline);
  return done();
}

// Marks this thread as running a task, so that a nested run() stays on it.
class Inside {
 public:
  Inside(const ThreadPool* pool, int worker) : pool_(current_pool), worker_(current_worker) {
    current_pool = pool;
    current_worker = worker;
  }
  ~Inside() {
    current_pool = pool_;
    current_worker = worker_;
  }

 private:
  const ThreadPool* pool_;
  int worker_;
};

}  // namespace

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int num_threads) {
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] {
    fork_generation.fetch_add(1, std::memory_order_relaxed);
    if (process_pool_or_null != nullptr) process_pool_or_null->release();  // its holder did not come along
  });
  fork_generation_ = fork_generation.load(std::memory_order_relaxed);
  resize(num_threads);
}

ThreadPool::~ThreadPool() {
  if (fork_generation_ != fork_generation.load(std::memory_order_relaxed)) abandon_threads_of_parent();
  stop_.store(true);
  for (auto& slot : slots_) {
    slot->announced.fetch_add(1);
    slot->announced.notify_one();
  }
  for (auto& thread : threads_) thread.join();
}

// After fork() the child has only the thread that called it. The handles of the others can be neither joined nor destroyed.
void ThreadPool::abandon_threads_of_parent() {
  static auto* const abandoned = new std::vector<std::thread>;
  for (auto& thread : threads_) abandoned->push_back(std::move(thread));
  threads_.clear();
  slots_.clear();
  active_.store(1, std::memory_order_relaxed);
  fork_generation_ = fork_generation.load(std::memory_order_relaxed);
}

void ThreadPool::resize(int num_threads) {
  if (fork_generation_ != fork_generation.load(std::memory_order_relaxed)) abandon_threads_of_parent();
  const int wanted = std::max(1, num_threads);
  if (wanted == num_threads && wanted == active_.load(std::memory_order_relaxed)) return;
  try {
    while (static_cast<int>(threads_.size()) < wanted - 1) {
      const int worker = static_cast<int>(threads_.size()) + 1;
      slots_.push_back(std::make_unique<Slot>());
      threads_.emplace_back([this, slot = slots_.back().get(), worker] { work(*slot, worker); });
    }
  } catch (const std::system_error&) {
    slots_.resize(threads_.size());
  }
  const int got = std::min(wanted, static_cast<int>(threads_.size()) + 1);
  oversubscribed_.store(got > available_cpus(), std::memory_order_relaxed);
  active_.store(got, std::memory_order_relaxed);
}

void ThreadPool::work(Slot& slot, int worker) {
  const Inside inside(this, worker);
  uint32_t seen = 0;
  for (;;) {
    const auto announced = [&] { return slot.announced.load(std::memory_order_acquire) != seen; };
    if (oversubscribed_.load(std::memory_order_relaxed) || !spin_until(announced)) {
      slot.asleep.store(true);
      slot.announced.wait(seen);
      slot.asleep.store(false);
    }
    seen = slot.announced.load(std::memory_order_acquire);
    if (stop_.load()) return;
    take_chunks(seen, worker);
  }
}

void ThreadPool::take_chunks(uint32_t job, int worker) {
  uint64_t claim = claims_.load(std::memory_order_acquire);
  for (;;) {
    if (static_cast<uint32_t>(claim >> 32) != job) return;
    const Task task = task_.load(std::memory_order_acquire);
    void* const context = context_.load(std::memory_order_acquire);
    const int64_t units = units_.load(std::memory_order_acquire), chunk_units = chunk_units_.load(std::memory_order_acquire);
    const uint32_t chunks = num_chunks_.load(std::memory_order_acquire), mode = mode_.load(std::memory_order_acquire);
    const auto chunk = static_cast<uint32_t>(claim);
    if (chunk >= chunks) return;
    if (!claims_.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (worker != 0) set_float_mode(mode);
    const int64_t begin = chunk * chunk_units;
    task(context, begin, std::min(units, begin + chunk_units), worker);
    if (finished_.fetch_add(1) + 1 == chunks && caller_asleep_.load()) finished_.notify_one();
    claim = claims_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_for_chunks(uint32_t chunks) {
  const auto done = [&] { return finished_.load(std::memory_order_acquire) == chunks; };
  if (done() || (!oversubscribed_.load(std::memory_order_relaxed) && spin_until(done))) return;
  caller_asleep_.store(true);
  for (uint32_t f = finished_.load(); f != chunks; f = finished_.load()) finished_.wait(f);
  caller_asleep_.store(false);
}

void ThreadPool::run(int64_t units, int64_t grain, Task task, void* context) {
  if (units <= 0) return;
  if (current_pool == this) return task(context, 0, units, current_worker);
  const Inside inside(this, 0);
  const int threads = num_threads();
  const int64_t step = std::max<int64_t>(1, grain);
  const int64_t grains = (units + step - 1) / step;
  const int64_t grains_per_chunk = std::max<int64_t>(1, grains / (threads * kChunksPerThread));
  const int64_t chunks = (grains + grains_per_chunk - 1) / grains_per_chunk;
  if (threads == 1 || chunks == 1) return task(context, 0, units, 0);

  task_.store(task, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  units_.store(units, std::memory_order_release);
  chunk_units_.store(grains_per_chunk * step, std::memory_order_release);
  num_chunks_.store(static_cast<uint32_t>(chunks), std::memory_order_release);
  mode_.store(float_mode() & ~kFloatFlags, std::memory_order_release);
  finished_.store(0, std::memory_order_relaxed);
  if (++job_ == 0) ++job_;  // 0 is what a new thread has seen
  claims_.store(static_cast<uint64_t>(job_) << 32, std::memory_order_release);
  const int helpers = static_cast<int>(std::min<int64_t>(threads, chunks)) - 1;
  for (int i = 0; i < helpers; ++i) {
    Slot& slot = *slots_[static_cast<size_t>(i)];
    slot.announced.store(job_);
    if (slot.asleep.load()) slot.announced.notify_one();
  }
  take_chunks(job_, 0);
  wait_for_chunks(static_cast<uint32_t>(chunks));
  claims_.store(static_cast<uint64_t>(job_) << 32 | kClosed, std::memory_order_release);
}

namespace {

ThreadPool& process_pool() {
  static ThreadPool pool(1);
  [[maybe_unused]] static const bool known = [] {
    process_pool_or_null = &pool;
    return true;
  }();
  return pool;
}

}  // namespace

WorkersLease::WorkersLease(int num_threads) {
  if (num_threads <= 1) return;
  ThreadPool& pool = process_pool();
  if (!pool.try_acquire()) return;
  pool.resize(num_threads);
  pool_ = &pool;
}

WorkersLease::~WorkersLease() {
  if (pool_ != nullptr) pool_->release();
}

}  // namespace ws
