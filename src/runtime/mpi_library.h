// The few functions of OpenMPI that we call, found in its shared library when a job asks for them: a process on its own neither loads
// nor links MPI.
#pragma once

namespace ws::mpi {

// OpenMPI's handles are pointers to objects that its library exports.
using Comm = void*;
using Datatype = void*;
using Request = void*;

struct Library {
  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*finalize)();
  int (*abort)(Comm, int exit_code);
  int (*comm_rank)(Comm, int* rank);
  int (*comm_size)(Comm, int* size);
  int (*isend)(const void* data, int count, Datatype, int to, int tag, Comm, Request*);
  int (*irecv)(void* data, int count, Datatype, int from, int tag, Comm, Request*);
  int (*waitall)(int count, Request*, void* statuses);
  int (*testall)(int count, Request*, int* done, void* statuses);
  int (*barrier)(Comm);
  Comm world;
  Datatype byte;
};

constexpr int kThreadSerialized = 2;  // MPI_THREAD_SERIALIZED: any thread may call, one at a time

/// Loaded at the first call; an Error says what is missing and how to install it.
const Library& library();

}  // namespace ws::mpi
