// All-reduce as a reduce-scatter and an all-gather: each rank receives its part of the others' arrays, adds the parts in the order
// of the ranks, and sends the sum to all. Every number travels 2 (k-1)/k times, the least there can be, and its bits depend on
// neither timing nor how arrays are cut.
#include "runtime/mpi_communicator.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/background_sums.h"
#include "runtime/mpi_library.h"
#include "support/error.h"

namespace ws {
namespace {

constexpr int64_t kDirectBytes = 4096;      // arrays up to this size go to everybody at once: one latency instead of two
constexpr int64_t kPieceBytes = 256 << 10;  // of each rank's part at a time: the parts being added stay in L2
constexpr int64_t kMessageBytes = 1 << 30;  // MPI counts in int
constexpr int kTag = 7;
constexpr int kLooks = 20, kNapMicroseconds = 20;  // of a thread that waits beside one that computes

template <class T>
__attribute__((optimize("O3"))) void add(T* to, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class T>
void keep_larger(T* to, const T* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (from[i] > to[i] || from[i] != from[i]) to[i] = from[i];
}

template <class T>
void combine_as(void* to, const void* from, int64_t count, Communicator::Reduction reduction) {
  if (reduction == Communicator::Reduction::sum)
    add(static_cast<T*>(to), static_cast<const T*>(from), count);
  else
    keep_larger(static_cast<T*>(to), static_cast<const T*>(from), count);
}

void combine(void* to, const void* from, int64_t count, DType dtype, Communicator::Reduction reduction) {
  switch (dtype) {
    case DType::f32: return combine_as<float>(to, from, count, reduction);
    case DType::f64: return combine_as<double>(to, from, count, reduction);
    case DType::i32: return combine_as<int32_t>(to, from, count, reduction);
    case DType::u32: return combine_as<uint32_t>(to, from, count, reduction);
    default: WS_ASSERT(false, "no all-reduce of {}", name_of(dtype));
  }
}

using Clock = std::chrono::steady_clock;

/// Adds the nanoseconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<int64_t>& to) : to_(to), begin_(Clock::now()) {}
  ~Stopwatch() { to_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<int64_t>& to_;
  Clock::time_point begin_;
};

/// The collectives, on whichever thread calls: one at a time.
class MpiCollectives {
 public:
  using Reduction = Communicator::Reduction;
  MpiCollectives() : mpi_(mpi::library()) {
    mpi_.init_thread(nullptr, nullptr, mpi::kThreadSerialized, &thread_level_);
    mpi_.comm_rank(mpi_.world, &rank_);
    mpi_.comm_size(mpi_.world, &num_ranks_);
    requests_.reserve(2 * static_cast<size_t>(num_ranks_));
  }
  int rank() const { return rank_; }
  int num_ranks() const { return num_ranks_; }
  int thread_level() const { return thread_level_; }
  void barrier() { mpi_.barrier(mpi_.world); }

  void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    if (count * size <= kDirectBytes) return reduce_direct(in, out, count, dtype, reduction);
    const int64_t block = kPieceBytes / size * num_ranks_;
    for (int64_t begin = 0; begin < count; begin += block)
      reduce_block(static_cast<const char*>(in) + begin * size, static_cast<char*>(out) + begin * size,
                   std::min(block, count - begin), dtype, reduction);
  }

  /// One array after the other as if they were one, in place: small ones share their messages. A block that lies in several is put
  /// together aside.
  void add_up(std::span<const Communicator::Numbers> bucket) {
    const int64_t block = kPieceBytes / 4 * num_ranks_;
    int64_t begun = 0;  // numbers of the first array that are done
    while (!bucket.empty()) {
      const int64_t here = bucket[0].count - begun;
      if (here >= block || bucket.size() == 1) {
        const int64_t count = std::min(here, block);
        if (count > 0) add_up(bucket[0].data + begun, count);
        begun += count;
        if (begun == bucket[0].count) bucket = bucket.subspan(1), begun = 0;
        continue;
      }
      together_.resize(static_cast<size_t>(block));
      int64_t filled = 0;
      walk(bucket, begun, block, [&](float* data, int64_t count) {
        std::memcpy(together_.data() + filled, data, static_cast<size_t>(4 * count));
        filled += count;
      });
      if (filled > 0) add_up(together_.data(), filled);
      int64_t emptied = 0;
      std::tie(bucket, begun) = walk(bucket, begun, block, [&](float* data, int64_t count) {
        std::memcpy(data, together_.data() + emptied, static_cast<size_t>(4 * count));
        emptied += count;
      });
    }
  }

  /// A thread that waits beside one that computes leaves it the core between looks.
  void wait_patiently(bool patiently) { patient_ = patiently; }

  void all_gather(const void* in, void* out, std::span<const int64_t> bytes) {
    char* to = static_cast<char*>(out);
    for (int r = 0; r < num_ranks_; ++r) {
      const int64_t count = bytes[static_cast<size_t>(r)];
      if (r == rank_) {
        if (in != to && count > 0) std::memcpy(to, in, static_cast<size_t>(count));
      } else {
        receive(to, count, r);
        send(in, bytes[static_cast<size_t>(rank_)], r);
      }
      to += count;
    }
    wait();
  }

 private:
  void send(const void* data, int64_t bytes, int to) {
    for (int64_t done = 0; done < bytes; done += kMessageBytes) {
      requests_.emplace_back();
      mpi_.isend(static_cast<const char*>(data) + done, static_cast<int>(std::min(kMessageBytes, bytes - done)), mpi_.byte, to,
                 kTag, mpi_.world, &requests_.back());
    }
  }
  void receive(void* data, int64_t bytes, int from) {
    for (int64_t done = 0; done < bytes; done += kMessageBytes) {
      requests_.emplace_back();
      mpi_.irecv(static_cast<char*>(data) + done, static_cast<int>(std::min(kMessageBytes, bytes - done)), mpi_.byte, from, kTag,
                 mpi_.world, &requests_.back());
    }
  }
  void wait() {
    const auto count = static_cast<int>(requests_.size());
    if (!patient_) {
      mpi_.waitall(count, requests_.data(), nullptr);  // nullptr: MPI_STATUSES_IGNORE
    } else {
      for (int looks = 0, done = 0;; ++looks) {
        mpi_.testall(count, requests_.data(), &done, nullptr);
        if (done != 0) break;
        if (looks < kLooks)
          sched_yield();
        else
          std::this_thread::sleep_for(std::chrono::microseconds(kNapMicroseconds));
      }
    }
    requests_.clear();
  }
  void add_up(float* data, int64_t count) {
    if (4 * count <= kDirectBytes) return reduce_direct(data, data, count, DType::f32, Reduction::sum);
    auto* const bytes = reinterpret_cast<char*>(data);
    reduce_block(bytes, bytes, count, DType::f32, Reduction::sum);
  }
  /// visit(data, count) for the next `most` numbers; returns what is left of the bucket and how far its first array is done.
  template <class Visit>
  static std::pair<std::span<const Communicator::Numbers>, int64_t> walk(std::span<const Communicator::Numbers> bucket,
                                                                         int64_t begun, int64_t most, const Visit& visit) {
    while (!bucket.empty() && most > 0) {
      const int64_t count = std::min(bucket[0].count - begun, most);
      if (count > 0) visit(bucket[0].data + begun, count);
      most -= count, begun += count;
      if (begun == bucket[0].count) bucket = bucket.subspan(1), begun = 0;
    }
    return {bucket, begun};
  }
  char* scratch(int64_t bytes) {
    if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
    return scratch_.data();
  }

  /// `parts`: by rank, `stride` bytes apart, this rank's own left out; own: this rank's. Adds all into `to` (which may be own).
  void combine_all(char* to, const char* own, const char* parts, int64_t stride, int64_t count, DType dtype,
                   Communicator::Reduction reduction) {
    const auto bytes = static_cast<size_t>(count) * size_of(dtype);
    if (bytes == 0) return;
    auto part = [&](int r) { return r == rank_ ? own : parts + r * stride; };
    if (rank_ == 0) {
      if (to != own) std::memcpy(to, own, bytes);
    } else if (to == own) {  // own is not the first: it waits aside
      char* const aside = scratch_.data() + rank_ * stride;
      std::memcpy(aside, own, bytes);
      own = aside;
      std::memcpy(to, part(0), bytes);
    } else {
      std::memcpy(to, part(0), bytes);
    }
    for (int r = 1; r < num_ranks_; ++r) combine(to, part(r), count, dtype, reduction);
  }

  void reduce_direct(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) {
    const int64_t bytes = count * static_cast<int64_t>(size_of(dtype));
    char* const parts = scratch(num_ranks_ * bytes);
    for (int r = 0; r < num_ranks_; ++r) {
      if (r == rank_) continue;
      receive(parts + r * bytes, bytes, r);
      send(in, bytes, r);
    }
    wait();
    combine_all(static_cast<char*>(out), static_cast<const char*>(in), parts, bytes, count, dtype, reduction);
  }

  void reduce_block(const char* in, char* out, int64_t count, DType dtype, Reduction reduction) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    auto part = [&](int r) { return rows_of_rank(count, num_ranks_, r); };
    const auto [mine, end] = part(rank_);
    const int64_t bytes = (end - mine) * size;
    char* const parts = scratch(num_ranks_ * (count / num_ranks_ + 1) * size);
    const int64_t stride = (count / num_ranks_ + 1) * size;
    for (int r = 0; r < num_ranks_; ++r) {
      if (r == rank_) continue;
      receive(parts + r * stride, bytes, r);
      send(in + part(r).first * size, (part(r).second - part(r).first) * size, r);
    }
    wait();
    combine_all(out + mine * size, in + mine * size, parts, stride, end - mine, dtype, reduction);
    for (int r = 0; r < num_ranks_; ++r) {
      if (r == rank_) continue;
      receive(out + part(r).first * size, (part(r).second - part(r).first) * size, r);
      send(out + mine * size, bytes, r);
    }
    wait();
  }

  const mpi::Library& mpi_;
  int rank_ = 0, num_ranks_ = 1, thread_level_ = 0;
  bool patient_ = false;
  std::vector<mpi::Request> requests_;
  std::vector<char> scratch_;    // grows to what the largest all-reduce needs
  std::vector<float> together_;  // a block of several arrays
};

/// The collectives of this process: sums of buckets in a thread of their own, everything else on the caller's once those are done.
class MpiCommunicator final : public Communicator {
 public:
  int rank() const override { return mpi_.rank(); }
  int num_ranks() const override { return mpi_.num_ranks(); }
  bool overlaps() const override { return num_ranks() > 1 && mpi_.thread_level() >= mpi::kThreadSerialized; }

  void barrier() override {
    finish_all();
    mpi_.barrier();
  }
  void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) override {
    if (num_ranks() == 1) return Communicator::all_reduce(in, out, count, dtype, reduction);
    here([&] { mpi_.all_reduce(in, out, count, dtype, reduction); });
  }
  void all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
    here([&] { mpi_.all_gather(in, out, bytes); });
  }

  void begin_sum(int64_t id, std::span<const Numbers> bucket) override {
    if (!overlaps()) return here([&] { mpi_.add_up(bucket); });
    if (!thread_)
      thread_.emplace([this](std::span<const Numbers> numbers) {
        const Stopwatch total(total_ns_);
        mpi_.wait_patiently(true);
        mpi_.add_up(numbers);
        mpi_.wait_patiently(false);
      });
    tickets_[id] = thread_->begin(bucket);
  }
  void finish_sum(int64_t id) override {
    if (!thread_) return;
    const Stopwatch exposed(exposed_ns_);
    thread_->wait(tickets_.at(id));
  }
  void finish_all() override {
    if (!thread_) return;
    const Stopwatch exposed(exposed_ns_);
    thread_->wait_for_all();
  }
  Times times() const override { return {1e-9 * static_cast<double>(exposed_ns_), 1e-9 * static_cast<double>(total_ns_)}; }

 private:
  template <class Collective>
  void here(const Collective& collective) {
    finish_all();
    const Stopwatch exposed(exposed_ns_), total(total_ns_);
    collective();
  }

  MpiCollectives mpi_;
  std::map<int64_t, int64_t> tickets_;  // by id of a bucket: of its last sum
  std::atomic<int64_t> exposed_ns_{0}, total_ns_{0};
  std::optional<BackgroundSums> thread_;  // last: it ends first
};

}  // namespace

bool started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::unique_ptr<Communicator> join_mpi_job() { return std::make_unique<MpiCommunicator>(); }

void leave_mpi_job() { mpi::library().finalize(); }

void abort_mpi_job(int exit_code) {
  mpi::library().abort(mpi::library().world, exit_code);
  std::_Exit(exit_code);
}

}  // namespace ws
