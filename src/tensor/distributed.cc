// A process's part in a job of several.
#include "wholestep/distributed.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "runtime/mpi_communicator.h"
#include "support/communicator.h"
#include "support/error.h"
#include "support/log.h"
#include "tensor/eager.h"
#include "tensor/tape.h"
#include "tensor/variable.h"

namespace ws::distributed {
namespace {

bool joined = false;

/// The first rank of the job that asks gets true. Whoever started the job removes the folder when it is over.
bool is_first_to_report() {
  const char* folder = std::getenv("WHOLESTEP_JOB_FOLDER");
  if (folder == nullptr) folder = std::getenv("PMIX_SERVER_TMPDIR");  // mpirun's
  if (folder == nullptr) return true;
  const int file = open((std::string(folder) + "/error_reported").c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file < 0) return errno != EEXIST;
  close(file);
  return true;
}

/// 64 bits of the bytes (FNV-1a, eight at a time).
uint64_t digest(const void* data, int64_t num_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t i = 0; i < num_bytes; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, static_cast<size_t>(std::min<int64_t>(8, num_bytes - i)));
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

Job::Job() {
  if (joined) fail("there is a distributed::Job already: make one in a process, at the start of main");
  joined = true;
  if (started_by_mpirun()) set_communicator(join_mpi_job());
  set_quiet(rank() != 0);
}

Job::~Job() {
  const bool alone = !started_by_mpirun();
  if (!alone && std::uncaught_exceptions() > 0) abort_mpi_job(1);
  set_communicator(nullptr);
  set_quiet(false);
  if (!alone) leave_mpi_job();
  joined = false;
}

int Job::rank() const { return distributed::rank(); }
int Job::size() const { return distributed::size(); }
int rank() { return communicator().rank(); }
int size() { return communicator().num_ranks(); }
void barrier() { communicator().barrier(); }

bool any(bool here) { return maximum(here ? 1 : 0) > 0; }

double maximum(double here) {
  communicator().all_reduce(&here, &here, 1, DType::f64, Communicator::Reduction::maximum);
  return here;
}

void abort(const std::string& message, int exit_code) {
  if (size() == 1) {
    note("{}", message);
    std::exit(exit_code);
  }
  set_quiet(false);
  if (is_first_to_report()) note("rank {}: {}", rank(), message);
  abort_mpi_job(exit_code);
}

void make_whole(std::span<const Variable> variables) {
  for (const Variable& v : variables) {
    Variable::Slot& slot = *v.slot();
    if (!slot.sharded()) continue;
    const Type type = slot.whole_type();
    const int64_t row_bytes = type.shape[0] == 0 ? 0 : type.num_bytes() / type.shape[0];
    std::vector<int64_t> bytes;
    for (int r = 0; r < size(); ++r) {
      const auto [begin, end] = rows_of_rank(type.shape[0], size(), r);
      bytes.push_back((end - begin) * row_bytes);
    }
    const std::shared_ptr<TensorImpl> whole = new_dense(type), part = dense_copy_if_needed(slot.value.impl());
    communicator().all_gather(part->pointer(), whole->pointer(), bytes);
    slot.bind(as_leaf(*whole, slot.leaf_id, slot.trainable));
    slot.whole_rows = -1;
  }
}

void check_replicas(std::span<const Variable> variables) {
  const auto ranks = static_cast<size_t>(size());
  std::vector<uint64_t> mine, all(variables.size() * ranks);
  for (const Variable& v : variables) {
    if (v.slot()->sharded()) {
      mine.push_back(0);
      continue;
    }
    const auto impl = dense_copy_if_needed(v.value().impl());
    mine.push_back(digest(impl->pointer(), impl->num_bytes()));
  }
  const std::vector<int64_t> bytes(ranks, static_cast<int64_t>(8 * mine.size()));
  communicator().all_gather(mine.data(), all.data(), bytes);
  for (size_t i = 0; i < mine.size(); ++i)
    for (size_t r = 1; r < ranks; ++r)
      if (all[r * mine.size() + i] != all[i])
        fail_at_run("'{}' has other bits on rank {} than on rank 0: replicas have drifted apart", variables[i].name(), r);
}

}  // namespace ws::distributed
