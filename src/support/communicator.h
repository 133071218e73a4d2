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
};

/// The process's; of one rank until set.
Communicator& communicator();
/// nullptr: back to one rank. Not while steps run.
void set_communicator(std::unique_ptr<Communicator> communicator);

}  // namespace ws
