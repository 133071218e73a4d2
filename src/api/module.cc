#include "wholestep/module.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "api/rounding.h"
#include "support/error.h"
#include "support/spelling.h"
#include "tensor/mode.h"

namespace ws {
namespace {

void check_name(const std::string& name, const std::string& owner) {
  bool fine = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (!fine) fail("name '{}' in {}: use letters, digits and underscores only", name, owner);
}

std::string join_path(const std::string& path, const std::string& name) { return path.empty() ? name : path + "." + name; }

void append_once(std::vector<Variable>& into, const Variable& v) {
  if (std::find(into.begin(), into.end(), v) == into.end()) into.push_back(v);
}

}  // namespace

Module::Module(Key key) : key_(key) {}

Module::Module(Module& parent, const std::string& name)
    : path_(join_path(parent.path_, parent.claim_name(name))),
      scope_name_(parent.is_container_ ? join_path(parent.scope_name_, name) : name), key_(parent.key_.fold(name)) {
  parent.children_.push_back(this);
}

std::string Module::claim_name(const std::string& name) {
  check_name(name, display_name());
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    fail("{} already has a member named '{}': give each layer and parameter a name of its own", display_name(), name);
  names_.push_back(name);
  return name;
}

Tensor Module::forward(const Tensor&) const {
  fail("{} does not define forward(x): override it, or define operator() in the class itself", display_name());
}

Tensor Module::unrounded(const Tensor& x) const {
  PathScope scope(scope_name_);
  return forward_unrounded(x);
}

Tensor Module::operator()(const Tensor& x) const {
  if (scope_name_.empty()) return forward(x);
  PathScope scope(scope_name_);
  return forward(x);
}

void Module::visit(const std::function<void(const Module&)>& f) const {
  f(*this);
  for (const Module* child : children_) child->visit(f);
}

std::vector<std::pair<std::string, Variable>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Variable>> all;
  visit([&](const Module& m) {
    for (const auto& [name, variable] : m.parameters_) {
      bool known = std::any_of(all.begin(), all.end(), [&v = variable](const auto& entry) { return entry.second == v; });
      if (!known) all.emplace_back(join_path(m.path_, name), variable);
    }
  });
  return all;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> all;
  for (auto& [name, variable] : named_parameters()) all.push_back(variable);
  return all;
}

std::vector<Variable> Module::buffers() const {
  std::vector<Variable> all;
  visit([&](const Module& m) {
    for (const Variable& b : m.buffers_) append_once(all, b);
  });
  return all;
}

Variable Module::find(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [candidate, variable] : named_parameters()) {
    if (candidate == name) return variable;
    names.push_back(candidate);
  }
  for (const Variable& b : buffers()) {
    if (b.name() == name) return b;
    names.push_back(b.name());
  }
  const std::string first =
      names.empty() ? "; there is none" : "; there are " + std::to_string(names.size()) + ", the first is " + names[0];
  const std::string hint = spelling_hint(name, names);
  fail("no parameter or buffer is named '{}'{}", name, hint.empty() ? first : hint);
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Variable& p : parameters()) n += p.value().size();
  return n;
}

void Module::collect_state(std::vector<Variable>& into) const {
  for (const Variable& p : parameters()) append_once(into, p);
  for (const Variable& b : buffers()) append_once(into, b);
}

bool Module::training() const { return read_mode(training_); }

void Module::train(bool on) {
  set_mode(*training_, on);
  for (Module* child : children_) child->train(on);
}

void Module::set_trainable(bool trainable) {
  for (Variable& p : parameters()) p.set_trainable(trainable);
}

void Module::tie_parameter(const std::string& name, const Variable& parameter) {
  parameters_.emplace_back(claim_name(name), parameter);
}

Parameter::Parameter(Module& owner, const std::string& name, const Shape& shape, const Initializer& initializer) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  initializer(values, shape, owner.key_.fold(name));
  owner.claim_name(name);
  static_cast<Variable&>(*this) =
      Variable(join_path(owner.path_, name), Tensor::from(std::span<const float>(values), shape), true);
  owner.parameters_.emplace_back(name, *this);
}

Buffer::Buffer(Module& owner, const std::string& name, const Tensor& value)
    : Variable(join_path(owner.path_, owner.claim_name(name)), value, false) {
  owner.buffers_.push_back(*this);
}

Module& ModuleList::add(const LayerFactory& factory) {
  items_.push_back(factory(*this, std::to_string(items_.size())));
  return *items_.back();
}

Sequential::Sequential(Key key, const std::vector<LayerFactory>& layers) : Module(key) { build(layers); }

Sequential::Sequential(Module& parent, const std::string& name, const std::vector<LayerFactory>& layers) : Module(parent, name) {
  build(layers);
}

void Sequential::build(const std::vector<LayerFactory>& layers) {
  for (const LayerFactory& make : layers) items_.push_back(make(*this, std::to_string(items_.size())));
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  for (const auto& item : items_) y = (*item)(y);
  return y;
}

Tensor Sequential::forward_unrounded(const Tensor& x) const {
  Tensor y = x;
  for (const auto& item : items_) y = item == items_.back() ? item->unrounded(y) : (*item)(y);
  return y;
}

Residual::Residual(Module& parent, const std::string& name, const LayerFactory& inner)
    : Module(parent, name), inner_(inner(*this, "inner")) {}

Tensor Residual::forward(const Tensor& x) const {
  Tensor y = inner_->unrounded(x);
  if (!(y.shape() == x.shape()))
    fail("residual {}: the inner layer turns {} into {}; both must have one shape to be added", display_name(), x.shape().str(),
         y.shape().str());
  return rounded_like(x, in_f32(x) + in_f32(y));
}

}  // namespace ws
