// The loop: ops against numbers, broadcasting, views, reading, errors, memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/flags.h"
#include "tensor/dispatch.h"
#include "tensor/eager.h"
#include "tensor/scalar_bits.h"
#include "tensor/storage.h"
#include "tensor/tensor_impl.h"
#include "tensor_util.h"
#include "wholestep/tensor.h"

namespace ws {
namespace {

Tensor floats(std::vector<float> values, const Shape& shape) { return Tensor::from(std::span<const float>(values), shape); }
Tensor ints(std::vector<int32_t> values, const Shape& shape) { return Tensor::from(std::span<const int32_t>(values), shape); }
std::vector<float> list(const Tensor& t) { return t.to_vector<float>(); }
using V = std::vector<float>;

Tensor count_up(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return floats(values, shape);
}

TEST(Loop, ElementwiseNumbers) {
  Tensor a = floats({1, -2, 3, 4}, {4}), b = floats({2, 5, -1, 4}, {4});
  EXPECT_EQ(list(a + b), (V{3, 3, 2, 8}));
  EXPECT_EQ(list(a - b), (V{-1, -7, 4, 0}));
  EXPECT_EQ(list(a * b), (V{2, -10, -3, 16}));
  EXPECT_EQ(list(a / floats({2, 2, 2, 2}, {4})), (V{0.5, -1, 1.5, 2}));
  EXPECT_EQ(list(-a), (V{-1, 2, -3, -4}));
  EXPECT_EQ(list(2.0 - a), (V{1, 4, -1, -2}));
  EXPECT_EQ(list(a * 2.0), (V{2, -4, 6, 8}));
  EXPECT_EQ(list(1.0 / floats({2, 4}, {2})), (V{0.5, 0.25}));
  EXPECT_EQ(list(relu(a)), (V{1, 0, 3, 4}));
  EXPECT_EQ(list(where(lt(a, b), a, b)), (V{1, -2, -1, 4}));
  EXPECT_EQ(lt(a, b).dtype(), DType::boolean);
  EXPECT_EQ(lt(a, b).to_vector<int32_t>(), (std::vector<int32_t>{1, 1, 0, 0}));
}

TEST(Loop, BroadcastsByTrailingDims) {
  Tensor m = count_up({2, 3});
  EXPECT_EQ(list(m + floats({10, 20, 30}, {3})), (V{11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(list(m * floats({1, 2}, {2, 1})), (V{1, 2, 3, 8, 10, 12}));
  Tensor outer = floats({1, 2}, {2, 1}) + floats({10, 20, 30}, {1, 3});
  EXPECT_EQ(outer.shape(), (Shape{2, 3}));
  EXPECT_EQ(list(outer), (V{11, 21, 31, 12, 22, 32}));
  EXPECT_EQ(list(Tensor(3.0) + floats({1, 2}, {2})), (V{4, 5}));
  EXPECT_EQ(list(floats({7, 9}, {2}).broadcast_to({3, 2})), (V{7, 9, 7, 9, 7, 9}));
}

TEST(Loop, ViewsShareMemory) {
  Tensor m = count_up({2, 3});
  Tensor t = m.t();
  EXPECT_EQ(t.impl()->storage.get(), m.impl()->storage.get());
  EXPECT_EQ(list(t), (V{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(list(t.t()), list(m));
  EXPECT_TRUE(t.t().impl()->dense);
  Tensor s = count_up({4, 2}).slice(0, 0, 4, 2);
  EXPECT_EQ(list(s), (V{1, 2, 5, 6}));
  EXPECT_EQ(list(s.slice(1, 1, 2)), (V{2, 6}));
  EXPECT_EQ(list(m.slice(1, 1, 3) + 0.5), (V{2.5, 3.5, 5.5, 6.5}));
  EXPECT_EQ(list(t.reshape({6})), (V{1, 4, 2, 5, 3, 6}));  // needs a copy
  EXPECT_EQ(m.reshape({-1, 2}).shape(), (Shape{3, 2}));
  EXPECT_EQ(m.reshape({3, 2}).impl()->storage.get(), m.impl()->storage.get());
  EXPECT_EQ(m.unsqueeze(1).shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(m.unsqueeze(-1).squeeze(-1).shape(), (Shape{2, 3}));
  Tensor c = t.contiguous();
  EXPECT_TRUE(c.impl()->dense);
  EXPECT_NE(c.impl()->storage.get(), m.impl()->storage.get());
  EXPECT_EQ(static_cast<const float*>(t.data())[1], 4.0f);
}

TEST(Loop, ReshapeOfStridedViewsWithoutACopyWherePossible) {
  Tensor x = count_up({4, 6});
  Tensor columns = x.slice(1, 0, 4);  // strides 6, 1
  Tensor split = columns.reshape({2, 2, 2, 2});
  EXPECT_EQ(split.impl()->storage.get(), x.impl()->storage.get());
  EXPECT_EQ(list(split), list(columns));
  Tensor merged = x.slice(0, 0, 4, 2).reshape({2, 1, 6});
  EXPECT_EQ(merged.impl()->storage.get(), x.impl()->storage.get());
  EXPECT_EQ(list(merged), (V{1, 2, 3, 4, 5, 6, 13, 14, 15, 16, 17, 18}));
  Tensor flat = columns.reshape({16});
  EXPECT_NE(flat.impl()->storage.get(), x.impl()->storage.get());
  EXPECT_EQ(list(flat), list(columns));
  EXPECT_EQ(list(x.transpose({1, 0}).reshape({2, 3, 4}).slice(0, 1, 2)), list(x.t().slice(0, 3, 6)));
}

TEST(Loop, Reductions) {
  Tensor m = count_up({2, 3, 4});
  EXPECT_EQ(m.sum().item(), 300);
  EXPECT_EQ(m.sum({-1}).shape(), (Shape{2, 3}));
  EXPECT_EQ(list(m.sum({2})), (V{10, 26, 42, 58, 74, 90}));
  EXPECT_EQ(list(m.sum({0, 2})), (V{68, 100, 132}));
  EXPECT_EQ(m.sum({0, 2}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(list(m.max({1})), (V{9, 10, 11, 12, 21, 22, 23, 24}));
  EXPECT_EQ(m.mean().item(), 12.5);
  EXPECT_EQ(list(m.mean({0, 1})), (V{11, 12, 13, 14}));
  EXPECT_EQ(list(m.transpose({2, 0, 1}).sum({0})), list(m.sum({2})));
  EXPECT_EQ(Tensor(4.0).sum().item(), 4);
  EXPECT_EQ(Tensor::zeros({0, 3}).sum({0}).to_vector<float>(), (V{0, 0, 0}));
}

TEST(Loop, MatmulFlagsAndViewsAgree) {
  Tensor a = count_up({2, 3}), b = count_up({3, 2});
  V right{22, 28, 49, 64};
  EXPECT_EQ(list(matmul(a, b)), right);
  EXPECT_EQ(list(matmul(a.t().contiguous(), b, true, false)), right);
  EXPECT_EQ(list(matmul(a, b.t().contiguous(), false, true)), right);
  EXPECT_EQ(list(matmul(a.t().contiguous().t(), b.t().contiguous().t())), right);
  Tensor batch = matmul(count_up({2, 2, 3}), b);
  EXPECT_EQ(batch.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(list(batch), (V{22, 28, 49, 64, 76, 100, 103, 136}));
}

TEST(Loop, GatherAndConcatenate) {
  Tensor table = count_up({3, 2});
  EXPECT_EQ(list(gather(table, ints({2, 0}, {2}))), (V{5, 6, 1, 2}));
  EXPECT_EQ(list(concatenate({table, table.slice(0, 0, 1)}, 0)), (V{1, 2, 3, 4, 5, 6, 1, 2}));
  EXPECT_EQ(list(concatenate({table, table}, -1).slice(0, 1, 2)), (V{3, 4, 3, 4}));
  std::string message = message_of([&] { gather(table, ints({0, 3}, {2}), "token"); });
  EXPECT_NE(message.find("token"), std::string::npos) << message;
  EXPECT_NE(message.find("3"), std::string::npos) << message;
}

TEST(Loop, SoftmaxSurvivesLargeLogits) {
  Tensor x = floats({1000, 1001, 1002, -5, 0, 5}, {2, 3});
  V p = list(softmax(x));
  EXPECT_NEAR(p[0] + p[1] + p[2], 1, 1e-6);
  EXPECT_NEAR(p[2], 0.66524096, 1e-6);
  V l = list(log_softmax(x));
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(std::exp(l[i]), p[i], 1e-6);
  EXPECT_EQ(list(softmax(Tensor::zeros({1024})))[7], 0.0009765625f);
}

TEST(Loop, GeluForms) {  // case C26
  Tensor x = floats({-3, -2, 1, 3, -1e4f, 1e4f}, {6});
  V exact = list(gelu(x)), form = list(gelu_tanh(x));
  V right_exact{-0.0040497f, -0.0455003f, 0.8413447f, 2.9959503f}, right_tanh{-0.0036374f, -0.0454023f, 0.8411920f, 2.9963626f};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(exact[i], right_exact[i], 3e-7);
    EXPECT_NEAR(form[i], right_tanh[i], 3e-7);
  }
  EXPECT_EQ(exact[4], 0);
  EXPECT_EQ(form[4], 0);
  EXPECT_EQ(exact[5], 1e4f);
  EXPECT_EQ(form[5], 1e4f);
}

TEST(Loop, Bf16RoundsOnce) {
  Tensor ones = Tensor::ones({1024}, DType::bf16);  // case C45
  EXPECT_EQ(ones.sum().item(), 1024);
  EXPECT_EQ(ones.mean().item(), 1);
  EXPECT_EQ(list(softmax(Tensor::zeros({1024}, DType::bf16)))[3], 0.0009765625f);
  EXPECT_EQ((Tensor::full({1}, 0.2).cast(DType::bf16)).to_vector<float>()[0], 0.200195312f);
  // A number that the loop writes and one that a kernel writes have the same bits.
  for (double value : {0.2, 1.0 / 3, 3.14159265358979, 1e-3, -65504.7})
    EXPECT_EQ(list(Tensor::full({3}, value, DType::bf16)), list(Tensor::full({3}, value).cast(DType::bf16)));
}

TEST(ScalarBits, Bf16Corners) {  // case C44
  auto bits = [](uint32_t f) { return bf16_from_f32(std::bit_cast<float>(f)); };
  EXPECT_EQ(bits(0x3F808000), 0x3F80);
  EXPECT_EQ(bits(0x3F818000), 0x3F82);
  EXPECT_EQ(bits(0x7F7F8000), 0x7F80);
  EXPECT_EQ(bits(0x80000000), 0x8000);
  EXPECT_EQ(bits(0x00018000), 0x0002);
  for (uint32_t nan : {0x7F800001u, 0x7FFF9ABCu, 0xFFFFFFFFu, 0xFF800001u}) {
    uint16_t b = bits(nan);
    EXPECT_EQ(b & 0x7F80, 0x7F80);
    EXPECT_NE(b & 0x7F, 0);
    EXPECT_EQ(b >> 15, nan >> 31);
  }
}

TEST(Loop, ErrorsNameOpShapesAndPath) {
  Tensor a = count_up({2, 3}), b = count_up({2});
  std::string shapes = message_of([&] {
    PathScope outer("blocks.0");
    PathScope inner("fc");
    a + b;
  });
  EXPECT_NE(shapes.find("in blocks.0.fc: "), std::string::npos) << shapes;
  EXPECT_NE(shapes.find("add"), std::string::npos);
  EXPECT_NE(shapes.find("[2, 3]"), std::string::npos);
  EXPECT_NE(shapes.find("[2]"), std::string::npos);
  std::string dtypes = message_of([&] { a* a.cast(DType::bf16); });
  EXPECT_NE(dtypes.find("f32[2, 3]"), std::string::npos) << dtypes;
  EXPECT_NE(dtypes.find("bf16[2, 3]"), std::string::npos);
  EXPECT_NE(dtypes.find("cast"), std::string::npos);
  std::string product = message_of([&] {
    PathScope scope("fc");
    matmul(a, a);
  });
  EXPECT_EQ(product.find("in fc: matmul"), 0u) << product;  // the path once
  std::string fraction = message_of([&] { a.cast(DType::i32) + 1.5; });
  EXPECT_NE(fraction.find("1.5 is not a whole number"), std::string::npos) << fraction;
  EXPECT_NE(message_of([&] { a + Tensor(); }).find("undefined"), std::string::npos);
  EXPECT_NE(message_of([&] { a.item(); }).find("one element"), std::string::npos);
  EXPECT_NE(message_of([&] { a.slice(1, 2, 5); }).find("slice"), std::string::npos);
  EXPECT_NE(message_of([&] { a.reshape({4, 2}); }).find("reshape"), std::string::npos);
  EXPECT_NE(message_of([&] { Tensor::from(std::span<const float>(), {2}); }).find("0 values"), std::string::npos);
}

TEST(Loop, EmptyTensors) {
  Tensor none = Tensor::zeros({0, 4});
  EXPECT_EQ(list(none + 1.0), V{});
  EXPECT_EQ(list(none.t()), V{});
  EXPECT_EQ(matmul(Tensor::ones({2, 0}), none).to_vector<float>(), V(8, 0.0f));
}

TEST(Allocator, ReusesBlocks) {
  auto train = [] {
    Tensor x = Tensor::ones({300, 300});
    for (int i = 0; i < 5; ++i) x = x * 0.5 + x.t();
    return x.sum().item();
  };
  double first = train();
  AllocatorStats before = allocator_stats();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(train(), first);
  AllocatorStats after = allocator_stats();
  EXPECT_EQ(after.system_requests, before.system_requests);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.live_bytes + after.cached_bytes, before.live_bytes + before.cached_bytes);
}

TEST(Allocator, BlocksAreAlignedAndLargeEnough) {
  for (int64_t n : {0, 1, 63, 64, 65, 1000, 1024, 1025, 1153, 5000, 32768, 32769, 100000, 1 << 20, (1 << 20) + 1}) {
    StorageRef s = allocate_storage(n);
    EXPECT_GE(s->num_bytes, n);
    EXPECT_LE(s->num_bytes, std::max<int64_t>(64, n + n / 8 + 64)) << n;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s->data) % 64, 0u);
  }
}

TEST(Allocator, WithoutMemoryTheTensorIsNamed) {
  for (int64_t n : {int64_t{1} << 50, int64_t{1} << 58})  // no address space, no size class
    EXPECT_THAT(message_of([n] { Tensor::zeros({n}); }),
                testing::HasSubstr(fmt::format("out of memory: a tensor f32[{}] of", n)));
}

TEST(EagerCache, OneCompileForEachSignature) {
  Tensor a = count_up({5, 7});
  (void)(a + a);
  int64_t compiled = eager_stats().compiled;
  for (int i = 0; i < 10; ++i) (void)(a + a * (1.0 + i));
  EXPECT_LE(eager_stats().compiled, compiled + 1);  // mul with a number: one layout, whatever the number
  int64_t sliced = eager_stats().compiled;
  Tensor big = count_up({100, 7});
  for (int i = 0; i < 10; ++i) (void)(big.slice(0, i, i + 5).t() + 1.0);
  EXPECT_LE(eager_stats().compiled, sliced + 1);  // windows at any offset share one
}

TEST(Shapes, AnAxisThatIsNotThereIsAnError) {
  const Tensor x = Tensor::from(std::vector<float>(6), {2, 3});
  EXPECT_EQ(x.dim(-2), 2);
  EXPECT_THROW(x.dim(2), Error);
  EXPECT_THROW(x.dim(-3), Error);
}

}  // namespace
}  // namespace ws
