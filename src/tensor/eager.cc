#include "tensor/eager.h"

#include <algorithm>

#include "runtime/executable.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "tensor/scalar_bits.h"
#include "tensor/views.h"

namespace ws {
namespace {

struct OperandKey {
  DType dtype;
  bool dense;
  Shape shape;
  std::array<int64_t, kMaxRank> strides;
};

/// One compiled one-node graph and the key it was compiled for.
struct EagerCall {
  size_t hash;
  const OpDef* op;
  Attrs attrs;
  std::vector<OperandKey> operands;
  std::unique_ptr<Executable> executable;
  std::vector<Type> results;

  bool matches(const OpDef& wanted, Operands inputs, const Attrs& wanted_attrs) const {
    if (op != &wanted || operands.size() != inputs.size()) return false;
    for (size_t i = 0; i < operands.size(); ++i) {
      const OperandKey& k = operands[i];
      const TensorImpl& x = *inputs[i];
      if (k.dtype != x.dtype || k.dense != x.dense || !(k.shape == x.shape)) return false;
      if (!k.dense && !std::equal(k.strides.begin(), k.strides.begin() + k.shape.rank(), x.strides.begin())) return false;
    }
    return attrs == wanted_attrs;
  }
};

size_t mix(size_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

size_t hash_of(const OpDef& op, Operands inputs, const Attrs& attrs) {
  size_t hash = reinterpret_cast<size_t>(&op) >> 4;
  if (!attrs.empty()) hash = mix(hash, attrs.hash());
  for (const TensorImpl* x : inputs) {
    hash = mix(hash, (static_cast<uint64_t>(x->dtype) << 8) | (static_cast<uint64_t>(x->dense) << 7) |
                         static_cast<uint64_t>(x->shape.rank()));
    for (int64_t dim : x->shape) hash = mix(hash, static_cast<uint64_t>(dim));
    if (x->dense) continue;
    for (int i = 0; i < x->shape.rank(); ++i) hash = mix(hash, static_cast<uint64_t>(x->strides[static_cast<size_t>(i)]));
  }
  return hash;
}

/// Open addressing; entries never move, so that a call may be used while others are added. One a thread: no lock, and an
/// Executable runs on one thread at a time.
class EagerCache {
 public:
  EagerCall& find(const OpDef& op, Operands inputs, const Attrs& attrs) {
    ++stats.calls;
    size_t hash = hash_of(op, inputs, attrs);
    for (size_t i = hash & mask_; table_[i]; i = (i + 1) & mask_) {
      EagerCall& call = *table_[i];
      if (call.hash == hash && call.matches(op, inputs, attrs)) return call;
    }
    return add(hash, op, inputs, attrs);
  }

  EagerStats stats;

 private:
  static constexpr size_t kMaxCalls = 8192;  // beyond: start again (sizes that change all the time)

  EagerCall& add(size_t hash, const OpDef& op, Operands inputs, const Attrs& attrs) {
    auto call = compile(op, inputs, attrs);
    call->hash = hash;
    ++stats.compiled;
    if (count_ >= kMaxCalls) {
      std::fill(table_.begin(), table_.end(), nullptr);
      count_ = 0;
    }
    if (2 * (count_ + 1) > table_.size()) grow();
    EagerCall& result = *call;
    insert(std::move(call));
    return result;
  }

  void insert(std::unique_ptr<EagerCall> call) {
    size_t i = call->hash & mask_;
    while (table_[i]) i = (i + 1) & mask_;
    table_[i] = std::move(call);
    ++count_;
  }

  void grow() {
    auto old = std::move(table_);
    table_ = std::vector<std::unique_ptr<EagerCall>>(old.size() * 2);
    mask_ = table_.size() - 1;
    count_ = 0;
    for (auto& call : old)
      if (call) insert(std::move(call));
  }

  static std::unique_ptr<EagerCall> compile(const OpDef& op, Operands inputs, const Attrs& attrs) {
    Graph graph;
    graph.name = std::string(op.name);
    std::vector<Value> values;
    ExecutableOptions options;
    options.num_threads = configured_threads();
    options.share_arena = true;
    bool any_strided = false;
    auto call = std::make_unique<EagerCall>();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorImpl& x = *inputs[i];
      values.push_back(graph.add_input(fmt::format("x{}", i), x.type()));
      call->operands.push_back({x.dtype, x.dense, x.shape, x.strides});
      options.input_layouts.push_back({0, strides_of(x)});  // the pointer given is that of element 0
      any_strided |= !x.dense;
    }
    if (!any_strided) options.input_layouts.clear();
    auto results = graph.add_node(op, values, attrs);
    for (size_t i = 0; i < results.size(); ++i) {
      graph.add_output(results[i], fmt::format("y{}", i));
      call->results.push_back(graph.type_of(results[i]));
    }
    call->op = &op;
    call->attrs = attrs;
    call->executable = Executable::compile(graph, options);
    return call;
  }

  std::vector<std::unique_ptr<EagerCall>> table_ = std::vector<std::unique_ptr<EagerCall>>(256);
  size_t mask_ = 255, count_ = 0;
};

EagerCache& cache() {
  thread_local EagerCache instance;
  return instance;
}

constexpr size_t kInlineOperands = 8;

// Runs the call; `results` are dense and fresh.
void execute(EagerCall& call, Operands inputs, std::span<std::shared_ptr<TensorImpl>> results) {
  void* in_inline[kInlineOperands];
  std::vector<void*> in_heap;
  void** in = in_inline;
  if (inputs.size() > kInlineOperands) {
    in_heap.resize(inputs.size());
    in = in_heap.data();
  }
  void* out[kInlineOperands];
  for (size_t i = 0; i < inputs.size(); ++i) in[i] = inputs[i]->pointer();
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] = new_dense(call.results[i]);
    out[i] = results[i]->storage->data;
  }
  call.executable->run(in, out);
}

// Ops that cost nothing in the loop: the same bytes under another description. Null where a kernel has to run.
std::shared_ptr<TensorImpl> run_free(const OpDef& op, Operands inputs, const Attrs& attrs) {
  static const OpDef *const stop_gradient = find_op("stop_gradient"), *const constant = find_op("constant");
  if (&op == stop_gradient) return alias_of(*inputs[0]);
  if (&op == constant) return filled({attrs.dtype("dtype"), {}}, attrs.number("value"));
  if (op.lowering != Lowering::kView) return nullptr;
  Type type = inputs[0]->type();
  Type result = op.infer({&type, 1}, attrs)[0];
  auto view = try_view(op, *inputs[0], attrs, result.shape);
  return view ? alias_of(*view) : nullptr;
}

}  // namespace

std::shared_ptr<TensorImpl> run_single(const OpDef& op, Operands inputs, const Attrs& attrs) {
  WS_ASSERT(op.num_results == 1, "{} has {} results", op.name, op.num_results);
  if (auto free = run_free(op, inputs, attrs)) return free;
  std::shared_ptr<TensorImpl> result;
  execute(cache().find(op, inputs, attrs), inputs, {&result, 1});
  return result;
}

std::vector<std::shared_ptr<TensorImpl>> run_all(const OpDef& op, Operands inputs, const Attrs& attrs) {
  if (op.num_results == 1) return {run_single(op, inputs, attrs)};
  std::vector<std::shared_ptr<TensorImpl>> results(static_cast<size_t>(op.num_results));
  WS_ASSERT(results.size() <= kInlineOperands, "{} has too many results", op.name);
  execute(cache().find(op, inputs, attrs), inputs, results);
  return results;
}

std::shared_ptr<TensorImpl> filled(const Type& type, double value) {
  auto result = new_dense(type);
  auto* bytes = static_cast<char*>(result->storage->data);
  auto size = static_cast<int64_t>(size_of(type.dtype)), total = type.num_bytes();
  if (total == 0) return result;
  store_element(bytes, type.dtype, value);
  for (int64_t done = size; done < total; done *= 2)
    std::memcpy(bytes + done, bytes, static_cast<size_t>(std::min(done, total - done)));
  return result;
}

std::shared_ptr<TensorImpl> dense_copy(const TensorData& data) {
  if (data.dense) {
    auto copy = new_dense(data.type());
    if (data.num_bytes() > 0) std::memcpy(copy->storage->data, data.pointer(), static_cast<size_t>(data.num_bytes()));
    return copy;
  }
  // A reshape to the shape it has: the kernel reads by strides and writes densely.
  static const OpDef& reshape = *find_op("reshape");
  auto source = alias_of(data);
  Attrs attrs{{"shape", std::vector<int64_t>(data.shape.begin(), data.shape.end())}};
  TensorImpl* operands[] = {source.get()};
  std::shared_ptr<TensorImpl> result;
  execute(cache().find(reshape, operands, attrs), operands, {&result, 1});
  return result;
}

std::shared_ptr<TensorImpl> dense_copy_if_needed(const std::shared_ptr<TensorImpl>& impl) {
  return impl->dense ? impl : dense_copy(*impl);
}

EagerStats eager_stats() { return cache().stats; }

}  // namespace ws
