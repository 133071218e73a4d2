// The ranks of an MPI job as a Communicator.
#pragma once
#include <memory>

#include "support/communicator.h"

namespace ws {

/// Whether mpirun started this process.
bool started_by_mpirun();
/// Joins the job. Once a process; an Error where MPI cannot be loaded.
std::unique_ptr<Communicator> join_mpi_job();
/// Leaves the job, when all ranks do.
void leave_mpi_job();
/// Ends every process of the job.
[[noreturn]] void abort_mpi_job(int exit_code);

}  // namespace ws
