#include "backend/cpu/rows/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/thread_pool.h"

namespace ws::cpu {
namespace {

using Index = std::vector<int64_t>;

// Every index of `dims`, in row-major order.
template <class Body>
void for_each_index(const Shape& dims, const Body& body) {
  Index index(static_cast<size_t>(dims.rank()), 0);
  for (int64_t n = dims.num_elements(); n > 0; --n) {
    body(index);
    for (int axis = dims.rank() - 1; axis >= 0 && ++index[static_cast<size_t>(axis)] == dims[axis]; --axis)
      index[static_cast<size_t>(axis)] = 0;
  }
}

int64_t offset_of(const Strided& x, const Index& index) {
  int64_t at = 0;
  for (size_t i = 0; i < index.size(); ++i) at += index[i] * x.strides[i];
  return at;
}

// An array with its axes laid out in the order `layout` (outermost first) and `gap` unused elements after each innermost run.
template <class T>
struct Array {
  std::vector<T> memory;
  Strided view;
  Array(const Shape& dims, std::vector<int> layout, int64_t gap, T fill) {
    view.dims = dims;
    int64_t stride = 1;
    for (size_t i = layout.size(); i-- > 0;) {
      view.strides[static_cast<size_t>(layout[i])] = stride;
      stride *= dims[layout[i]];
      if (i + 1 == layout.size()) stride += gap;
    }
    memory.assign(static_cast<size_t>(stride) + 16, fill);
    view.data = memory.data();
  }
  Array(const Shape& dims, T fill) : Array(dims, identity(dims.rank()), 0, fill) {}
  static std::vector<int> identity(int rank) {
    std::vector<int> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  T& at(const Index& index) { return memory[static_cast<size_t>(offset_of(view, index))]; }
  void number() {
    T next = 1;
    for_each_index(view.dims, [&](const Index& i) { at(i) = next++; });
  }
};

template <class T>
void expect_copies(const Shape& dims, const std::vector<int>& to_layout, const std::vector<int>& from_layout, int64_t gap) {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    constexpr T kGuard = 77;
    Array<T> to(dims, to_layout, gap, kGuard), from(dims, from_layout, gap, T{0});
    from.number();
    copy(to.view, from.view, sizeof(T), pool);
    std::vector<T> expected(to.memory.size(), kGuard);
    for_each_index(dims, [&](const Index& i) { expected[static_cast<size_t>(offset_of(to.view, i))] = from.at(i); });
    ASSERT_EQ(to.memory, expected) << dims.str();
  }
}

TEST(Copy, AnyLayoutAnySize) {
  for (int64_t gap : {0, 3}) {
    expect_copies<uint32_t>({}, {}, {}, 0);
    expect_copies<uint32_t>({5}, {0}, {0}, gap);
    expect_copies<uint32_t>({0, 4}, {0, 1}, {1, 0}, gap);
    expect_copies<uint32_t>({37, 53}, {0, 1}, {1, 0}, gap);
    expect_copies<uint32_t>({37, 53}, {1, 0}, {0, 1}, gap);
    expect_copies<uint16_t>({3, 20, 33}, {0, 1, 2}, {1, 0, 2}, gap);
    expect_copies<uint8_t>({3, 20, 33}, {0, 1, 2}, {0, 2, 1}, gap);
    expect_copies<uint64_t>({5, 18, 21}, {0, 1, 2}, {2, 1, 0}, gap);
    expect_copies<uint64_t>({5, 18, 21}, {2, 0, 1}, {1, 2, 0}, gap);
    expect_copies<uint32_t>({2, 3, 4, 5, 6}, {0, 1, 2, 3, 4}, {4, 2, 0, 1, 3}, gap);
    expect_copies<uint32_t>({2, 1, 4, 1, 6}, {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, gap);
    expect_copies<uint32_t>({300, 700}, {0, 1}, {1, 0}, gap);  // several grains
    expect_copies<uint32_t>({100000}, {0}, {0}, 0);
  }
}

TEST(Copy, BroadcastsAndSteps) {
  ThreadPool pool(2);
  std::vector<float> row{1, 2, 3}, out(12, 0);
  Strided from = dense(row.data(), {4, 3});
  from.strides = {0, 1};
  copy(dense(out.data(), {4, 3}), from, 4, pool);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
  from.dims = {3, 4};
  from.strides = {1, 0};
  copy(dense(out.data(), {3, 4}), from, 4, pool);
  EXPECT_EQ(out, (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
  from = dense(out.data(), {3, 2});
  from.strides = {4, 2};
  std::vector<float> half(6, 0);
  copy(dense(half.data(), {3, 2}), from, 4, pool);
  EXPECT_EQ(half, (std::vector<float>{1, 1, 2, 2, 3, 3}));
}

TEST(Concatenate, AnyAxisWithEmptyParts) {
  ThreadPool pool(2);
  for (int axis = 0; axis < 3; ++axis) {
    std::array<int64_t, 3> dims{4, 5, 6}, total = dims;
    total[static_cast<size_t>(axis)] = 0;
    std::vector<Array<uint32_t>> parts;
    for (int64_t size : {3, 0, 1, 7}) {
      dims[static_cast<size_t>(axis)] = size;
      total[static_cast<size_t>(axis)] += size;
      parts.emplace_back(Shape(std::span<const int64_t>(dims)), std::vector<int>{2, 0, 1}, 0, 0u);
      parts.back().number();
    }
    Array<uint32_t> to(Shape(std::span<const int64_t>(total)), 0u);
    std::vector<Strided> views;
    for (auto& part : parts) views.push_back(part.view);
    concatenate(to.view, views, axis, 4, pool);
    int64_t start = 0;
    for (auto& part : parts) {
      for_each_index(part.view.dims, [&](const Index& i) {
        Index j = i;
        j[static_cast<size_t>(axis)] += start;
        ASSERT_EQ(to.at(j), part.at(i)) << "axis " << axis;
      });
      start += part.view.dims[axis];
    }
  }
}

void expect_pads(const Shape& from_dims, const Index& low, const Index& high, const Index& interior,
                 const std::vector<int>& layout) {
  Index dims;
  for (int a = 0; a < from_dims.rank(); ++a) {
    const auto i = static_cast<size_t>(a);
    dims.push_back(low[i] + high[i] + from_dims[a] + std::max<int64_t>(0, from_dims[a] - 1) * interior[i]);
  }
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    Array<uint32_t> from(from_dims, layout, 1, 0u), to(Shape(dims), 9u), expected(Shape(dims), 0u);
    from.number();
    std::fill(expected.memory.end() - 16, expected.memory.end(), 9u);  // guards
    for_each_index(from_dims, [&](const Index& i) {
      Index j = i;
      for (size_t a = 0; a < j.size(); ++a) j[a] = low[a] + i[a] * (interior[a] + 1);
      expected.at(j) = from.at(i);
    });
    pad(to.view, from.view, low, interior, 4, pool);
    ASSERT_EQ(to.memory, expected.memory) << from_dims.str();
  }
}

TEST(Pad, LowHighInterior) {
  expect_pads({}, {}, {}, {}, {});
  expect_pads({5}, {2}, {3}, {0}, {0});
  expect_pads({5}, {0}, {0}, {2}, {0});
  expect_pads({0}, {2}, {3}, {0}, {0});
  expect_pads({4, 6}, {1, 2}, {0, 3}, {1, 0}, {0, 1});
  expect_pads({4, 6}, {1, 2}, {0, 3}, {1, 2}, {1, 0});
  expect_pads({4, 6}, {0, 0}, {0, 0}, {3, 0}, {0, 1});
  expect_pads({2, 16, 1, 4, 8}, {0, 0, 1, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 0}, {0, 1, 2, 3, 4});  // one of a packed q, k, v
  expect_pads({64, 64, 1, 32}, {0, 0, 2, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 1, 2, 3});
}

TEST(Gather, RowsOfEverySize) {
  std::mt19937 random(1);
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    for (const Shape& row : {Shape{}, Shape{1}, Shape{7}, Shape{512}, Shape{3, 5}}) {
      Index table_dims{11}, out_dims{6, 50};
      for (int64_t d : row) table_dims.push_back(d), out_dims.push_back(d);
      Array<uint16_t> table(Shape(table_dims), 0);
      table.number();
      Array<int32_t> indices({6, 50}, {1, 0}, 2, 0);
      for_each_index(indices.view.dims, [&](const Index& i) { indices.at(i) = static_cast<int32_t>(random() % 11); });
      Array<uint16_t> out(Shape(out_dims), 5);
      gather(out.view, table.view, indices.view, 2, pool);
      for_each_index(out.view.dims, [&](const Index& i) {
        Index t(i.begin() + 1, i.end());
        t[0] = indices.at({i[0], i[1]});
        ASSERT_EQ(out.at(i), table.at(t));
      });
      for (size_t g = 1; g <= 16; ++g) ASSERT_EQ(out.memory[out.memory.size() - g], 5);
    }
  }
}

TEST(Gather, IndexOutsideReadsZeros) {
  SerialWorkers serial;
  std::vector<float> table{1, 2, 3, 4}, out(6, 9);
  std::vector<int32_t> indices{1, -1, 2};
  gather(dense(out.data(), {3, 2}), dense(table.data(), {2, 2}), dense(indices.data(), {3}), 4, serial);
  EXPECT_EQ(out, (std::vector<float>{3, 4, 0, 0, 0, 0}));
}

TEST(ScatterAdd, AscendingPositionsFromZero) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const auto& [rows, size, positions] :
       {std::array<int64_t, 3>{28, 512, 2000}, {3, 1, 40000}, {5000, 3, 30000}, {7, 130, 9}, {1, 64, 0}, {4, 640, 1000}}) {
    std::vector<int32_t> indices(static_cast<size_t>(positions));
    for (auto& i : indices) i = static_cast<int32_t>(random() % static_cast<uint32_t>(rows));
    if (positions > 4) indices[2] = -1, indices[3] = static_cast<int32_t>(rows);
    Array<float> updates({positions, size}, {0, 1}, 5, 0.0f);
    for (auto& v : updates.memory) v = normal(random);
    std::vector<float> expected(static_cast<size_t>(rows * size), 0.0f);
    for (int64_t j = 0; j < positions; ++j) {
      const int64_t t = indices[static_cast<size_t>(j)];
      if (t < 0 || t >= rows) continue;
      for (int64_t c = 0; c < size; ++c) expected[static_cast<size_t>(t * size + c)] += updates.at({j, c});
    }
    for (int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<float> table(expected.size() + 16, 7.0f);
      scatter_add(dense(table.data(), {rows, size}), dense(indices.data(), {positions}), updates.view, DType::f32, pool);
      ASSERT_EQ(std::memcmp(table.data(), expected.data(), expected.size() * 4), 0) << rows << " x " << size;
      for (size_t g = expected.size(); g < table.size(); ++g) ASSERT_EQ(table[g], 7.0f);
    }
  }
}

TEST(ScatterAdd, OneTokenManyTimesIsExact) {
  ThreadPool pool(2);
  std::vector<int32_t> indices(4096, 1);
  std::vector<float> updates(4096 * 256, 1.0f), table(3 * 256, 5.0f);
  scatter_add(dense(table.data(), {3, 256}), dense(indices.data(), {4096}), dense(updates.data(), {4096, 256}), DType::f32, pool);
  for (size_t c = 0; c < 256; ++c) {
    ASSERT_EQ(table[c], 0.0f);
    ASSERT_EQ(table[256 + c], 4096.0f);
    ASSERT_EQ(table[512 + c], 0.0f);
  }
}

TEST(ScatterAdd, Bf16SumsInFp32) {
  ThreadPool pool(2);
  const auto one = static_cast<uint16_t>(0x3F80);  // 1.0; a bf16 sum would stop at 256
  std::vector<int32_t> indices(1000, 0);
  std::vector<uint16_t> updates(1000 * 5, one), table(10, 1);
  scatter_add(dense(table.data(), {2, 5}), dense(indices.data(), {1000}), dense(updates.data(), {1000, 5}), DType::bf16, pool);
  const auto thousand = static_cast<uint16_t>(std::bit_cast<uint32_t>(1000.0f) >> 16);
  EXPECT_EQ(table, (std::vector<uint16_t>{thousand, thousand, thousand, thousand, thousand, 0, 0, 0, 0, 0}));
}

TEST(Checks, FindTheFirstOffender) {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    std::vector<int32_t> labels(100000, 3);
    EXPECT_TRUE(check_range(dense(labels.data(), {100000}), 0, 4, pool).ok);
    labels[99999] = -7;
    labels[70000] = 4;
    const CheckResult range = check_range(dense(labels.data(), {1000, 100}), 0, 4, pool);
    EXPECT_FALSE(range.ok);
    EXPECT_EQ(range.value, 4);
    EXPECT_EQ(check_range(dense(labels.data(), {100000}), 0, 5, pool).value, -7);
    EXPECT_TRUE(check_range(dense(labels.data(), {0}), 0, 1, pool).ok);

    float x = 1e38f;
    EXPECT_TRUE(check_finite(dense(&x, {}), DType::f32, pool).ok);
    x = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(check_finite(dense(&x, {}), DType::f32, pool).value, -std::numeric_limits<double>::infinity());
    double y = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(check_finite(dense(&y, {}), DType::f64, pool).ok);
    uint16_t z = 0x7F80;
    EXPECT_FALSE(check_finite(dense(&z, {}), DType::bf16, pool).ok);
    z = 0x7F7F;
    EXPECT_TRUE(check_finite(dense(&z, {}), DType::bf16, pool).ok);
  }
}

}  // namespace
}  // namespace ws::cpu
