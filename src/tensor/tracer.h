// Tracer: records the ops that a function calls into a graph. One at a time on a thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "tensor/mode.h"
#include "tensor/tensor_impl.h"
#include "tensor/variable.h"

namespace ws {

class Tracer {
 public:
  /// Where an input of the graph comes from at each call.
  struct Source {
    enum class Kind : uint8_t { kArgument, kState, kTensor, kSlot };
    Kind kind = Kind::kArgument;
    int index = -1;                        // argument, state
    std::shared_ptr<TensorImpl> tensor;    // kTensor: captured by the function
    std::shared_ptr<Variable::Slot> slot;  // kState, kSlot
  };

  explicit Tracer(std::string name);
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// Inputs known before the function runs.
  Tensor add_argument(const Type& type, int index);
  Tensor add_state(Variable::Slot& slot, int index);
  bool registered(const Variable::Slot& slot) const { return registered_.count(&slot) > 0; }

  /// The node recorded next computes in f32 because f32 and bf16 met in it.
  void note_promotion() { promoted_.push_back(static_cast<int>(graph.nodes().size())); }
  /// The cast recorded next rounds an operand for a product.
  void note_rounding() { rounded_.push_back(static_cast<int>(graph.nodes().size())); }
  std::vector<Tensor> record(const OpDef& op, Operands inputs, const Attrs& attrs);
  /// The value of a tensor met while tracing: its own, or a new input for one that holds data. Error for a parameter
  /// that was not registered.
  Value import(TensorImpl& impl);
  Tensor wrap(Value value, bool requires_grad);
  uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }

  /// Gradients over what was recorded so far; see grad().
  std::vector<Value> gradients(Value loss, std::span<const Value> wrt);

  /// What was recorded before the first gradient was asked for: the forward pass, in most steps.
  int num_forward_nodes() const { return num_forward_nodes_ < 0 ? static_cast<int>(graph.nodes().size()) : num_forward_nodes_; }
  const std::vector<int>& promoted() const { return promoted_; }  // nodes, ascending
  const std::vector<int>& rounded() const { return rounded_; }

  Graph graph;
  std::vector<Source> sources;   // by graph input
  std::vector<ModeRead> modes;   // that the function asked for, each once
  std::vector<int> checkpoints;  // by graph node; shorter than the graph where the last ones are in none
  int num_checkpoints = 0;       // entered so far: they are numbered from 1
  /// These are what the last checkpoint returns: kept.
  void keep_results(const std::vector<Tensor>& results);

  /// Error where a traced tensor is used outside its trace.
  static void check_usable(const TensorImpl& impl, std::string_view op);
  /// Error: `what` needs data, but `impl` is being traced. Names the layer path and the op.
  [[noreturn]] static void fail_reading(const TensorImpl& impl, std::string_view what);

 private:
  enum class NodeState : uint8_t { kPlain, kRecorded, kConsumed };
  std::string unique_input_name(const std::string& wanted);

  uint64_t id_;
  std::string name_;
  GraphBuilder builder_;
  int num_forward_nodes_ = -1;
  std::vector<int> promoted_, rounded_;
  std::vector<NodeState> node_states_;  // by graph node: plain ones are no part of a gradient's path
  std::unordered_map<const Variable::Slot*, int> registered_;
  std::unordered_map<const TensorImpl*, Value> imported_;
  std::vector<std::shared_ptr<TensorImpl>> kept_;  // so that no address in imported_ is used again
  std::unordered_map<std::string, int> names_;
};

/// Makes `tracer` the thread's while it lives.
class TracerScope {
 public:
  explicit TracerScope(Tracer& tracer);
  ~TracerScope();
  TracerScope(const TracerScope&) = delete;
  TracerScope& operator=(const TracerScope&) = delete;

 private:
  std::string path_before_;
  bool no_grad_before_;
  int checkpoint_before_;
};

}  // namespace ws
