// Layers against numbers worked out by hand or by plain double loops.
#include <cmath>

#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Layers, LinearAndEmbedding) {
  Sequential m(Key(0), {layer<Linear>(2, 2)});
  m.find("0.weight").set(floats({1, 2, 3, 4}, {2, 2}));
  m.find("0.bias").set(floats({10, 20}));
  expect_near(m(floats({1, 1, 2, -1}, {2, 2})), {14, 26, 9, 20});
  Sequential e(Key(0), {layer<Embedding>(3, 2)});
  e.find("0.weight").set(floats({0, 1, 2, 3, 4, 5}, {3, 2}));
  expect_near(e(ints({2, 0}, {1, 2})), {4, 5, 0, 1});
  EXPECT_TRUE(mentions(error_of([&] { (void)e(ints({1, 3})).to_vector<float>(); }), {"3"}));
}

TEST(Layers, NormsMatchDouble) {
  const int64_t kRows = 3, kWidth = 37;
  Tensor x = random_floats({kRows, kWidth}, 2) * 3.0 + 100.0;  // a large mean: one-pass variance would lose its digits
  Sequential layer_norm(Key(0), {layer<LayerNorm>(kWidth)}), rms_norm(Key(0), {layer<RMSNorm>(kWidth)});
  for (Sequential* m : {&layer_norm, &rms_norm}) m->find("0.weight").set(random_floats({kWidth}, 3));
  layer_norm.find("0.bias").set(random_floats({kWidth}, 4));
  std::vector<float> xs = x.to_vector<float>(), w = layer_norm.find("0.weight").value().to_vector<float>(),
                     b = layer_norm.find("0.bias").value().to_vector<float>();
  std::vector<double> right_layer, right_rms;
  for (size_t r = 0; r < kRows; ++r) {
    double mean = 0, variance = 0, squares = 0;
    for (size_t i = 0; i < kWidth; ++i) mean += xs[r * kWidth + i] / static_cast<double>(kWidth);
    for (size_t i = 0; i < kWidth; ++i) {
      variance += std::pow(xs[r * kWidth + i] - mean, 2) / static_cast<double>(kWidth);
      squares += std::pow(xs[r * kWidth + i], 2) / static_cast<double>(kWidth);
    }
    for (size_t i = 0; i < kWidth; ++i) {
      right_layer.push_back((xs[r * kWidth + i] - mean) / std::sqrt(variance + 1e-5) * w[i] + b[i]);
      right_rms.push_back(xs[r * kWidth + i] / std::sqrt(squares + 1e-6) * w[i]);
    }
  }
  expect_near(layer_norm(x), right_layer, 2e-6, 2e-5);  // fp32 rounding of the mean near 100
  expect_near(rms_norm(x), right_rms, 2e-6);
}

TEST(Layers, BatchNormC20) {
  Tensor x = floats({1, 2, 3, 4}, {4, 1});
  Sequential m(Key(0), {layer<BatchNorm>(1)});
  expect_near(m(x), {-1.3416354, -0.4472118, 0.4472118, 1.3416354});
  expect_near(m.find("0.running_mean"), {0.25});
  expect_near(m.find("0.running_var"), {1.0666667});
  Sequential biased(Key(0), {layer<BatchNorm>(1, BatchNormOptions{.unbiased_running = false})});
  (void)biased(x);
  expect_near(biased.find("0.running_var"), {1.025});
  Sequential twice(Key(0), {layer<BatchNorm>(1)});
  (void)twice(floats({0, 2}, {2, 1}));
  (void)twice(floats({2, 4}, {2, 1}));
  expect_near(twice.find("0.running_mean"), {0.39});
  twice.eval();
  std::string before = bytes(twice.find("0.running_mean"));
  (void)twice(x);
  EXPECT_EQ(bytes(twice.find("0.running_mean")), before);
  EXPECT_TRUE(mentions(error_of([&] { (void)m(floats({1}, {1, 1})); }), {"batch norm", "[1, 1]", "drop_last"}));
}

TEST(Layers, RopeC25) {
  Tensor x = floats({1, 2, 3, 4, 1, 2, 3, 4}, {1, 2, 1, 4});
  std::vector<double> right = {1, 2, 3, 4, -1.1426397, 1.9220756, 2.9598507, 4.0297995};
  expect_near(Rope(8, 4)(x), right);
  right = {1, 2, 3, 4, -1.9841106, 1.9599007, 2.4623779, 4.0197997};
  expect_near(Rope(8, 4, RopePairs::half_split)(x), right);
  EXPECT_TRUE(mentions(error_of([&] { Rope(1, 4)(x); }), {"2 positions", "max_len 1"}));
  EXPECT_NE(error_of([&] { Rope(8, 3); }), "");
}

TEST(Layers, RopeDependsOnDistanceOnly) {
  const int64_t kLength = 12, kDim = 8;
  std::vector<float> q_row = random_floats({kDim}, 5).to_vector<float>(), k_row = random_floats({kDim}, 6).to_vector<float>(), q,
                     k;
  for (int64_t t = 0; t < kLength; ++t) {
    q.insert(q.end(), q_row.begin(), q_row.end());
    k.insert(k.end(), k_row.begin(), k_row.end());
  }
  for (RopePairs pairs : {RopePairs::interleaved, RopePairs::half_split}) {
    Rope rope(kLength, kDim, pairs);
    Shape shape{1, kLength, 1, kDim};
    std::vector<float> a = rope(floats(q, shape)).to_vector<float>(), b = rope(floats(k, shape)).to_vector<float>();
    auto product = [&](size_t m, size_t n) {
      double sum = 0;
      for (size_t i = 0; i < kDim; ++i) sum += static_cast<double>(a[m * kDim + i]) * b[n * kDim + i];
      return sum;
    };
    EXPECT_NEAR(product(7, 3), product(4, 0), 1e-5);
    EXPECT_NEAR(product(11, 2), product(9, 0), 1e-5);
    EXPECT_GT(std::fabs(product(7, 3) - product(7, 4)), 1e-3);
  }
}

// One block of attention by plain loops in double.
std::vector<double> attention_by_loops(const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& o,
                                       size_t batch, size_t length, size_t width, size_t heads, bool causal) {
  size_t dim = width / heads;
  std::vector<double> result(batch * length * width);
  for (size_t n = 0; n < batch; ++n) {
    std::vector<double> qkv(length * 3 * width), mixed(length * width);
    for (size_t t = 0; t < length; ++t)
      for (size_t j = 0; j < 3 * width; ++j)
        for (size_t i = 0; i < width; ++i)
          qkv[t * 3 * width + j] += static_cast<double>(x[(n * length + t) * width + i]) * w[i * 3 * width + j];
    for (size_t h = 0; h < heads; ++h)
      for (size_t t = 0; t < length; ++t) {
        std::vector<double> p(length);
        double total = 0;
        for (size_t s = 0; s < (causal ? t + 1 : length); ++s) {
          double score = 0;
          for (size_t d = 0; d < dim; ++d) score += qkv[t * 3 * width + h * dim + d] * qkv[s * 3 * width + width + h * dim + d];
          p[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += p[s];
        }
        for (size_t s = 0; s < length; ++s)
          for (size_t d = 0; d < dim; ++d)
            mixed[t * width + h * dim + d] += p[s] / total * qkv[s * 3 * width + 2 * width + h * dim + d];
      }
    for (size_t t = 0; t < length; ++t)
      for (size_t j = 0; j < width; ++j)
        for (size_t i = 0; i < width; ++i) result[(n * length + t) * width + j] += mixed[t * width + i] * o[i * width + j];
  }
  return result;
}

TEST(Layers, SelfAttentionMatchesLoops) {
  const int64_t kBatch = 2, kLength = 5, kWidth = 6, kHeads = 3;
  Tensor x = random_floats({kBatch, kLength, kWidth}, 7);
  for (bool causal : {false, true}) {
    Sequential m(Key(1), {layer<SelfAttention>(kWidth, kHeads, SelfAttentionOptions{.causal = causal})});
    EXPECT_EQ(m.parameters().size(), 2U);
    auto right = attention_by_loops(x.to_vector<float>(), m.find("0.qkv.weight").value().to_vector<float>(),
                                    m.find("0.out.weight").value().to_vector<float>(), kBatch, kLength, kWidth, kHeads, causal);
    expect_near(m(x), right, 1e-5, 1e-6);
  }
}

TEST(Layers, FeedForwardForms) {
  Tensor x = random_floats({3, 4}, 8);
  Sequential gated(Key(1),
                   {layer<FeedForward>(4, 11, FeedForwardOptions{.activation = Activation::silu, .gated = true, .bias = false})});
  EXPECT_EQ(gated.num_parameters(), 3 * 44);
  Tensor right =
      matmul(silu(matmul(x, gated.find("0.gate.weight"))) * matmul(x, gated.find("0.up.weight")), gated.find("0.down.weight"));
  EXPECT_EQ(bytes(gated(x)), bytes(right));
  EXPECT_EQ(swiglu_width(512), 1365);
  EXPECT_EQ(swiglu_width(64), 171);
}

TEST(Layers, GeluC26) {
  Tensor x = floats({-3, -2, 1, 3, -1e4F, 1e4F});
  expect_near(activate(Activation::gelu, x), {-0.0040497, -0.0455003, 0.8413447, 2.9959503, 0, 1e4}, 1e-6, 6e-8);
  expect_near(activate(Activation::gelu_tanh, x), {-0.0036374, -0.0454023, 0.8411920, 2.9963626, 0, 1e4}, 1e-6, 6e-8);
}

TEST(Layers, Positions) {
  Sequential m(Key(0), {layer<SinusoidalPositions>(16, 4)});
  Tensor y = m(Tensor::zeros({1, 3, 4}));
  std::vector<double> right;
  for (int t = 0; t < 3; ++t)
    for (double v : {std::sin(t), std::cos(t), std::sin(t * 0.01), std::cos(t * 0.01)}) right.push_back(v);
  expect_near(y, right);
  EXPECT_TRUE(m.parameters().empty());
  EXPECT_TRUE(mentions(error_of([&] { m(Tensor::zeros({1, 17, 4})); }), {"17", "max_len 16"}));
  Sequential learned(Key(0), {layer<LearnedPositions>(16, 4)});
  EXPECT_EQ(bytes(learned(Tensor::zeros({1, 16, 4}))), bytes(learned.find("0.weight")));
  Sequential mean(Key(0), {layer<MeanOverTime>()});
  expect_near(mean(floats({1, 2, 3, 6}, {1, 2, 2})), {2, 4});
}

}  // namespace
}  // namespace ws::testing
