#include "runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <numeric>

#include "support/float_mode.h"

namespace ws {
namespace {

// Every unit exactly once, ranges cut at multiples of the grain, worker ids in range.
void expect_covers(Workers& workers, int64_t units, int64_t grain) {
  std::vector<std::atomic<int>> hits(static_cast<size_t>(units));
  std::atomic<int> bad{0};
  const int threads = workers.num_threads();
  workers.parallel_for(units, grain, [&](int64_t begin, int64_t end, int worker) {
    if (begin >= end || begin % grain != 0 || (end % grain != 0 && end != units) || worker < 0 || worker >= threads) bad++;
    for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)]++;
  });
  EXPECT_EQ(bad, 0) << units << " by " << grain;
  for (auto& h : hits) ASSERT_EQ(h, 1) << units << " by " << grain;
}

TEST(ThreadPool, CoversEveryUnitOnce) {
  for (int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (int64_t units : {0, 1, 2, 7, 8, 63, 64, 1000, 4097})
      for (int64_t grain : {1, 3, 64, 5000}) expect_covers(pool, units, grain);
  }
}

TEST(ThreadPool, ResizesUpAndDown) {
  ThreadPool pool(2);
  for (int threads : {4, 1, 3, 2, 4, 2}) {
    pool.resize(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    expect_covers(pool, 100, 1);
  }
}

TEST(ThreadPool, ManyShortJobsLoseNothing) {
  for (int threads : {2, 4}) {
    ThreadPool pool(threads);
    std::vector<int64_t> data(257, 0);
    for (int job = 0; job < 5000; ++job) {
      pool.parallel_for(257, 1 + job % 5, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) data[static_cast<size_t>(i)] += job;  // plain memory: the barrier must order it
      });
      if (job % 1000 == 500) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // let the workers fall asleep
    }
    for (int64_t v : data) ASSERT_EQ(v, int64_t{4999} * 5000 / 2);
  }
}

TEST(ThreadPool, OtherThreadsTakePart) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  // Two units that wait for each other: this ends only if two threads run.
  pool.parallel_for(2, 1, [&](int64_t, int64_t, int) {
    arrived++;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, NestedRunStaysOnItsWorker) {
  ThreadPool pool(3);
  std::atomic<int> wrong{0}, inner{0};
  pool.parallel_for(12, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i)
      pool.parallel_for(10, 1, [&](int64_t b, int64_t e, int w) {
        if (w != worker) wrong++;
        inner += static_cast<int>(e - b);
      });
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(inner, 120);
}

TEST(ThreadPool, WorkersTakeOverTheFloatMode) {
  ThreadPool pool(2);
  const auto modes = [&] {
    std::atomic<int> arrived{0};
    std::array<uint32_t, 2> mode{};
    pool.parallel_for(2, 1, [&](int64_t unit, int64_t, int) {
      arrived++;
      while (arrived < 2) std::this_thread::yield();
      mode[static_cast<size_t>(unit)] = float_mode() & ~kFloatFlags;
    });
    return mode;
  };
  const uint32_t before = float_mode() & ~kFloatFlags;
  EXPECT_EQ(modes(), (std::array{before, before}));
  {
    const FlushDenormals flush;
    EXPECT_EQ(modes(), (std::array{kStepFloatMode, kStepFloatMode}));
    volatile float tiny = 1e-38f;
    const volatile float product = tiny * 0.1f;
    EXPECT_EQ(product, 0.0f);
  }
  EXPECT_EQ(float_mode() & ~kFloatFlags, before);
  EXPECT_EQ(modes(), (std::array{before, before}));
}

TEST(WorkersLease, SecondThreadRunsAlone) {
  const WorkersLease outer(2);
  int threads_of_second = 0;
  std::thread([&] {
    WorkersLease lease(2);
    threads_of_second = lease.workers().num_threads();
    expect_covers(lease.workers(), 100, 1);
  }).join();
  EXPECT_EQ(threads_of_second, 1);
}

TEST(WorkersLease, IsFreeAgainAfterwards) {
  for (int threads : {2, 4, 1, 3}) {
    WorkersLease lease(threads);
    EXPECT_EQ(lease.workers().num_threads(), threads);
    expect_covers(lease.workers(), 50, 1);
  }
}

TEST(WorkersLease, TwoThreadsContendForThePool) {
  std::atomic<int64_t> total{0};
  const auto train = [&] {
    for (int step = 0; step < 500; ++step) {
      WorkersLease lease(2);
      for (int kernel = 0; kernel < 4; ++kernel)
        lease.workers().parallel_for(64, 1, [&](int64_t b, int64_t e, int) { total += e - b; });
    }
  };
  std::thread a(train), b(train);
  a.join();
  b.join();
  EXPECT_EQ(total, int64_t{2} * 500 * 4 * 64);
}

#if !defined(__SANITIZE_THREAD__)  // it allows no threads to be made after a fork of a threaded process
TEST(WorkersLease, WorksInAForkedChild) {
  {
    WorkersLease lease(2);
    expect_covers(lease.workers(), 10, 1);
  }
  const pid_t child = fork();
  if (child == 0) {
    int64_t sum = 0;
    {
      WorkersLease lease(2);
      std::mutex mutex;
      lease.workers().parallel_for(100, 1, [&](int64_t b, int64_t e, int) {
        const std::lock_guard lock(mutex);
        sum += e - b;
      });
    }
    _exit(sum == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  WorkersLease lease(2);
  expect_covers(lease.workers(), 10, 1);
}
#endif

}  // namespace
}  // namespace ws
