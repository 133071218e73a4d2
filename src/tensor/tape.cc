#include "tensor/tape.h"

#include <atomic>

#include "support/error.h"
#include "tensor/checkpoint.h"
#include "tensor/context.h"

namespace ws {
namespace {

uint64_t next_number(std::atomic<uint64_t>& counter) { return counter.fetch_add(1, std::memory_order_relaxed) + 1; }

}  // namespace

// A long history is taken apart by a loop, not by recursion through its tensors: each release may free the next node.
void TapeNode::release() {
  thread_local std::vector<std::shared_ptr<TensorImpl>>* pending = nullptr;
  results.clear();
  if (pending) {
    for (auto& input : inputs) pending->push_back(std::move(input));
    inputs.clear();
    return;
  }
  if (inputs.empty()) return;
  std::vector<std::shared_ptr<TensorImpl>> mine;
  pending = &mine;
  mine.swap(inputs);
  while (!mine.empty()) {
    auto last = std::move(mine.back());
    mine.pop_back();
    last.reset();
  }
  pending = nullptr;
}

TapeNode::~TapeNode() { release(); }

bool wants_gradient(const OpDef& op, Operands inputs) {
  static const OpDef* const stop_gradient = find_op("stop_gradient");
  if (context().no_grad || &op == stop_gradient) return false;
  for (const TensorImpl* x : inputs)
    if (x->requires_grad) return true;
  return false;
}

bool belongs_on_tape(const OpDef& op, Operands inputs) {
  return wants_gradient(op, inputs) || (context().checkpoint > 0 && !context().no_grad);
}

void record_on_tape(const OpDef& op, Operands inputs, const Attrs& attrs, std::span<std::shared_ptr<TensorImpl>> results) {
  static std::atomic<uint64_t> sequence{0};  // of the process: tensors may move between threads
  const bool differentiable = wants_gradient(op, inputs);
  const int checkpoint = context().checkpoint;
  bool any = false;
  for (const auto& r : results) any |= is_floating(r->dtype);
  if (!any && checkpoint == 0) return;  // comparisons, integers: no gradient passes
  auto node = std::make_shared<TapeNode>();
  node->op = &op;
  node->attrs = attrs;
  node->path = context().path;
  node->sequence = next_number(sequence);
  node->checkpoint = checkpoint;
  node->inputs.reserve(inputs.size());
  for (TensorImpl* x : inputs) node->inputs.push_back(x->shared_from_this());
  node->results.reserve(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    node->results.push_back(*results[i]);
    if (!is_floating(results[i]->dtype) && checkpoint == 0) continue;
    results[i]->requires_grad = differentiable && is_floating(results[i]->dtype);
    results[i]->node = node;
    results[i]->result_index = static_cast<int>(i);
  }
  if (checkpoint > 0) note_in_checkpoint(node);
}

uint64_t new_leaf_id() {
  static std::atomic<uint64_t> counter{0};
  return next_number(counter);
}

std::shared_ptr<TensorImpl> as_leaf(const TensorImpl& impl, uint64_t leaf_id, bool requires_grad) {
  auto leaf = alias_of(impl);
  leaf->trace_id = impl.trace_id;
  leaf->value = impl.value;
  leaf->leaf_id = leaf_id;
  leaf->requires_grad = requires_grad;
  return leaf;
}

}  // namespace ws
