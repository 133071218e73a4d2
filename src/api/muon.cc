// Muon: matrices move by the orthogonal factor of their momentum, everything else by AdamW.
#include <algorithm>
#include <cmath>

#include "support/error.h"
#include "wholestep/optimizers.h"

namespace ws {
namespace {

constexpr size_t kMomentum = 2;  // position among the moments, behind Adam's m and v
constexpr int kRounds = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

/// Whether a part of the dotted name is `word`, or contains it.
bool has_part(const std::string& name, std::string_view word, bool whole) {
  for (size_t start = 0; start <= name.size();) {
    size_t stop = std::min(name.find('.', start), name.size());
    std::string_view part(name.data() + start, stop - start);
    if (whole ? part == word : part.find(word) != std::string_view::npos) return true;
    start = stop + 1;
  }
  return false;
}

AdamOptions rest_of(const MuonOptions& o) {
  if (!(o.lr > 0)) fail("Muon: the learning rate {} must be above 0; the rest's rate is kept in proportion to it", o.lr);
  if (!(o.rest.lr >= 0)) fail("Muon: the rest's learning rate {} must be at least 0", o.rest.lr);
  return {.lr = o.lr, .beta1 = o.rest.beta1, .beta2 = o.rest.beta2, .eps = o.rest.eps};
}

}  // namespace

Tensor orthogonalize(const Tensor& g) {
  if (g.rank() != 2) fail("orthogonalize: {} must be a matrix", g.shape().str());
  Tensor norm = sqrt(square(g.cast(DType::f64)).sum()).cast(DType::f32);
  Tensor x = g / (norm + 1e-7);
  bool tall = g.dim(0) > g.dim(1);  // the products below are of the shorter side
  if (tall) x = x.t();
  for (int round = 0; round < kRounds; ++round) {
    Tensor a = matmul(x, x, false, true);
    Tensor b = a * kB;
    Tensor polynomial = b + matmul(a, a) * kC;
    Tensor kept = x * kA;
    x = kept + matmul(polynomial, x);
  }
  return tall ? x.t() : x;
}

Muon::Muon(const MuonOptions& options) : Adam("muon", rest_of(options), {{"momentum"}}), options_(options) {
  if (!(options.momentum >= 0 && options.momentum < 1)) fail("Muon's momentum is {}, but must lie in [0, 1)", options.momentum);
  for (double decay : {options.weight_decay, options.rest.weight_decay})
    if (!(decay >= 0)) fail("Muon's weight decay is {}, but must be at least 0", decay);
}

std::vector<Variable> Muon::rowwise_state() const {
  fail("Muon orthogonalizes whole matrices, so its state cannot be sharded: use AdamW, or leave shard_optimizer out");
}

bool Muon::in_body(const Variable& parameter) const {
  if (parameter.value().rank() != 2) return false;
  if (options_.is_body) return options_.is_body(parameter);
  const std::string& name = parameter.name();
  return !has_part(name, "embedding", false) && !has_part(name, "head", true) && !has_part(name, "output", true);
}

bool Muon::keeps(const Variable& parameter, size_t moment) const { return in_body(parameter) == (moment == kMomentum); }

Tensor Muon::step(const Variable& parameter, const Tensor& gradient, const Tensor& lr, std::span<Variable> moments) {
  const Tensor& w = parameter;
  bool decay = decays(parameter);
  if (!in_body(parameter)) {
    Tensor move = direction(gradient, moments);
    const AdamWOptions& rest = options_.rest;
    if (rest.weight_decay != 0 && decay && (!rest.decays || rest.decays(parameter))) move = move + w * rest.weight_decay;
    return w - move * (lr * (rest.lr / options_.lr));
  }
  Variable& momentum = moments[kMomentum];
  Tensor moved = momentum.value() * options_.momentum + gradient;
  momentum.set(moved);
  if (options_.nesterov) moved = moved * options_.momentum + gradient;
  Tensor move = orthogonalize(moved);
  double inputs = static_cast<double>(w.dim(0)), outputs = static_cast<double>(w.dim(1));
  if (outputs > inputs) move = move * std::sqrt(outputs / inputs);
  if (options_.weight_decay != 0 && decay) move = move + w * options_.weight_decay;
  return w - move * lr;
}

}  // namespace ws
