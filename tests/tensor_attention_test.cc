// attention() of tensors, loop and compiled: the bits of the ops that it stands for, in f32 and bf16, and their gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "wholestep/attention.h"
#include "wholestep/error.h"
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

// As the comment of ops/attention.cc has it; the products read operands of `operands`, which changes no bits.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Options& o, DType operands = DType::f32) {
  const auto heads_first = [&](const Tensor& x) { return x.cast(operands).transpose({0, 2, 1, 3}).contiguous(); };
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  const Tensor scores = matmul(heads_first(q), heads_first(k), false, true) * scale + mask_of(q.dim(1), k.dim(1), o.causal);
  const Tensor weights = softmax(scores).cast(o.dtype).cast(operands);
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
  EXPECT_EQ(composed(in_dtype(q_), in_dtype(k_), in_dtype(v_), GetParam(), GetParam().dtype).to_vector<float>(),
            want.to_vector<float>());
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

// ---- masks and dropout -----------------------------------------------------------------------------------------------------

Tensor bools(const std::vector<float>& values, const Shape& shape) {
  return lt(Tensor::full(shape, 0.5), Tensor::from(std::span<const float>(values), shape));
}

class Masked : public testing::TestWithParam<DType> {
 protected:
  const int64_t queries_ = 33, keys_ = 37;
  Tensor q_ = random_floats({2, queries_, 3, 20}, 1), k_ = random_floats({2, keys_, 3, 20}, 2),
         v_ = random_floats({2, keys_, 3, 20}, 3);
  Variable key_{"key", key_tensor(77), false};
  Tensor in_dtype(const Tensor& x) const { return x.cast(GetParam()); }
  Tensor padding() const {  // the last keys of the second item are not there
    std::vector<float> there(static_cast<size_t>(2 * keys_), 1);
    std::fill(there.end() - 9, there.end(), 0.0f);
    return bools(there, {2, 1, 1, keys_});
  }
  Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return attention(in_dtype(q), in_dtype(k), in_dtype(v), {.causal = true, .mask = padding(), .dropout = 0.25, .key = key_});
  }
  // As the comment of ops/attention.cc has it.
  Tensor written_out(const Tensor& q, const Tensor& k, const Tensor& v) {
    const auto heads_first = [&](const Tensor& x) { return in_dtype(x).cast(DType::f32).transpose({0, 2, 1, 3}).contiguous(); };
    const Tensor products = matmul(heads_first(q), heads_first(k), false, true) * (1 / std::sqrt(20.0));
    const Tensor nothing = Tensor::full({}, -std::numeric_limits<double>::infinity());
    const Tensor scores = where(padding(), products, nothing) + mask_of(queries_, keys_, true);
    const Tensor kept = lt(draw_bits(key_, scores.shape()), Tensor::full({}, 0.75 * 0x1p32, DType::u32));
    const Tensor weights = where(kept, softmax(scores) * (1 / 0.75), Tensor::full({}, 0)).cast(GetParam()).cast(DType::f32);
    return matmul(weights, heads_first(v)).cast(GetParam()).transpose({0, 2, 1, 3});
  }
};

TEST_P(Masked, HasTheBitsOfTheSeparateOps) {
  const Tensor want = written_out(q_, k_, v_), next_want = written_out(q_, k_, v_);
  key_.set(key_tensor(77));
  const Tensor got = fused(q_, k_, v_), next = fused(q_, k_, v_);
  EXPECT_EQ(got.to_vector<float>(), want.to_vector<float>());
  EXPECT_EQ(next.to_vector<float>(), next_want.to_vector<float>()) << "each call draws anew";
  EXPECT_NE(next.to_vector<float>(), got.to_vector<float>());
  key_.set(key_tensor(77));
  auto compiled = jit([&](const Tensor& q, const Tensor& k, const Tensor& v) { return fused(q, k, v); }, key_);
  EXPECT_EQ(compiled(q_, k_, v_).to_vector<float>(), want.to_vector<float>());
  EXPECT_EQ(compiled(q_, k_, v_).to_vector<float>(), next_want.to_vector<float>());
}

TEST_P(Masked, HasGradientsInLoopAndCompiled) {
  const Tensor weight = random_floats({2, queries_, 3, 20}, 4);
  Variable a("q", q_, true), b("k", k_, true), c("v", v_, true);
  const auto gradients = [&](const auto& attend, const Tensor& upstream) {
    return grad((attend(a.value(), b.value(), c.value()).cast(DType::f32) * upstream).sum(), {a, b, c}).values;
  };
  const auto fused_gradients = [&](const Tensor& upstream) {
    return gradients([&](const auto& x, const auto& y, const auto& z) { return fused(x, y, z); }, upstream);
  };
  const auto want = gradients([&](const auto& x, const auto& y, const auto& z) { return written_out(x, y, z); }, weight);
  key_.set(key_tensor(77));
  const auto got = fused_gradients(weight);
  key_.set(key_tensor(77));
  auto compiled = jit([&](const Tensor& upstream) { return fused_gradients(upstream); }, std::vector<Variable>{a, b, c, key_});
  const auto again = compiled(weight);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].to_vector<float>(), again[i].to_vector<float>());
    const auto x = got[i].to_vector<float>(), y = want[i].to_vector<float>();
    const float tolerance = GetParam() == DType::bf16 ? 3e-2f : 1e-5f;
    for (size_t e = 0; e < x.size(); ++e) ASSERT_NEAR(x[e], y[e], tolerance) << "input " << i << " at " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, Masked, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// q = k = 0, v = [1, 3]; query 1 sees both keys, query 2 none, whether the loss holds it or not.
TEST(MaskedRows, WithEveryKeyMaskedGiveZeroAndNoGradient) {  // case C23
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const float in_loss : {1.0f, 0.0f}) {
      const Tensor mask = bools({1, 1, 0, 0}, {2, 2});
      const std::vector<float> values = {1, 3}, upstream = {1, in_loss};
      Variable q("q", Tensor::zeros({1, 2, 1, 1}), true), k("k", Tensor::zeros({1, 2, 1, 1}), true),
          v("v", Tensor::from(std::span<const float>(values), {1, 2, 1, 1}), true);
      const Tensor out = attention(q.value().cast(dtype), k.value().cast(dtype), v.value().cast(dtype), {.mask = mask});
      EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{2, 0}));
      const auto g = grad((out.cast(DType::f32) * Tensor::from(std::span<const float>(upstream), {1, 2, 1, 1})).sum(), {q, k, v});
      EXPECT_EQ(g.values[0].to_vector<float>(), (std::vector<float>{0, 0}));
      EXPECT_EQ(g.values[1].to_vector<float>(), (std::vector<float>{0, 0}));
      EXPECT_EQ(g.values[2].to_vector<float>(), (std::vector<float>{0.5, 0.5}));
    }
  }
}

// The example of docs/attention.md: two sequences of 5 and 3 tokens in one batch.
TEST(MaskedRows, PaddingIsNeverSeen) {
  const Tensor q = random_floats({2, 5, 2, 4}, 1), k = random_floats({2, 5, 2, 4}, 2);
  const auto attend = [&](const Tensor& v) {
    Variable key("key", key_tensor(42), false);
    const std::vector<float> lengths = {5, 3};
    Tensor positions = Tensor::arange(5).cast(DType::f32).reshape({1, 1, 1, 5});
    Tensor there = lt(positions, Tensor::from(std::span<const float>(lengths), {2, 1, 1, 1}));  // [B, 1, 1, S]
    Tensor out = attention(q, k, v, {.causal = true, .mask = there, .dropout = 0.1, .key = key});
    return out;
  };
  const Tensor v = random_floats({2, 5, 2, 4}, 3);
  const Tensor other = concatenate({v.slice(1, 0, 3), v.slice(1, 3, 5) + 1.0}, 1);  // the padding, and the end of the first
  const auto second = [](const Tensor& x) { return x.slice(0, 1, 2).to_vector<float>(); };
  EXPECT_EQ(second(attend(v)), second(attend(other)));
}

TEST(AttentionDropout, OfEverythingIsZero) {
  const Tensor x = random_floats({1, 5, 2, 4}, 1);
  const Variable key("key", key_tensor(1), false);
  for (float value : attention(x, x, x, {.dropout = 1, .key = key}).to_vector<float>()) EXPECT_EQ(value, 0);
}

TEST(AttentionDropout, MistakesAreNamed) {
  const Tensor x = random_floats({1, 5, 2, 4}, 1);
  const auto message = [&](const AttentionOptions& o) -> std::string {
    try {
      attention(x, x, x, o);
    } catch (const Error& e) {
      return e.what();
    }
    return "(nothing was thrown)";
  };
  EXPECT_NE(message({.dropout = 0.5}).find("dropout needs a key"), std::string::npos);
  EXPECT_NE(message({.dropout = 1.5}).find("must lie in [0, 1]"), std::string::npos);
  EXPECT_NE(message({.mask = x}).find("the mask must be boolean"), std::string::npos);
}

}  // namespace
}  // namespace ws
