// What a kernel may ask of the thread pool. The pool itself lives in runtime/; kernels only see this.
#pragma once
#include <cstdint>
#include <type_traits>

namespace ws {

/// Runs units of work, perhaps on several threads. The result must not depend on which thread ran which unit.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual int num_threads() const = 0;
  /// Calls task(context, begin, end, worker) on disjoint ranges that cover [0, units), each a multiple of `grain` long
  /// but the last; returns when all are done. worker is in [0, num_threads()). Allocates nothing. `task` must not throw.
  using Task = void (*)(void* context, int64_t begin, int64_t end, int worker);
  virtual void run(int64_t units, int64_t grain, Task task, void* context) = 0;

  /// The same for any callable taking (begin, end, worker).
  template <class F>
  void parallel_for(int64_t units, int64_t grain, F&& body) {
    using Body = std::remove_reference_t<F>;
    run(
        units, grain, [](void* c, int64_t b, int64_t e, int w) { (*static_cast<Body*>(c))(b, e, w); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
};

/// One thread, no pool: for small graphs, tests and whoever lost the try-acquire.
class SerialWorkers final : public Workers {
 public:
  int num_threads() const override { return 1; }
  void run(int64_t units, int64_t, Task task, void* context) override {
    if (units > 0) task(context, 0, units, 0);
  }
};

}  // namespace ws
