#include "tensor/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "analysis/communication.h"
#include "runtime/thread_pool.h"
#include "support/communicator.h"
#include "support/flags.h"

namespace ws {
namespace {

/// Whether each rank of this machine can have one core more than its threads: a thread that sends and adds up needs one.
bool has_core_to_spare() {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int ranks_here = text != nullptr ? std::max(1, std::atoi(text)) : communicator().num_ranks();
  return available_cpus() >= ranks_here * (configured_threads() + 1);
}

/// One answer for all ranks, at the first question: their programs must meet.
bool all_have_cores_to_spare() {
  static const bool answer = [] {
    double lacks = has_core_to_spare() ? 0 : 1;
    communicator().all_reduce(&lacks, &lacks, 1, DType::f64, Communicator::Reduction::maximum);
    return lacks == 0;
  }();
  return answer;
}

}  // namespace

bool overlaps(const Mesh& mesh) {
  if (mesh.data == 1 || mesh.overlap == Overlap::off || !communicator().overlaps()) return false;
  return mesh.overlap == Overlap::on || all_have_cores_to_spare();
}

int64_t bucket_bytes(const Mesh& mesh) {
  if (mesh.bucket_bytes > 0) return mesh.bucket_bytes;
  static const int64_t best = best_bucket_bytes(measure_all_reduce(communicator(), 0.02, int64_t{1} << 20));
  return best;
}

}  // namespace ws
