// From a function of tensors to a graph and a recipe: which tensors feed its inputs, where its outputs go.
#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"
#include "tensor/tracer.h"
#include "wholestep/jit.h"

namespace ws {

/// A tensor after the call: a graph output, or an input as it was before the call.
struct Origin {
  enum class Kind : uint8_t { kOutput, kInput };
  Kind kind = Kind::kOutput;
  int index = -1;
};

struct TracedFunction {
  Graph graph;                          // only what is needed; outputs are distinct
  std::vector<Tracer::Source> sources;  // by graph input
  struct Update {
    Variable::Slot* slot;
    Origin origin;
    bool donated;  // written over the slot's memory
  };
  std::vector<Update> updates;  // the state that the function set
  std::vector<Origin> results;  // by result of the function
  std::vector<DTypeReport::Leak> leaks;
  std::vector<ModeRead> modes;  // those under which the function calls these ops

  /// By graph input: a Variable's value, which this step leaves as it is or writes over. Its version tells of other writes.
  std::vector<bool> kept_inputs() const;
};

/// Calls `function` once on traced inputs. The state's Variables hold traced values meanwhile and their own again
/// afterwards, also when something throws.
TracedFunction trace_function(const Compiled::Function& function, const std::vector<Variable>& state,
                              std::span<const Type> arguments, const JitOptions& options);

}  // namespace ws
