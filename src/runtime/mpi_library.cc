#include "runtime/mpi_library.h"

#include <dlfcn.h>

#include "support/error.h"

namespace ws::mpi {
namespace {

constexpr const char* kFile = "libmpi.so.40";  // of OpenMPI 4 and 5
bool is_loaded = false;

template <class T>
void find(void* handle, const char* name, T& to) {
  void* const symbol = dlsym(handle, name);
  if (symbol == nullptr) fail("{} has no {}: it is not OpenMPI's library", kFile, name);
  to = reinterpret_cast<T>(symbol);
}

Library load() {
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_GLOBAL);  // global: OpenMPI's plug-ins look for its symbols
  if (handle == nullptr) fail("MPI cannot be loaded ({}): install Debian's libopenmpi3 and openmpi-bin", dlerror());
  is_loaded = true;
  Library mpi = {};
  find(handle, "MPI_Init_thread", mpi.init_thread);
  find(handle, "MPI_Finalize", mpi.finalize);
  find(handle, "MPI_Abort", mpi.abort);
  find(handle, "MPI_Comm_rank", mpi.comm_rank);
  find(handle, "MPI_Comm_size", mpi.comm_size);
  find(handle, "MPI_Isend", mpi.isend);
  find(handle, "MPI_Irecv", mpi.irecv);
  find(handle, "MPI_Waitall", mpi.waitall);
  find(handle, "MPI_Testall", mpi.testall);
  find(handle, "MPI_Barrier", mpi.barrier);
  find(handle, "ompi_mpi_comm_world", mpi.world);
  find(handle, "ompi_mpi_byte", mpi.byte);
  return mpi;
}

}  // namespace

const Library& library() {
  static const Library instance = load();
  return instance;
}

}  // namespace ws::mpi

#ifdef __SANITIZE_ADDRESS__
// OpenMPI and its plug-ins leave memory behind and are gone when leaks are looked for: there is no name to suppress them by.
extern "C" int __lsan_is_turned_off();
int __lsan_is_turned_off() { return ws::mpi::is_loaded ? 1 : 0; }
#endif
