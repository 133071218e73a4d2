// What each op of a compiled step computes in, and where fp32 leaked into a bf16 region. Compiled::dtype_report() makes it.
#pragma once
#include <string>
#include <vector>

#include "wholestep/dtype.h"

namespace ws {

struct DTypeReport {
  /// Ops of one name and dtypes, of the graph after the passes.
  struct Op {
    std::string name;
    std::vector<DType> inputs;
    DType result = DType::f32;
    DType compute = DType::f32;  ///< of the arithmetic; sums of products of bf16 are f32
    bool moves_data = false;     ///< views, copies and casts: no arithmetic
    int count = 0;
  };
  /// An op of the forward pass, between bf16 values, that works in f32.
  struct Leak {
    std::string op, path;           ///< which, and of which layer ("" outside of layers)
    std::string cause, cause_path;  ///< the op or input that made it f32
    std::string message;            ///< one line that says both
    int count = 0;                  ///< such ops, of all with these names and paths
  };
  std::vector<Op> ops;
  std::vector<Leak> leaks;

  /// A line for each kind of op, then one for each leak, or "no fp32 leak".
  std::string text() const;
  /// {"ops": [{"op", "inputs", "result", "compute", "count"}..], "leaks": [{"op", "path", "cause", "cause_path", "message", "count"}..]};
  /// "compute" is null where nothing is computed.
  std::string json() const;
};

}  // namespace ws
