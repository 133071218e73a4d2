// checkpoint(): in a trace, nodes are marked and the planner lets go of their results between forward and backward; in the loop, the
// tape forgets their data and runs the ops again when the walk back asks for it.
#include "tensor/checkpoint.h"

#include <atomic>
#include <unordered_set>

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/dispatch.h"
#include "tensor/tape.h"
#include "tensor/tracer.h"
#include "wholestep/recompute.h"

namespace ws {
namespace {

thread_local std::vector<std::shared_ptr<TapeNode>>* nodes_inside = nullptr;

class CheckpointScope {
 public:
  CheckpointScope(int number, std::vector<std::shared_ptr<TapeNode>>* nodes) {
    context().checkpoint = number;
    nodes_inside = nodes;
  }
  ~CheckpointScope() {
    context().checkpoint = 0;
    nodes_inside = nullptr;
  }
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;
};

/// The tensor's place in the history, without its bytes.
std::shared_ptr<TensorImpl> without_data(const TensorImpl& impl) {
  auto hollow = alias_of(impl);
  hollow->storage = {};
  hollow->node = impl.node;
  hollow->result_index = impl.result_index;
  hollow->requires_grad = impl.requires_grad;
  return hollow;
}

void forget_data(const std::vector<std::shared_ptr<TapeNode>>& nodes, const std::vector<Tensor>& results) {
  std::unordered_set<const Storage*> kept;  // the block's results, and what shares their memory
  for (const Tensor& t : results) kept.insert(t.impl()->storage.get());
  for (const auto& node : nodes) {
    for (TensorData& result : node->results)
      if (kept.count(result.storage.get()) == 0) result.storage = {};
    for (auto& input : node->inputs)
      if (input->node && input->node->checkpoint == node->checkpoint && kept.count(input->storage.get()) == 0)
        input = without_data(*input);
  }
}

}  // namespace

void note_in_checkpoint(const std::shared_ptr<TapeNode>& node) {
  if (nodes_inside) nodes_inside->push_back(node);
}

std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>()>& block) {
  if (context().checkpoint > 0) return block();  // part of the outer one
  Tracer* tracer = context().tracer;
  static std::atomic<int> numbers{0};
  std::vector<std::shared_ptr<TapeNode>> nodes;
  std::vector<Tensor> results;
  {
    CheckpointScope scope(tracer ? ++tracer->num_checkpoints : ++numbers, &nodes);
    results = block();
  }
  for (size_t i = 0; i < results.size(); ++i)
    if (!results[i].defined()) fail("{}checkpoint: result {} of the block is an undefined Tensor", path_prefix(), i);
  if (!tracer) {
    forget_data(nodes, results);
    return results;
  }
  std::vector<Tensor> traced;  // what the block merely passed on needs nothing
  for (const Tensor& t : results)
    if (t.impl()->traced()) traced.push_back(t);
  tracer->keep_results(traced);
  return results;
}

}  // namespace ws
