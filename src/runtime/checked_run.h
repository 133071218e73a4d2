// CheckedRun: a look at every kernel of one run, for the flags VERIFY=3 (against the double-precision reference, each kernel from
// what it really read), NAN_CHECK, POISON (freed arena memory is NaN, buffers have guards) and TRACE.
#pragma once
#include <map>
#include <vector>

#include "runtime/executable.h"

namespace ws {

/// Makes every temporary longer by a guard zone. Before the memory plan.
void add_guards(Program& program);

class CheckedRun {
 public:
  /// Whether a flag asks for it.
  static bool wanted();
  CheckedRun(const Executable& executable, void* const* inputs, void* const* outputs, char* arena);
  void before(int call);
  /// Throws RuntimeError (NAN_CHECK) or InternalError (VERIFY, POISON) naming kernel, layer path and element.
  void after(int call, double ns);

 private:
  const KernelCall& call_at(int call) const { return executable_.program().calls[static_cast<size_t>(call)]; }
  char* address(int buffer) const;
  RefArray read(int buffer) const;
  struct Known {
    RefArray array;
    bool stale = false;  // made from memory that has been given away
  };
  struct Expected {
    RefArray array;
    double largest_input = 0;  // of what it was made from
  };
  const Known& value(Value v);
  double largest_known() const;
  bool rounds_inside(int call) const;
  void find_lifetimes();
  void poison(int buffer) const;
  void check_guards(int call) const;
  void check_finite(int call) const;
  void compare(int call);
  bool writes_value(int call, int value) const;

  const Executable& executable_;
  void* const* inputs_;
  void* const* outputs_;
  char* arena_;
  std::vector<int> buffer_of_value_;  // by value id, -1: never in memory
  std::vector<int> last_use_;         // by buffer: last call that reads or writes it
  std::vector<int> last_touch_;       // by buffer: the same, or what took over its memory
  std::vector<int> last_write_;       // by buffer: the call that completes it
  std::vector<int> written_before_;   // buffers that hold their value by now, inputs included
  std::vector<int> nodes_here_;       // nodes of the kernel looked at
  int call_ = 0;                      // its index
  std::map<int, Known> known_;        // by value id: what this kernel's reference has needed so far
  std::map<int, Expected> expected_;  // by value id: first phases leave it for the second
};

}  // namespace ws
