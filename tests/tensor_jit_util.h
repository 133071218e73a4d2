// A small model and an optimizer by hand, for the tests of jit.
#pragma once
#include <cstring>
#include <vector>

#include "tensor_util.h"
#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {

inline std::vector<float> list(const Tensor& t) { return t.to_vector<float>(); }
using V = std::vector<float>;

inline bool same_bits(const Tensor& a, const Tensor& b) {
  V x = list(a), y = list(b);
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

struct Mlp : Stateful {
  Variable w1, b1, w2, b2;
  explicit Mlp(uint32_t seed, int64_t in = 8, int64_t hidden = 16, int64_t out = 1)
      : w1("w1", random_floats({in, hidden}, seed), true), b1("b1", Tensor::zeros({hidden}), true),
        w2("w2", random_floats({hidden, out}, seed + 1), true), b2("b2", Tensor::zeros({out}), true) {}
  Tensor operator()(const Tensor& x) const {
    PathScope scope("mlp");
    return matmul(relu(matmul(x, w1) + b1), w2) + b2;
  }
  std::vector<Variable> parameters() const { return {w1, b1, w2, b2}; }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : parameters()) into.push_back(v);
  }
};

// SGD with momentum, written by hand.
struct Momentum : Stateful {
  std::vector<Variable> velocity;
  Scalar rate{"rate", 0.05};
  explicit Momentum(const std::vector<Variable>& parameters) {
    for (const Variable& p : parameters) velocity.emplace_back("velocity/" + p.name(), Tensor::zeros(p.value().shape()));
  }
  void update(const Gradients& g) {
    NoGrad no_grad;
    for (size_t i = 0; i < g.parameters.size(); ++i) {
      Variable p = g.parameters[i];
      velocity[i].set(velocity[i].value() * 0.9 + g.values[i]);
      p.set(p.value() - Tensor(rate) * velocity[i].value());
    }
  }
  void collect_state(std::vector<Variable>& into) const override {
    for (const Variable& v : velocity) into.push_back(v);
    into.push_back(rate.variable());
  }
};

inline auto training_step(Mlp& model, Momentum& optimizer) {
  return [&](const Tensor& x, const Tensor& y) {
    Gradients g = grad(square(model(x) - y).mean(), model.parameters());
    optimizer.update(g);
    return g.loss;
  };
}

}  // namespace ws
