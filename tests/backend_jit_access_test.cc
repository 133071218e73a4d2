// How kernels walk memory: ranks, strides, broadcasts, pairs swapped, parts of the outer range, in place, positions.
#include "backend_jit_support.h"

namespace ws::test {
namespace {

std::vector<int64_t> unravel(int64_t flat, const std::vector<int64_t>& dims) {
  std::vector<int64_t> index(dims.size());
  for (size_t d = dims.size(); d-- > 0; flat /= dims[d]) index[d] = flat % dims[d];
  return index;
}
int64_t dot(const std::vector<int64_t>& index, const std::vector<int64_t>& strides) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}
int64_t product(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// out[transposed] = a[transposed] - row + splat, with any cut of the outer range.
TEST(JitAccess, RanksOneToEight) {
  const std::vector<std::vector<int64_t>> shapes = {
      {37}, {3, 20}, {5, 3, 17}, {2, 3, 4, 33}, {2, 1, 3, 2, 18}, {2, 2, 1, 3, 2, 2, 2, 19}, {4, 1}, {3, 5, 1}, {0, 4}, {2, 0}};
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::boolean})
    for (const auto& dims : shapes) {
      const auto rank = static_cast<int>(dims.size());
      for (Step step : {Step::kUnit, Step::kStrided}) {
        KernelWriter w(Walk::kElements, rank);
        const bool mask = dtype == DType::boolean;
        const int a = w.load(dtype, step), row = w.load(dtype), splat = w.load(dtype, Step::kSplat);
        const int first = w.op(mask ? "logical_and" : "sub", {a, row}, dtype);
        w.store(w.op(mask ? "logical_or" : "add", {first, splat}, dtype), dtype, step);
        const auto kernel = w.done();
        // The strided operand and result lie with the last axis outermost.
        std::vector<int64_t> dense(dims.size(), 1), turned(dims.size(), 1), row_strides(dims.size(), 0),
            splat_strides(dims.size(), 0);
        for (size_t d = dims.size() - 1; d-- > 0;) dense[d] = dense[d + 1] * dims[d + 1];
        for (size_t d = dims.size() - 1; d-- > 0;) turned[d] = d + 2 == dims.size() ? 1 : turned[d + 1] * dims[d + 1];
        turned.back() = dims.size() == 1 ? 3 : product(dims) / std::max<int64_t>(dims.back(), 1);
        const auto& strides = step == Step::kStrided ? turned : dense;
        row_strides.back() = 1;
        if (dims.size() > 1) splat_strides[0] = 1;
        const int64_t n = product(dims);
        for (Isa isa : machine_isas()) {
          Array x(dtype, std::max<int64_t>(3 * n, 1)), r(dtype, dims.back()), s(dtype, std::max<int64_t>(dims[0], 1)),
              out(dtype, std::max<int64_t>(3 * n, 1));
          fill_random(x, 1, -1000, 1000);
          fill_random(r, 2, -1000, 1000);
          fill_random(s, 3, -1000, 1000);
          const Array fresh(dtype, std::max<int64_t>(3 * n, 1));
          Array expected = fresh;
          Call call(*kernel, dims);
          call.bind(0, x.data(), strides)
              .bind(1, r.data(), row_strides)
              .bind(2, s.data(), splat_strides)
              .bind(3, out.data(), strides);
          const int64_t outer = call.outer(), cut = outer / 3;
          const LoopCode code = compile_one(isa, kernel);
          call.run(code, 0, cut, 0, dims.back(), kernel->walk);
          call.run(code, cut, outer, 0, dims.back(), kernel->walk);
          for (int64_t i = 0; i < n; ++i) {
            const auto index = unravel(i, dims);
            const int64_t at = dot(index, strides);
            const double p = x.get(at), q = r.get(index.back()), t = s.get(dot(index, splat_strides));
            double v = (p != 0 && q != 0) || t != 0;
            if (dtype == DType::f32)
              v = static_cast<double>((static_cast<float>(p) - static_cast<float>(q)) + static_cast<float>(t));
            if (dtype == DType::bf16)
              v = static_cast<double>(ops::EvalScalarBuilder::rounded_to_bf16(static_cast<float>(p) - static_cast<float>(q)) +
                                      static_cast<float>(t));
            if (dtype == DType::f64 || dtype == DType::i32) v = (p - q) + t;
            expected.set(at, v);
          }
          ASSERT_EQ(first_difference(out, expected), -1) << name_of(dtype) << " rank " << rank << " on " << cpu::name_of(isa);
          ASSERT_TRUE(out.guards_whole() && x.guards_whole());
        }
      }
    }
}

TEST(JitAccess, SwappedPairsInPlace) {
  KernelWriter w(Walk::kElements, 2);
  const int x = w.load(DType::f32), swapped = w.load(DType::f32, Step::kSwapped);
  w.store(w.op("sub", {x, swapped}), DType::f32);
  const auto kernel = w.done();
  for (Isa isa : machine_isas())
    for (int64_t n = 0; n < 80; n += 2) {
      Array data(DType::f32, 2 * n);
      fill_random(data, 1);
      const Array before = data;
      Call(*kernel, {2, n})
          .bind_dense(0, data)
          .bind_dense(1, data)
          .bind_dense(2, data)
          .run(compile_one(isa, kernel), kernel->walk);
      for (int64_t i = 0; i < 2 * n; ++i)
        ASSERT_EQ(data.at<float>(i), static_cast<float>(before.get(i)) - static_cast<float>(before.get(i ^ 1)))
            << n << " at " << i;
      ASSERT_TRUE(data.guards_whole());
    }
}

// Two results each written over an operand of the other: loads come before stores.
TEST(JitAccess, ExchangeInPlace) {
  KernelWriter w(Walk::kElements, 1);
  const int a = w.load(DType::f32), one = w.op("constant", {}, DType::f32, {{"dtype", DType::f32}, {"value", 1.0}});
  const int sum = w.op("add", {a, one});
  w.store(sum, DType::f32);
  const int b = w.load(DType::f32);
  w.store(w.op("add", {b, sum}), DType::f32);
  const auto kernel = w.done();  // accesses: a, first result, b, second result
  for (Isa isa : machine_isas())
    for (int64_t n : {5, 16, 64, 70, 200}) {
      Array x(DType::f32, n), y(DType::f32, n);
      fill_random(x, 1);
      fill_random(y, 2);
      const Array x0 = x, y0 = y;
      Call(*kernel, {n})
          .bind_dense(0, x)
          .bind_dense(1, y)
          .bind_dense(2, y)
          .bind_dense(3, x)
          .run(compile_one(isa, kernel), kernel->walk);
      for (int64_t i = 0; i < n; ++i) {
        const float s = static_cast<float>(x0.get(i)) + 1;
        ASSERT_EQ(y.at<float>(i), s);
        ASSERT_EQ(x.at<float>(i), static_cast<float>(y0.get(i)) + s);
      }
    }
}

// Values of rows alone: computed and stored once a row, also where there is no inner loop at all.
TEST(JitAccess, RowLevelStores) {
  KernelWriter w(Walk::kElements, 2);
  const int s = w.load(DType::f32, Step::kSplat), c = w.scalar(DType::f32), big = w.scalar(DType::bf16);
  const int v = w.op("mul", {w.op("add", {s, c}), w.op("cast", {big}, DType::f32, {{"dtype", DType::f32}})});
  w.store(v, DType::f32, Step::kSplat);
  w.store(v, DType::f32);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    Array in(DType::f32, 7), rows(DType::f32, 7), all(DType::f32, 7 * 20);
    fill_random(in, 1);
    Call call(*kernel, {7, 20});
    call.bind(0, in.data(), {1, 0})
        .bind(1, rows.data(), {1, 0})
        .bind_dense(2, all)
        .scalar(0, bits_of(0.5f))
        .scalar(1, bits_of(3));
    call.run(compile_one(isa, kernel), kernel->walk);
    for (int64_t r = 0; r < 7; ++r) {
      const float expected = (in.at<float>(r) + 0.5f) * 3;
      ASSERT_EQ(rows.at<float>(r), expected);
      for (int64_t i = 0; i < 20; ++i) ASSERT_EQ(all.at<float>(r * 20 + i), expected);
    }
    ASSERT_TRUE(rows.guards_whole() && all.guards_whole());
  }
}

// Element positions beyond 32 bits: rows of a huge space, of which only the last few are run.
TEST(JitAccess, PositionsBeyondFourBillion) {
  const OpDef position_op = [] {
    OpDef op = *find_op("iota");
    op.name = "test_position";
    op.emit = [](ScalarBuilder& b, std::span<const ScalarBuilder::S>, const Attrs&) {
      const auto high = b.mul(b.cast(b.linear_index_high(), DType::f64), b.constant(DType::f64, 4294967296.0));
      const auto axes =
          b.add(b.cast(b.index(0), DType::f64), b.mul(b.cast(b.index(1), DType::f64), b.constant(DType::f64, 0.0009765625)));
      return b.add(b.add(high, b.cast(b.linear_index_low(), DType::f64)), b.mul(axes, b.constant(DType::f64, 0.0)));
    };
    return op;
  }();
  KernelWriter w(Walk::kElements, 2);
  w.store(w.op(position_op, {}, DType::f64), DType::f64);
  const auto kernel = w.done();
  const int64_t rows = 200000, n = 43000;  // 8.6e9 elements
  for (Isa isa : machine_isas()) {
    LoopCompiler own({isa, "", 1});
    const LoopCode code = own.compile(std::span(&kernel, 1))[0];
    for (int64_t row : {int64_t{0}, int64_t{99882}, int64_t{99883}, rows - 1}) {  // 2^32 lies in row 99882
      Array out(DType::f64, n);
      Call call(*kernel, {rows, n});
      call.bind(0, out.data(), {0, 1}).run(code, row, row + 1, 0, n, kernel->walk);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.at<double>(i), static_cast<double>(row * n + i));
    }
  }
}

}  // namespace
}  // namespace ws::test
