// What each thread knows while ops are called: the layer path, whether a tape is wanted, the trace in progress.
#pragma once
#include <string>

namespace ws {

class Tracer;

struct ThreadContext {
  std::string path;  // "blocks.0.attention"
  bool no_grad = false;
  Tracer* tracer = nullptr;
};

inline ThreadContext& context() {
  thread_local ThreadContext instance;
  return instance;
}

}  // namespace ws
