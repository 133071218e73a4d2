// Data parallel training: k processes under mpirun, one device each, train one model on shares of each batch. The step is written as
// for one process; the compiler splits it and puts in what the ranks exchange.
//
//   ws::distributed::Job job;                                    // joins the processes that mpirun started; alone: one rank
//   ws::Trainer trainer(model, ws::MSE(), ws::SGD(), {.compile = true, .mesh = job.mesh()});
//   trainer.fit(X, y, ..);                                       // every rank is given the whole batch and reads its rows
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "wholestep/jit.h"

namespace ws::distributed {

/// This process's part in a job, while it lives. Make one at the start of main, before any step. Notes and progress are those of rank 0. MPI is loaded only where mpirun
/// started the process; MPI that cannot be loaded is an Error. Where it is destroyed by an exception, and after abort(), the
/// whole job ends with a non-zero exit code.
class Job {
 public:
  Job();
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  int rank() const;  ///< 0 .. size-1
  int size() const;  ///< number of processes
  /// All processes on the data axis.
  Mesh mesh() const { return {.data = size()}; }
};

/// Of the process's Job; 0 and 1 without.
int rank();
int size();
/// Returns once every rank is here.
void barrier();
/// Whether any rank says so: decisions that must be common (to stop, to save). Every rank calls it.
bool any(bool here);
/// The largest number that a rank gives. Every rank calls it.
double maximum(double here);
/// Ends all processes of the job with this exit code, which is not 0. The message is printed as one line, once a job: by the rank that
/// comes first.
[[noreturn]] void abort(const std::string& message, int exit_code = 1);

/// Gathers sharded state (JitOptions::sharded_state): each of `variables` is whole on every rank, until a step shards it again. Every rank
/// calls it.
void make_whole(std::span<const Variable> variables);

/// Throws RuntimeError naming the first of `variables` whose bytes differ between ranks; sharded ones are passed over. Every rank
/// calls it. With the flag VERIFY from 1 on, every step of a mesh does.
void check_replicas(std::span<const Variable> variables);

}  // namespace ws::distributed
