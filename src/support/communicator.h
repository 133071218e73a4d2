// What ranks of a job exchange. Kernels only see this; MPI lives in runtime/. A process on its own is rank 0 of 1.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "wholestep/dtype.h"

namespace ws {

/// Rank r's share of `rows`, [begin, end): as equal as can be, the first ranks one more. Ranks may have none.
inline std::pair<int64_t, int64_t> rows_of_rank(int64_t rows, int num_ranks, int rank) {
  const int64_t each = rows / num_ranks, more = rows % num_ranks;
  const int64_t begin = rank * each + (rank < more ? rank : more);
  return {begin, begin + each + (rank < more ? 1 : 0)};
}

/// Every rank calls the same collectives in the same order. Errors of the network end the job.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const { return 0; }
  virtual int num_ranks() const { return 1; }

  enum class Reduction : uint8_t { sum, maximum };
  /// out[i] = ((in_0[i] + in_1[i]) + in_2[i]) + .., by rank: the bits depend on nothing else. f32, f64, i32, u32; `in` may be `out`.
  /// A maximum with a NaN is NaN.
  virtual void all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction reduction);
  /// `out` receives the bytes of every rank, by rank; bytes[r] come from rank r.
  virtual void all_gather(const void* in, void* out, std::span<const int64_t> bytes);
  virtual void barrier() {}

  /// f32 numbers in the memory of a step.
  struct Numbers {
    float* data = nullptr;
    int64_t count = 0;
  };
  /// Begins to add up `bucket`, array after array, in place, with the bits of all_reduce(). Returns at once where overlaps(); until
  /// finish_sum(id) has returned, nobody else touches the numbers. `bucket` itself must live so long too. Buckets and other
  /// collectives run in the order in which they were begun.
  virtual void begin_sum(int64_t id, std::span<const Numbers> bucket);
  virtual void finish_sum(int64_t) {}
  /// Returns when nothing that was begun is under way: where a step stops early.
  virtual void finish_all() {}
  /// Whether sums go on while this thread computes.
  virtual bool overlaps() const { return false; }

  /// Since the process joined: how long callers stood still in collectives, and how long collectives were under way at all.
  struct Times {
    double exposed_s = 0, total_s = 0;
  };
  virtual Times times() const { return {}; }
};

/// The process's; of one rank until set.
Communicator& communicator();
/// nullptr: back to one rank. Not while steps run.
void set_communicator(std::unique_ptr<Communicator> communicator);

}  // namespace ws
