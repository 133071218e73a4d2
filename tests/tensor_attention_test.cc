// attention() of tensors, loop and compiled: the bits of the ops that it stands for, in f32 and bf16, and their gradients.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "wholestep/jit.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

Tensor random_floats(const Shape& shape, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) * 4 - 2;
  }
  return Tensor::from(std::span<const float>(values), shape);
}

struct Options {
  bool causal;
  DType dtype;
};

/// [T, S]: 0 where a query sees a key, else -infinity.
Tensor mask_of(int64_t queries, int64_t keys, bool causal) {
  std::vector<float> mask;
  for (int64_t t = 0; t < queries; ++t)
    for (int64_t s = 0; s < keys; ++s)
      mask.push_back(causal && s > t + keys - queries ? -std::numeric_limits<float>::infinity() : 0.0f);
  return Tensor::from(std::span<const float>(mask), {queries, keys});
}

// As the comment of ops/attention.cc has it.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Options& o) {
  const auto heads_first = [](const Tensor& x) { return x.cast(DType::f32).transpose({0, 2, 1, 3}).contiguous(); };
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  const Tensor scores = matmul(heads_first(q), heads_first(k), false, true) * scale + mask_of(q.dim(1), k.dim(1), o.causal);
  const Tensor weights = softmax(scores).cast(o.dtype).cast(DType::f32);
  return matmul(weights, heads_first(v)).cast(o.dtype).transpose({0, 2, 1, 3});
}

class Attends : public testing::TestWithParam<Options> {
 protected:
  const int64_t queries_ = 33, keys_ = 37;
  Tensor q_ = random_floats({2, queries_, 3, 20}, 1), k_ = random_floats({2, keys_, 3, 20}, 2),
         v_ = random_floats({2, keys_, 3, 20}, 3);
  Tensor in_dtype(const Tensor& x) const { return x.cast(GetParam().dtype); }
  Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return attention(in_dtype(q), in_dtype(k), in_dtype(v), GetParam().causal);
  }
};

TEST_P(Attends, WithTheBitsOfTheSeparateOps) {
  const Tensor want = composed(in_dtype(q_), in_dtype(k_), in_dtype(v_), GetParam());
  const Tensor got = fused(q_, k_, v_);
  EXPECT_EQ(got.dtype(), GetParam().dtype);
  EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
  auto compiled = jit([&](const Tensor& q, const Tensor& k, const Tensor& v) { return fused(q, k, v); });
  EXPECT_EQ(compiled(q_, k_, v_).to_vector<float>(), want.to_vector<float>());
}

TEST_P(Attends, WithGradientsInLoopAndCompiled) {
  const Tensor weight = random_floats({2, queries_, 3, 20}, 4);
  const auto gradients = [&](const auto& attend, const Tensor& q, const Tensor& k, const Tensor& v) {
    Variable a("q", q, true), b("k", k, true), c("v", v, true);
    return grad((attend(a.value(), b.value(), c.value()).cast(DType::f32) * weight).sum(), {a, b, c}).values;
  };
  const auto fused_gradients = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return gradients([&](const auto& x, const auto& y, const auto& z) { return fused(x, y, z); }, q, k, v);
  };
  const auto want = gradients(
      [&](const auto& x, const auto& y, const auto& z) { return composed(in_dtype(x), in_dtype(y), in_dtype(z), GetParam()); },
      q_, k_, v_);
  const auto got = fused_gradients(q_, k_, v_);
  Variable a("q", q_, true), b("k", k_, true), c("v", v_, true);
  auto compiled = jit(
      [&](const Tensor& upstream) {
        return grad((fused(a.value(), b.value(), c.value()).cast(DType::f32) * upstream).sum(), {a, b, c}).values;
      },
      std::vector<Variable>{a, b, c});
  const auto again = compiled(weight);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].dtype(), DType::f32);
    EXPECT_EQ(got[i].to_vector<float>(), again[i].to_vector<float>());
    const auto x = got[i].to_vector<float>(), y = want[i].to_vector<float>();
    // The softmax written out has another, equal, formula for its gradient; bf16 gradients of scores may then round apart.
    const float tolerance = GetParam().dtype == DType::bf16 ? 2e-2f : 1e-5f;
    for (size_t e = 0; e < x.size(); ++e) ASSERT_NEAR(x[e], y[e], tolerance) << "input " << i << " at " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, Attends,
                         testing::Values(Options{false, DType::f32}, Options{true, DType::f32}, Options{false, DType::bf16},
                                         Options{true, DType::bf16}),
                         [](const auto& info) {
                           return std::string(info.param.causal ? "causal_" : "full_") + std::string(name_of(info.param.dtype));
                         });

}  // namespace
}  // namespace ws
