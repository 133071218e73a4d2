// All-reduce as a reduce-scatter and an all-gather: each rank receives its part of the others' arrays, adds the parts in the order
// of the ranks, and sends the sum to all. Every number travels 2 (k-1)/k times, the least there can be, and its bits depend on
// neither timing nor how arrays are cut.
#include "runtime/mpi_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/mpi_library.h"
#include "support/error.h"

namespace ws {
namespace {

constexpr int64_t kDirectBytes = 4096;      // arrays up to this size go to everybody at once: one latency instead of two
constexpr int64_t kPieceBytes = 256 << 10;  // of each rank's part at a time: the parts being added stay in L2
constexpr int64_t kMessageBytes = 1 << 30;  // MPI counts in int
constexpr int kTag = 7;

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

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator() : mpi_(mpi::library()) {
    int provided = 0;
    mpi_.init_thread(nullptr, nullptr, mpi::kThreadSerialized, &provided);
    mpi_.comm_rank(mpi_.world, &rank_);
    mpi_.comm_size(mpi_.world, &num_ranks_);
    requests_.reserve(2 * static_cast<size_t>(num_ranks_));
  }
  int rank() const override { return rank_; }
  int num_ranks() const override { return num_ranks_; }
  void barrier() override { mpi_.barrier(mpi_.world); }

  void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction) override {
    if (num_ranks_ == 1) return Communicator::all_reduce(in, out, count, dtype, reduction);
    const auto size = static_cast<int64_t>(size_of(dtype));
    if (count * size <= kDirectBytes) return reduce_direct(in, out, count, dtype, reduction);
    const int64_t block = kPieceBytes / size * num_ranks_;
    for (int64_t begin = 0; begin < count; begin += block)
      reduce_block(static_cast<const char*>(in) + begin * size, static_cast<char*>(out) + begin * size,
                   std::min(block, count - begin), dtype, reduction);
  }

  void all_gather(const void* in, void* out, std::span<const int64_t> bytes) override {
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
    mpi_.waitall(static_cast<int>(requests_.size()), requests_.data(), nullptr);  // nullptr: MPI_STATUSES_IGNORE
    requests_.clear();
  }
  char* scratch(int64_t bytes) {
    if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
    return scratch_.data();
  }

  /// `parts`: by rank, `stride` bytes apart, this rank's own left out; own: this rank's. Adds all into `to` (which may be own).
  void combine_all(char* to, const char* own, const char* parts, int64_t stride, int64_t count, DType dtype,
                   Reduction reduction) {
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
  int rank_ = 0, num_ranks_ = 1;
  std::vector<mpi::Request> requests_;
  std::vector<char> scratch_;  // grows to what the largest all-reduce needs
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
