// Commands on several processes: --ranks k starts this program again, k times, under mpirun.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "wholestep/jit.h"

namespace ws::cli {

/// How training is shared by processes.
struct MeshOptions {
  int64_t ranks = 1;
  std::string overlap = "auto";
  double bucket_mb = 0;
  bool shard_optimizer = false;
  /// Of this job. An Error for what is not a choice.
  Mesh mesh() const;
  /// Says in one line which of them do nothing, since there is one rank.
  void note_idle() const;
};
/// --ranks, --overlap, --bucket-mb, --shard-optimizer.
void add_mesh(CLI::App* command, MeshOptions& options);

/// Runs `action` where there is one rank, or where this process is one of the ranks asked for; else starts them with the arguments
/// that this process was given, waits, and returns their exit code. An Error where mpirun has started another number, and for more
/// than 16 ranks a core.
int on_ranks(int64_t ranks, const std::function<int()>& action);

struct RanksResult {
  int exit_code = 0;
  int signal = 0;      // that came to this process meanwhile and was passed on; 0: none
  std::string output;  // of rank 0, where captured
};
/// `wholestep ARGUMENTS` on `ranks` processes of this machine, the cores divided among them unless the flag THREADS says otherwise.
/// Works as root and without a network. Ctrl-C is passed on, once as a wish to end. stdout is captured or passed through. Where
/// a rank dies without a word, a note says so. An Error where mpirun cannot be started.
RanksResult run_ranks(int64_t ranks, const std::vector<std::string>& arguments, bool capture_output = false);

/// What main was given, without the program's name.
std::vector<std::string>& program_arguments();

}  // namespace ws::cli
