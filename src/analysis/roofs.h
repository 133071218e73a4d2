// Roofs: what this machine can do at best, measured in about a second: fp32 FMA peak, bandwidth of each level of memory, cost of a
// barrier and of a dispatch. Predictions and "share of the roof" are against these, never against a data sheet.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "support/json.h"

namespace ws {

struct Roofs {
  struct Peak {
    std::string isa;         // "avx2", "avx512"
    double flops_per_s = 0;  // fp32 FMA, all threads together; an FMA is two operations
    double one_thread_flops_per_s = 0;
  };
  struct Level {
    std::string name;             // "L1", "L2", "L3", "DRAM"
    int64_t bytes = 0;            // size of the level (of each core for L1 and L2); 0 for DRAM
    double read_bytes_per_s = 0;  // all threads together, each on its own part
    double copy_bytes_per_s = 0;  // bytes read plus bytes written
  };
  std::string cpu;  // model name
  int threads = 1;
  double fp32_flops_per_s = 0;    // of the fastest ISA
  double memory_bytes_per_s = 0;  // reading from DRAM
  std::vector<Peak> peaks;        // by ISA that the machine has, widest last
  std::vector<Level> levels;      // nearest first
  double barrier_ns = 0;          // one parallel loop over all threads with nothing to do
  double dispatch_ns = 0;         // one loop that stays on the calling thread

  /// Read bandwidth for a set of that many bytes: of the first level that holds it, L1 and L2 counted once a thread.
  double bytes_per_s(int64_t bytes) const;
};

/// Measures on the process's thread pool: under 1.5 seconds. Neighbours disturb it, so every probe takes the best of several
/// short runs. Throws ws::Error on a machine without AVX2.
Roofs measure_roofs(int num_threads);

Json to_json(const Roofs& roofs);
/// Throws ws::Error naming the file for a JSON that is no Roofs.
Roofs roofs_from_json(const Json& json, const std::string& file);

/// The roofs saved in `file` if they are of this machine and thread count; else measures and saves them. A file that cannot be
/// read or written is ignored: it is a cache.
Roofs cached_roofs(const std::string& file, int num_threads);

/// A table for people.
std::string print(const Roofs& roofs);

}  // namespace ws
