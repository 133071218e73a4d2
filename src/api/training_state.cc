#include "api/training_state.h"

#include <set>

#include "support/error.h"

namespace ws {

NamedVariables model_state(const Module& model) {
  NamedVariables named = model.named_parameters();
  for (const Variable& buffer : model.buffers()) named.emplace_back(buffer.name(), buffer);
  return named;
}

NamedVariables optimizer_state(const Optimizer& optimizer) {
  std::vector<Variable> list;
  optimizer.collect_state(list);
  NamedVariables named;
  std::set<std::string> seen;
  for (const Variable& v : list) {
    if (!seen.insert(v.name()).second) fail("two parts of the optimizer's state are named \"{}\"", v.name());
    named.emplace_back(v.name(), v);
  }
  return named;
}

}  // namespace ws
