// Module: a named tree of layers that owns parameters and buffers. Members register themselves with the module they are
// built in, since C++ cannot list the members of a class:
//
//   struct Net : ws::Module {
//     ws::Linear fc{*this, "fc", 8, 16};
//     explicit Net(ws::Key key) : Module(key) {}
//     ws::Tensor forward(const ws::Tensor& x) const override { return ws::relu(fc(x)); }
//   };
//
// Names are stable and dotted ("blocks.0.attention.qkv.weight"). The initial value of a parameter depends on the key of
// the root and on its dotted name only, so members may be reordered or added without changing the others.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "wholestep/initializers.h"
#include "wholestep/jit.h"
#include "wholestep/random.h"
#include "wholestep/tensor.h"

namespace ws {

class Module : public Stateful {
 public:
  /// The root of a tree.
  explicit Module(Key key);
  /// A part of `parent`. The name has letters, digits and underscores, and is unique there (else an Error).
  Module(Module& parent, const std::string& name);
  ~Module() override = default;
  // The tree points at its modules, so they stay where they were built. A function may still return one by value, built in
  // its return statement.
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// What the module computes. Layers of one input and one output override this; a class may define other calls instead.
  virtual Tensor forward(const Tensor& x) const;
  /// What unrounded() gives; forward(x) unless overridden.
  virtual Tensor forward_unrounded(const Tensor& x) const { return forward(x); }
  /// forward, with the module named in errors, profiles and dumps.
  Tensor operator()(const Tensor& x) const;
  /// The same before the rounding of its result to the compute dtype, for a caller that goes on in f32 and rounds once: a sum into a
  /// residual stream, the logits of a loss. Where a layer has nothing better to give: operator()'s result.
  Tensor unrounded(const Tensor& x) const;

  /// Every parameter of the tree, each once, frozen ones too: own ones first, then the children in the order they were built.
  std::vector<Variable> parameters() const;
  std::vector<std::pair<std::string, Variable>> named_parameters() const;
  /// What a step may change without a gradient (running statistics).
  std::vector<Variable> buffers() const;
  /// The parameter or buffer of that dotted name; an Error that names a close one.
  Variable find(const std::string& name) const;
  /// Number of trained values; a tied parameter counts once.
  int64_t num_parameters() const;
  /// Parameters, then buffers.
  void collect_state(std::vector<Variable>& into) const override;

  /// Training or evaluation mode of the whole tree (Dropout, BatchNorm). Starts in training mode. A function of jit() has a program for
  /// each mode that it asked for.
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const;
  /// Freezes (or thaws) every parameter of the tree: a frozen one gets no gradient and no update.
  void set_trainable(bool trainable);

  /// "" for the root, else the dotted path.
  const std::string& path() const { return path_; }
  /// For messages: the path, or "the model" for the root.
  std::string display_name() const { return path_.empty() ? "the model" : "'" + path_ + "'"; }
  Key key() const { return key_; }

 protected:
  /// Uses an existing parameter under another name: a tied weight, updated and counted once.
  void tie_parameter(const std::string& name, const Variable& parameter);
  /// A list of modules: not called itself, so that its own name has to be part of its children's.
  void mark_as_container() { is_container_ = true; }

 private:
  friend class Parameter;
  friend class Buffer;
  std::string claim_name(const std::string& name);
  void visit(const std::function<void(const Module&)>& f) const;

  std::string path_, scope_name_;
  Key key_;
  std::shared_ptr<bool> training_ = std::make_shared<bool>(true);
  bool is_container_ = false;
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<Variable> buffers_;
  std::vector<Module*> children_;
};

/// A trained tensor of a module; reads as a Tensor.
class Parameter : public Variable {
 public:
  Parameter() = default;  // absent (a layer without bias)
  Parameter(Module& owner, const std::string& name, const Shape& shape, const Initializer& initializer);
};

/// A tensor of a module that no gradient reaches, but a step may set and checkpoints keep.
class Buffer : public Variable {
 public:
  Buffer() = default;
  Buffer(Module& owner, const std::string& name, const Tensor& value);
};

/// Builds a module inside `parent` under `name`: how a list of layers, or a replaced part of a model, is described.
using LayerFactory = std::function<std::unique_ptr<Module>(Module& parent, const std::string& name)>;

/// layer<Linear>(8, 16): the arguments that follow parent and name.
template <class L, class... A>
LayerFactory layer(A... arguments) {
  return [=](Module& parent, const std::string& name) -> std::unique_ptr<Module> {
    return std::make_unique<L>(parent, name, arguments...);
  };
}

/// Owns modules named "0", "1", ...; not callable itself.
class ModuleList : public Module {
 public:
  ModuleList(Module& parent, const std::string& name) : Module(parent, name) { mark_as_container(); }
  template <class L, class... A>
  L& add(A&&... arguments) {
    auto made = std::make_unique<L>(*this, std::to_string(items_.size()), std::forward<A>(arguments)...);
    L& result = *made;
    items_.push_back(std::move(made));
    return result;
  }
  Module& add(const LayerFactory& factory);
  size_t size() const { return items_.size(); }
  Module& operator[](size_t i) const { return *items_[i]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<std::unique_ptr<Module>> items_;  // polymorphic
};

/// Layers one after the other: Sequential net(Key(0), {layer<Linear>(8, 16), layer<ReLU>(), layer<Linear>(16, 1)});
class Sequential : public Module {
 public:
  Sequential(Key key, const std::vector<LayerFactory>& layers);
  Sequential(Module& parent, const std::string& name, const std::vector<LayerFactory>& layers);
  Tensor forward(const Tensor& x) const override;
  Tensor forward_unrounded(const Tensor& x) const override;
  size_t size() const { return items_.size(); }
  Module& operator[](size_t i) const { return *items_[i]; }

 private:
  void build(const std::vector<LayerFactory>& layers);
  std::vector<std::unique_ptr<Module>> items_;  // polymorphic
};

/// x + inner(x).
class Residual : public Module {
 public:
  Residual(Module& parent, const std::string& name, const LayerFactory& inner);
  Tensor forward(const Tensor& x) const override;

 private:
  std::unique_ptr<Module> inner_;
};

}  // namespace ws
