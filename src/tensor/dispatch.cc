#include "tensor/dispatch.h"

#include "support/error.h"
#include "tensor/context.h"
#include "tensor/eager.h"
#include "tensor/tape.h"
#include "tensor/tracer.h"

namespace ws {
namespace {

// Concrete or of the trace in progress; anything else is a mistake of the caller's.
void check_operands(const OpDef& op, Operands inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) fail("{}: input {} is an undefined Tensor", op.name, i);
    if (inputs[i]->traced()) Tracer::check_usable(*inputs[i], op.name);
  }
}

// Some checks name the layer themselves; a message says it once.
bool names_path(const Error& e) { return context().path.empty() || std::string_view(e.what()).starts_with(path_prefix()); }

template <class F>
auto with_path(F&& body) {
  try {
    return body();
  } catch (const RuntimeError& e) {
    if (names_path(e)) throw;
    throw RuntimeError(path_prefix() + e.what());
  } catch (const Error& e) {
    if (names_path(e)) throw;
    throw Error(path_prefix() + e.what());
  }
}

}  // namespace

std::string path_prefix() { return context().path.empty() ? "" : "in " + context().path + ": "; }

Tensor apply_single(const OpDef& op, Operands inputs, const Attrs& attrs) {
  return with_path([&] {
    check_operands(op, inputs);
    if (Tracer* tracer = context().tracer) return tracer->record(op, inputs, attrs)[0];
    auto result = run_single(op, inputs, attrs);
    if (belongs_on_tape(op, inputs)) record_on_tape(op, inputs, attrs, {&result, 1});
    return Tensor(std::move(result));
  });
}

std::vector<Tensor> apply_all(const OpDef& op, Operands inputs, const Attrs& attrs) {
  return with_path([&]() -> std::vector<Tensor> {
    check_operands(op, inputs);
    if (Tracer* tracer = context().tracer) return tracer->record(op, inputs, attrs);
    auto results = run_all(op, inputs, attrs);
    if (belongs_on_tape(op, inputs)) record_on_tape(op, inputs, attrs, results);
    return {std::make_move_iterator(results.begin()), std::make_move_iterator(results.end())};
  });
}

const OpDef& op_named(std::string_view name) {
  const OpDef* op = find_op(name);
  WS_ASSERT(op, "no op is named '{}'", name);
  return *op;
}

Tensor apply_op(std::string_view name, std::initializer_list<const Tensor*> inputs, const Attrs& attrs) {
  TensorImpl* operands[8];
  WS_ASSERT(inputs.size() <= 8, "{} has too many inputs", name);
  size_t n = 0;
  for (const Tensor* t : inputs) operands[n++] = t->impl().get();
  return apply_single(op_named(name), {operands, n}, attrs);
}

}  // namespace ws
