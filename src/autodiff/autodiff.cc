#include "autodiff/autodiff.h"

#include <unordered_map>
#include <unordered_set>

#include "support/error.h"

namespace ws {

namespace {

/// Gradients found so far, by value.
class Gradients {
 public:
  explicit Gradients(Builder& builder) : builder_(builder) {}
  Value find(Value v) const {
    const auto it = by_id_.find(v.id);
    return it == by_id_.end() ? Value{} : it->second;
  }
  // Later uses were added before: the sum runs in reverse program order. A bf16 value may have an f32 gradient; sums are taken in f32.
  void add(Value v, Value grad) {
    Value& sum = by_id_[v.id];
    if (!sum) {
      sum = grad;
      return;
    }
    const DType have = builder_.type_of(sum).dtype, more = builder_.type_of(grad).dtype;
    if (have != more || have == DType::bf16) sum = builder_.cast(sum, DType::f32), grad = builder_.cast(grad, DType::f32);
    sum = builder_.add(sum, grad);
  }
  void forget(Value v) { by_id_.erase(v.id); }
  std::vector<Value> all() const {
    std::vector<Value> values;
    values.reserve(by_id_.size());
    for (const auto& [id, grad] : by_id_) values.push_back(grad);
    return values;
  }

 private:
  Builder& builder_;
  std::unordered_map<int32_t, Value> by_id_;
};

// Values that depend on one of `wrt`: only these get gradients.
std::unordered_set<int32_t> dependents(std::span<const TapeEntry> tape, std::span<const Value> wrt) {
  std::unordered_set<int32_t> found;
  for (Value v : wrt) found.insert(v.id);
  for (const TapeEntry& entry : tape)
    for (Value v : entry.inputs)
      if (found.contains(v.id)) {
        for (Value r : entry.results) found.insert(r.id);
        break;
      }
  return found;
}

class Walk {
 public:
  Walk(Builder& builder, std::span<const TapeEntry> tape, std::span<const Value> wrt)
      : builder_(builder), gradients_(builder), active_(dependents(tape, wrt)) {
    for (Value v : wrt) wrt_.insert(v.id);
  }

  Gradients& gradients() { return gradients_; }

  /// Whether the entry's vjp ran.
  bool visit(const TapeEntry& entry) {
    const uint64_t wanted = wanted_inputs(entry);
    if (wanted == 0) return false;
    std::vector<Value> grad_results;
    bool any = false;
    for (Value r : entry.results) {
      grad_results.push_back(in_its_dtype(*entry.op, r, gradients_.find(r)));
      any = any || grad_results.back();
    }
    if (!any) return false;
    if (!entry.op->differentiable())
      fail(
          "{} is not differentiable, and the loss depends on a parameter through it: use stop_gradient on its inputs, or compose "
          "it of other ops",
          entry.op->name);
    const std::vector<Value> grads = entry.op->vjp(builder_, {entry.inputs, entry.results, grad_results, entry.attrs, wanted});
    WS_ASSERT(grads.size() == entry.inputs.size(), "the vjp of {} gives {} gradients for {} inputs", entry.op->name, grads.size(),
              entry.inputs.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i] || !is_wanted(entry.inputs[i])) continue;
      const Type have = builder_.type_of(grads[i]), input = builder_.type_of(entry.inputs[i]);
      WS_ASSERT(have.shape == input.shape, "the vjp of {} gives {} for an input of {}", entry.op->name, have.str(), input.str());
      gradients_.add(entry.inputs[i], grads[i]);
    }
    for (Value r : entry.results)
      if (!wrt_.contains(r.id)) gradients_.forget(r);
    return true;
  }

 private:
  bool is_wanted(Value v) const { return active_.contains(v.id) && is_floating(builder_.type_of(v).dtype); }

  uint64_t wanted_inputs(const TapeEntry& entry) const {
    uint64_t bits = 0;
    for (size_t i = 0; i < entry.inputs.size(); ++i)
      if (is_wanted(entry.inputs[i])) bits |= uint64_t{1} << (i < 63 ? i : 63);
    return bits;
  }

  // An op without kWideGradient computes with the gradient in the dtype of its result.
  Value in_its_dtype(const OpDef& op, Value result, Value grad) {
    return !grad || op.has(kWideGradient) ? grad : builder_.cast(grad, builder_.type_of(result).dtype);
  }

  Builder& builder_;
  Gradients gradients_;
  std::unordered_set<int32_t> active_, wrt_;
};

}  // namespace

std::vector<Value> backward(Builder& builder, std::span<const TapeEntry> tape, Value loss, std::span<const Value> wrt,
                            const std::function<void(size_t)>& on_done, const std::function<void(std::span<const Value>)>& keep) {
  const Type type = builder.type_of(loss);
  if (!is_floating(type.dtype)) fail("the gradient of a loss of {}: only floating values have gradients", type.str());
  if (type.shape.rank() != 0)
    fail("the gradient of a loss of {}: a loss is one number, reduce it with sum() or mean()", type.str());
  Walk walk(builder, tape, wrt);
  walk.gradients().add(loss, builder.constant(type.dtype, 1));
  for (size_t i = tape.size(); i-- > 0;) {
    const bool ran = walk.visit(tape[i]);
    if (ran && keep) keep(walk.gradients().all());
    if (on_done) on_done(i);
  }
  std::vector<Value> result;
  for (Value v : wrt) {
    const Value grad = walk.gradients().find(v);
    const DType dtype = builder.type_of(v).dtype;
    result.push_back(!grad || !is_floating(dtype) ? Value{} : builder.cast(grad, dtype));
  }
  return result;
}

}  // namespace ws
