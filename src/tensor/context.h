// What each thread knows while ops are called: the layer path, whether a tape is wanted, what products compute in, the trace in progress.
#pragma once
#include <string>

#include "wholestep/precision.h"

namespace ws {

class Tracer;

struct ThreadContext {
  std::string path;  // "blocks.0.attention"
  bool no_grad = false;
  DType compute_dtype = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::highest;
  Tracer* tracer = nullptr;
  int checkpoint = 0;  // > 0: inside checkpoint(), in the loop or in a trace
};

inline ThreadContext& context() {
  thread_local ThreadContext instance;
  return instance;
}

}  // namespace ws
