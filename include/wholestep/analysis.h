// What a compiled step costs and where its time goes: counted before it runs (cost, memory), predicted from what this machine can do
// at best (roofs), measured kernel by kernel (profile), and named (classification). A Compiled answers all of it; see jit.h.
// Units are in the names: bytes, seconds, FLOPs (a multiply and an add are two). Every struct has text() for people and json().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "wholestep/error.h"

namespace ws {

/// Memory that a step may use: the machine's, or the container's limit, or the flag memory_limit.
int64_t machine_memory_bytes();

/// What this machine can do at best, measured: never a data sheet's figure.
struct Roofs {
  struct Peak {
    std::string isa;         // "avx2", "avx512"
    double flops_per_s = 0;  // fp32 FMA, all threads together
    double one_thread_flops_per_s = 0;
  };
  struct Level {
    std::string name;             // "L1", "L2", "L3", "DRAM"
    int64_t bytes = 0;            // size of the level (of each core for L1 and L2); 0 for DRAM
    double read_bytes_per_s = 0;  // all threads together, each on its own part
    double copy_bytes_per_s = 0;  // bytes read plus bytes written
  };
  /// What a kernel of one kind reaches with its data in cache: a prediction takes these rather than the peak.
  struct Rate {
    std::string kind;  // "matmul", "matmul bf16", "attention", "elementwise", "reduction"
    double size = 0;   // of a matmul: cube root of m n k; rates between two sizes are interpolated. 0: one rate for all
    double flops_per_s = 0;
  };
  std::string cpu;  // model name
  int threads = 1;
  double fp32_flops_per_s = 0;    // of the fastest ISA
  double bf16_flops_per_s = 0;    // of the fastest bf16 instruction; 0 where the machine has none
  double memory_bytes_per_s = 0;  // reading from DRAM
  std::vector<Peak> peaks;        // by ISA that the machine has, widest last
  std::vector<Peak> bf16_peaks;   // by bf16 dot instruction that the machine has, fastest last; may be empty
  std::vector<Level> levels;      // nearest first
  std::vector<Rate> rates;        // by kind, sizes ascending
  double barrier_ns = 0;          // one parallel loop over all threads with nothing to do
  double dispatch_ns = 0;         // one loop that stays on the calling thread

  /// Read bandwidth for a set of that many bytes: of the first level that holds it, L1 and L2 counted once a thread.
  double bytes_per_s(int64_t bytes) const;
  /// FLOP/s that a kernel of this kind reaches; where the kind was not measured, that of its fp32 kind, else the peak.
  double flops_per_s(const std::string& kind, double size = 0) const;
  std::string text() const;
  std::string json() const;
};

/// The roofs of this machine for so many threads (0: the process's setting): measured once in about two seconds, then read from the
/// cache folder; `fresh` measures again. An Error on a machine without AVX2.
Roofs machine_roofs(int num_threads = 0, bool fresh = false);

/// Kinds: "matmul", "attention", "elementwise", "reduction", "movement" (gather, scatter, copies), "check".
struct KernelCost {
  int call = 0;                  // place in the step
  std::string name, path, kind;  // path: of the layer
  double flops = 0, bytes = 0;   // bytes: read and written, each once
  bool recomputed = false;       // runs a second time, to save memory
};

struct CostAnalysis {
  double flops = 0, bytes = 0;  // of the whole step, recomputation included
  double recomputed_flops = 0, recomputed_bytes = 0;
  int num_kernels = 0;
  std::vector<KernelCost> kernels;  // in the order they run
  struct Kind {
    std::string kind;
    int num_kernels = 0;
    double flops = 0, bytes = 0;
  };
  std::vector<Kind> kinds;  // most FLOPs first

  std::string text() const;  // totals and kinds
  std::string json() const;
};

/// One value in memory.
struct TensorMemory {
  std::string name;  // of the graph's value ("%12 matmul") or input ("blocks.0.norm1.weight")
  std::string path;  // of the layer whose kernel writes it first
  std::string role;  // "argument", "output", "donated", "derived", "temporary"
  std::string dtype;
  int64_t bytes = 0;
  int64_t offset = -1;                  // in the arena; -1 outside it
  int first_call = -1, last_call = -1;  // kernels between which it holds something
  bool in_place = false;                // written over a value that ends there
};

struct MemoryAnalysis {
  int64_t argument_bytes = 0, output_bytes = 0, temporary_bytes = 0, peak_bytes = 0, donated_bytes = 0;
  int64_t derived_bytes = 0;      // copies of parameters that the step keeps for itself, in the dtype of products; in the peak
  int64_t arena_bytes = 0;        // temporaries as planned, which the peak counts; with per-thread scratch it is temporary_bytes
  int64_t lower_bound_bytes = 0;  // the largest sum of temporaries that hold something at once: no arena is smaller
  std::vector<TensorMemory> tensors;
  int num_calls = 0;
  // Recomputation (JitOptions::memory_budget_bytes, checkpoint()).
  int64_t budget_bytes = 0;          // 0: none was asked for
  int64_t unlimited_peak_bytes = 0;  // the peak without a budget
  bool limited = false;              // the budget was below that: kernels run twice
  int num_recomputed = 0;            // kernels that run a second time

  std::string text() const;  // totals and the largest tensors at the peak
  std::string json() const;
  /// The arena over the step: kernels to the right, offsets upwards, one rectangle a tensor. The SVG follows the reader's light or
  /// dark scheme; the HTML page holds it with a table of the tensors.
  std::string map_svg() const;
  std::string map_html(const std::string& title) const;
};

/// Time by roofline: each kernel takes the longer of its arithmetic and its memory traffic, plus what starting it costs.
struct Prediction {
  struct Kernel {
    int call = 0;
    double seconds = 0, compute_seconds = 0, memory_seconds = 0, dispatch_seconds = 0;
    std::string bound;  // "compute", "memory", "dispatch": the largest of the three
  };
  double seconds = 0;
  double compute_share = 0, memory_share = 0, dispatch_share = 0;  // of `seconds`, by each kernel's bound
  std::vector<Kernel> kernels;

  std::string text() const;
  std::string json() const;
};

/// One step, measured kernel by kernel.
struct Profile {
  struct Kernel {
    int call = 0;
    std::string name, path, kind;
    double seconds = 0, flops = 0, bytes = 0;
    double flops_per_s = 0, bytes_per_s = 0;
    double least_seconds = 0;  // what peak and memory allow
    double roof_share = 0;     // that / time taken
    double predicted_seconds = 0;
    bool recomputed = false;
  };
  /// All kernels of a kind together.
  struct Kind {
    std::string kind;  // as in cost_analysis()
    int kernels = 0;
    double seconds = 0, flops = 0, bytes = 0, least_seconds = 0, predicted_seconds = 0;
  };
  double seconds = 0;
  std::vector<Kernel> kernels;

  std::vector<Kind> by_kind() const;  // longest first
  std::string text() const;           // kernels, longest first, then kinds
  std::string kinds_text() const;     // the second table alone
  std::string json() const;
};

/// What limits a step. `bound` names what takes 60 % of the time or more, else it is "mixed".
struct Classification {
  std::string bound;  // "dispatch", "compute", "memory" or "mixed"
  double compute_share = 0, memory_share = 0, dispatch_share = 0;
  double flops_per_s = 0, bytes_per_s = 0;     // of the whole step
  double peak_share = 0, bandwidth_share = 0;  // of the fp32 (or bf16) peak and of memory bandwidth
  bool measured = false;                       // from a measured time; else from the prediction
  std::vector<std::string> evidence;
  std::string next_change;  // the cheapest that is likely to help

  std::string text() const;
  std::string json() const;
};

}  // namespace ws
