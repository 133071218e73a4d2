// Convolution and pooling against plain loops, norms of groups, small activations; gradients by finite differences.
#include <cmath>
#include <functional>

#include "api_util.h"
#include "support/flags.h"

namespace ws::testing {
namespace {

struct Host {  // [N, H, W, C], row-major
  std::vector<float> v;
  int64_t n, h, w, c;
  double at(int64_t i, int64_t y, int64_t x, int64_t k) const {
    if (y < 0 || y >= h || x < 0 || x >= w) return 0;
    return v[static_cast<size_t>(((i * h + y) * w + x) * c + k)];
  }
};

TEST(Convolution, TwoDimsAgainstLoops) {
  for (int64_t kernel : {1, 2, 3})
    for (int64_t stride : {1, 2})
      for (int64_t padding : {0, 1}) {
        Tensor X = random_floats({2, 5, 6, 3}, 1);
        Sequential model(Key(0), {layer<Conv2D>(3, 4, kernel, ConvOptions{.stride = stride, .padding = padding})});
        Variable bias = model.find("0.bias");
        bias.set(floats({1, 2, 3, 4}));
        std::vector<float> w = model.find("0.weight").value().to_vector<float>();
        Host x{X.to_vector<float>(), 2, 5, 6, 3};
        int64_t oh = (5 + 2 * padding - kernel) / stride + 1, ow = (6 + 2 * padding - kernel) / stride + 1;
        std::vector<double> right;
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t y = 0; y < oh; ++y)
            for (int64_t z = 0; z < ow; ++z)
              for (int64_t o = 0; o < 4; ++o) {
                double sum = static_cast<double>(o + 1);
                for (int64_t a = 0; a < kernel; ++a)
                  for (int64_t b = 0; b < kernel; ++b)
                    for (int64_t k = 0; k < 3; ++k)
                      sum += x.at(i, y * stride + a - padding, z * stride + b - padding, k) *
                             static_cast<double>(w[static_cast<size_t>(((a * kernel + b) * 3 + k) * 4 + o)]);
                right.push_back(sum);
              }
        Tensor got = model(X);
        EXPECT_EQ(got.shape(), (Shape{2, oh, ow, 4}));
        expect_near(got, right, 1e-5, 2e-5);
      }
}

TEST(Convolution, OneDimByNumbers) {
  Sequential model(Key(0), {layer<Conv1D>(1, 1, 3, ConvOptions{.stride = 2, .padding = 1, .bias = false})});
  EXPECT_EQ(model.parameters().size(), 1U);
  model.parameters()[0].set(floats({1, 10, 100}, {3, 1, 1}));
  expect_near(model(floats({1, 2, 3, 4, 5}, {1, 5, 1})), {210, 432, 54});
  EXPECT_TRUE(mentions(error_of([&] { model(Tensor::zeros({1, 0, 1})); }), {"convolution '0'", "window of 3"}));
  EXPECT_TRUE(mentions(error_of([&] { model(Tensor::zeros({1, 5, 2})); }), {"2 features", "built for 1"}));
  EXPECT_TRUE(mentions(error_of([&] { model(Tensor::zeros({5, 1})); }), {"3 dims"}));
  EXPECT_NE(error_of([] { Sequential(Key(0), {layer<Conv1D>(1, 1, 0)}); }), "");
  EXPECT_NE(error_of([] { Sequential(Key(0), {layer<Conv1D>(1, 1, 1, ConvOptions{.padding = -1})}); }), "");
}

TEST(Pooling, ByNumbers) {
  Tensor x = floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {1, 3, 4, 1});
  Sequential max(Key(0), {layer<MaxPool>(2)}), average(Key(0), {layer<AveragePool>(2, 1)});
  expect_near(max(x), {6, 8});  // the third row is left over
  expect_near(average(x), {3.5, 4.5, 5.5, 7.5, 8.5, 9.5});
  Sequential line(Key(0), {layer<MaxPool>(3, 2)});
  expect_near(line(floats({5, 1, 2, 7, 0, -1}, {1, 6, 1})), {5, 7});
  Variable v("v", floats({1, 3, 3, 2}, {1, 4, 1}), true);
  Sequential whole(Key(0), {layer<MaxPool>(4)});
  EXPECT_EQ(grad(whole(v).sum(), {v}).values[0].to_vector<float>(), (std::vector<float>{0, 0.5, 0.5, 0}));
  EXPECT_TRUE(mentions(error_of([&] { whole(Tensor::zeros({1, 3, 1})); }), {"window of 4", "[1, 3, 1]"}));
  EXPECT_NE(error_of([&] { max(Tensor::zeros({4, 4})); }), "");
}

TEST(Pooling, Padded) {
  Tensor x = floats({-1, -2, -3, -4}, {1, 4, 1});
  expect_near(Sequential(Key(0), {layer<MaxPool>(2, 2, 1)})(x), {-1, -2, -4});  // no zero of the padding wins
  expect_near(Sequential(Key(0), {layer<AveragePool>(2, 2, 1)})(x), {-0.5, -2.5, -2});
  EXPECT_TRUE(
      mentions(error_of([] { Sequential(Key(0), {layer<MaxPool>(2, 2, 2)}); }), {"padding is 2", "half its kernel of 2"}));
}

TEST(Convolution, DilationAndGroupsByNumbers) {
  Sequential dilated(Key(0), {layer<Conv1D>(1, 1, 2, ConvOptions{.dilation = 3})});
  dilated.find("0.weight").set(floats({1, 10}, {2, 1, 1}));
  expect_near(dilated(floats({1, 2, 3, 4, 5}, {1, 5, 1})), {41, 52});
  // Two groups are two convolutions side by side.
  Tensor X = random_floats({2, 5, 6, 4}, 8);
  Sequential grouped(Key(0), {layer<Conv2D>(4, 6, 3, ConvOptions{.padding = 1, .groups = 2})});
  Sequential first(Key(0), {layer<Conv2D>(2, 3, 3, ConvOptions{.padding = 1})});
  Tensor weight = grouped.find("0.weight").value(), whole = grouped(X);
  EXPECT_EQ(weight.shape(), (Shape{3, 3, 2, 6}));
  for (int64_t g = 0; g < 2; ++g) {
    first.find("0.weight").set(weight.slice(3, 3 * g, 3 * g + 3).contiguous());
    std::vector<float> right = first(X.slice(3, 2 * g, 2 * g + 2).contiguous()).to_vector<float>();
    expect_near(whole.slice(3, 3 * g, 3 * g + 3), std::vector<double>(right.begin(), right.end()), 1e-5, 1e-6);
  }
  EXPECT_TRUE(mentions(error_of([] { Sequential(Key(0), {layer<Conv2D>(4, 6, 3, ConvOptions{.groups = 4})}); }),
                       {"4 groups must divide", "6 output"}));
  EXPECT_TRUE(mentions(error_of([&] { dilated(Tensor::zeros({1, 3, 1})); }), {"window of 4", "[1, 3, 1]"}));
}

TEST(GroupNorm, AgainstLoops) {
  Tensor X = random_floats({2, 3, 4, 6}, 5);
  std::vector<float> x = X.to_vector<float>();
  auto right = [&](int64_t groups) {
    std::vector<double> y(x.size());
    int64_t size = 6 / groups;
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t g = 0; g < groups; ++g) {
        auto each = [&](const std::function<void(size_t)>& f) {
          for (int64_t p = 0; p < 12; ++p)
            for (int64_t c = g * size; c < (g + 1) * size; ++c) f(static_cast<size_t>((n * 12 + p) * 6 + c));
        };
        double mean = 0, variance = 0, count = static_cast<double>(12 * size);
        each([&](size_t i) { mean += static_cast<double>(x[i]) / count; });
        each([&](size_t i) { variance += (x[i] - mean) * (x[i] - mean) / count; });
        each([&](size_t i) { y[i] = (x[i] - mean) / std::sqrt(variance + 1e-5); });
      }
    return y;
  };
  for (int64_t groups : {1, 2, 3, 6})
    expect_near(Sequential(Key(0), {layer<GroupNorm>(groups, 6)})(X), right(groups), 1e-5, 2e-6);
  Sequential instance(Key(0), {layer<InstanceNorm>(6)});
  expect_near(instance(X), right(6), 1e-5, 2e-6);
  EXPECT_TRUE(instance.parameters().empty());
  EXPECT_EQ(Sequential(Key(0), {layer<InstanceNorm>(6, 1e-5, true)}).parameters().size(), 2U);
  EXPECT_TRUE(mentions(error_of([] { Sequential(Key(0), {layer<GroupNorm>(4, 6)}); }), {"6", "4 groups"}));
  EXPECT_NE(error_of([&] { instance(Tensor::zeros({2, 1, 6})); }), "");
  EXPECT_NE(error_of([&] { Sequential(Key(0), {layer<GroupNorm>(6, 6)})(Tensor::zeros({2, 6})); }), "");
}

TEST(Activations, LeakyReluSoftplusFlatten) {
  auto gradient = [](const Module& model, const std::vector<float>& at) {
    Variable v("v", floats(at), true);
    return grad(model(v).sum(), {v}).values[0];
  };
  Sequential leaky(Key(0), {layer<LeakyReLU>(0.1)}), softplus(Key(0), {layer<Softplus>()}), flatten(Key(0), {layer<Flatten>()});
  expect_near(leaky(floats({-2, 0, 3})), {-0.2, 0, 3});
  expect_near(gradient(leaky, {-2, 0, 3}), {0.1, 0.1, 1});
  expect_near(softplus(floats({-200, -1, 0, 2, 1e4F})),
              {0, std::log1p(std::exp(-1.0)), std::log(2.0), std::log1p(std::exp(2.0)), 1e4});
  expect_near(gradient(softplus, {-200, -1, 0, 2, 1e4F}), {0, 1 / (1 + std::exp(1.0)), 0.5, 1 / (1 + std::exp(-2.0)), 1});
  EXPECT_EQ(flatten(Tensor::zeros({2, 3, 4})).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(Tensor::zeros({0, 3, 4})).shape(), (Shape{0, 12}));
  EXPECT_EQ(flatten(Tensor::zeros({5})).shape(), (Shape{5, 1}));
}

/// Gradients of sum(r * model(x)), r random, in x and every parameter, against central differences.
void check_gradients(const char* name, const Shape& shape, const std::vector<LayerFactory>& layers) {
  Sequential model(Key(2), layers);
  Variable x("x", random_floats(shape, 21), true);
  Tensor r = random_floats(model(x).shape(), 22);
  auto value = [&] { return (model(x).cast(DType::f64) * r.cast(DType::f64)).sum(); };
  std::vector<Variable> all = model.parameters();
  all.push_back(x);
  Gradients g = grad((model(x) * r).sum(), all);
  for (size_t k = 0; k < all.size(); ++k) {
    ASSERT_TRUE(g.values[k].defined()) << name;
    std::vector<float> gradient = g.values[k].to_vector<float>(), values = all[k].value().to_vector<float>();
    for (size_t i = 0; i < values.size(); i += 1 + values.size() / 12) {
      std::vector<float> moved = values;
      auto at = [&](float v) {
        moved[i] = v;
        all[k].set(floats(moved, all[k].value().shape()));
        NoGrad no_grad;
        return value().item();
      };
      const float h = 0x1p-8F;
      double slope = (at(values[i] + h) - at(values[i] - h)) / (2 * static_cast<double>(h));
      all[k].set(floats(values, all[k].value().shape()));
      EXPECT_NEAR(gradient[i], slope, 2e-3 * (1 + std::abs(slope))) << name << ", " << all[k].name() << "[" << i << "]";
    }
  }
}

TEST(Gradients, AgainstDifferences) {
  check_gradients("conv 1d", {2, 7, 3}, {layer<Conv1D>(3, 4, 3, ConvOptions{.stride = 2, .padding = 1})});
  check_gradients("conv 2d", {2, 5, 6, 3}, {layer<Conv2D>(3, 4, 3, ConvOptions{.padding = 1})});
  check_gradients("strided conv 2d", {2, 5, 6, 3}, {layer<Conv2D>(3, 4, 2, ConvOptions{.stride = 2, .bias = false})});
  check_gradients("dilated conv 1d", {2, 9, 3}, {layer<Conv1D>(3, 4, 3, ConvOptions{.padding = 2, .dilation = 2})});
  check_gradients("grouped conv 2d", {2, 4, 5, 6}, {layer<Conv2D>(6, 4, 3, ConvOptions{.padding = 1, .groups = 2})});
  check_gradients("depthwise conv 1d", {2, 7, 4}, {layer<Conv1D>(4, 4, 3, ConvOptions{.stride = 2, .groups = 4})});
  check_gradients("padded max pool", {2, 5, 5, 3}, {layer<MaxPool>(3, 2, 1)});
  check_gradients("padded average pool", {2, 5, 5, 3}, {layer<AveragePool>(2, 2, 1)});
  check_gradients("max pool", {2, 6, 6, 3}, {layer<MaxPool>(3, 2)});
  check_gradients("average pool", {2, 6, 6, 3}, {layer<AveragePool>(2, 1)});
  check_gradients("group norm", {2, 3, 4, 6}, {layer<GroupNorm>(3, 6)});
  check_gradients("instance norm", {2, 3, 4, 6}, {layer<InstanceNorm>(6, 1e-5, true)});
  check_gradients("leaky relu", {30}, {layer<LeakyReLU>(0.2)});
  check_gradients("softplus", {30}, {layer<Softplus>()});
}

// The reference beside each kernel: sums that are zero but for rounding, and roundings inside a kernel, are no difference.
TEST(Verify, ConvolutionsAndBatchNorms) {
  const FlagScope verify("verify", "3");
  for (DType dtype : {DType::f32, DType::bf16}) {
    Sequential model(Key(3), {layer<Conv2D>(2, 4, 3, ConvOptions{.padding = 1}), layer<BatchNorm>(4), layer<ReLU>(),
                              layer<Conv2D>(4, 4, 3, ConvOptions{.padding = 1}), layer<BatchNorm>(4), layer<ReLU>(),
                              layer<Flatten>(), layer<Linear>(4 * 8 * 8, 3)});
    Trainer trainer(model, SoftmaxCrossEntropy(), AdamW({.lr = 0.01}), {.compile = true, .compute_dtype = dtype});
    for (uint32_t step = 0; step < 3; ++step)
      EXPECT_NO_THROW(trainer.train_step(random_floats({16, 8, 8, 2}, step), random_ints({16}, 3, step)));
  }
}

}  // namespace
}  // namespace ws::testing
