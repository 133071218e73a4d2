// Kernels with reductions, against plain loops that follow the contract's order bit by bit.
#include "backend/cpu/jit/loop_plan.h"
#include "backend_jit_support.h"

namespace ws::test {
namespace {

/// The contract's sum of n values along a row.
template <class T, class At>
T contract_sum(int64_t n, At&& at) {
  T total = 0;
  for (int64_t block = 0; block == 0 || block < n; block += kFlatBlock) {
    T lanes[kLanes] = {};
    for (int64_t i = block; i < std::min(n, block + kFlatBlock); ++i) lanes[(i - block) % kLanes] += at(i);
    for (int width = kLanes / 2; width >= 1; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    total = block == 0 ? lanes[0] : total + lanes[0];
  }
  return total;
}

/// NaN wins, +0 over -0, -infinity for an empty row.
template <class At>
float contract_max(int64_t n, At&& at) {
  float best = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    const float v = at(i);
    if (std::isnan(v)) return v;
    if (v > best || (v == 0 && best == 0 && std::signbit(best))) best = v;
  }
  return best;
}

/// An op's value in plain C++.
float evaluate(std::string_view name, std::initializer_list<float> inputs) {
  ops::EvalScalarBuilder b;
  std::vector<ScalarBuilder::S> handles;
  for (float v : inputs) handles.push_back(b.load_bits(std::bit_cast<uint32_t>(v)));
  return std::bit_cast<float>(b.bits(find_op(name)->emit(b, handles, {})));
}

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

const int64_t kLengths[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 200, 512, 4095, 4096, 4097, 9000};

TEST(JitRows, SumAndMaxOfRows) {
  KernelWriter w(Walk::kRows, 2);
  const int x = w.load(DType::f32);
  w.store(w.reduce_row(x, DType::f32), DType::f32, Step::kSplat);
  w.store(w.reduce_row(x, DType::f32, true), DType::f32, Step::kSplat);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    const LoopCode code = compile_one(isa, kernel);
    for (const bool specials : {false, true})
      for (int64_t n : kLengths) {
        const int64_t rows = 5;
        Array in(DType::f32, rows * n), sum(DType::f32, rows), max(DType::f32, rows);
        fill_random(in, static_cast<uint32_t>(n), -2, 2, specials);
        Call call(*kernel, {rows, n});
        call.bind_dense(0, in).bind(1, sum.data(), {1, 0}).bind(2, max.data(), {1, 0});
        call.run(code, kernel->walk);
        for (int64_t r = 0; r < rows; ++r) {
          const StepMode mode;
          auto at = [&](int64_t i) { return in.at<float>(r * n + i); };
          EXPECT_TRUE(same(sum.at<float>(r), contract_sum<float>(n, at))) << n << " row " << r;
          EXPECT_TRUE(same(max.at<float>(r), contract_max(n, at))) << n << " row " << r << ": " << max.at<float>(r);
        }
        ASSERT_TRUE(in.guards_whole() && sum.guards_whole() && max.guards_whole());
      }
  }
}

TEST(JitRows, MaxPrefersNanAndPlusZero) {
  KernelWriter w(Walk::kRows, 2);
  w.store(w.reduce_row(w.load(DType::f32), DType::f32, true), DType::f32, Step::kSplat);
  const auto kernel = w.done();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::vector<float> in;
    float expected;
  };
  const Case cases[] = {{{-0.f, -0.f, 0.f}, 0.f}, {{0.f, -0.f}, 0.f},      {{-0.f, -0.f}, -0.f},     {{-1, -0.f}, -0.f},
                        {{1, nan, 3}, nan},       {{-nan, INFINITY}, nan}, {{-INFINITY}, -INFINITY}, {{-5, -3, -4}, -3}};
  for (Isa isa : machine_isas())
    for (const Case& c : cases) {
      const auto n = static_cast<int64_t>(c.in.size());
      Array in(DType::f32, n), out(DType::f32, 1);
      for (int64_t i = 0; i < n; ++i) in.at<float>(i) = c.in[static_cast<size_t>(i)];
      Call(*kernel, {1, n}).bind_dense(0, in).bind(1, out.data(), {1, 0}).run(compile_one(isa, kernel), kernel->walk);
      EXPECT_TRUE(same(out.at<float>(0), c.expected)) << out.at<float>(0) << " for " << c.expected;
    }
}

// Three passes; exp is kept in scratch between the second and the third.
TEST(JitRows, Softmax) {
  KernelWriter w(Walk::kRows, 3);
  const int x = w.load(DType::f32);
  const int max = w.reduce_row(x, DType::f32, true);
  const int e = w.op("exp", {w.op("sub", {x, max})});
  w.store(w.op("div", {e, w.reduce_row(e, DType::f32)}), DType::f32);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    const LoopCode code = compile_one(isa, kernel);
    EXPECT_EQ(code.scratch_slots, 2) << "one for each of two rows";
    for (int64_t n : kLengths) {
      const int64_t rows = 6;
      Array in(DType::f32, rows * n), out(DType::f32, rows * n);
      fill_random(in, static_cast<uint32_t>(n), -30, 30);
      Call call(*kernel, {2, 3, n});
      call.bind_dense(0, in).bind_dense(1, out);
      call.run(code, 0, 4, 1, n, kernel->walk);  // two side by side, one alone, one alone
      call.run(code, 4, 6, 0, n, kernel->walk);
      for (int64_t r = 0; r < rows; ++r) {
        auto at = [&](int64_t i) { return in.at<float>(r * n + i); };
        const float m = contract_max(n, at);
        const StepMode mode;
        auto exp_at = [&](int64_t i) { return evaluate("exp", {at(i) - m}); };
        const float sum = contract_sum<float>(n, exp_at);
        for (int64_t i = 0; i < n; ++i)
          ASSERT_TRUE(same(out.at<float>(r * n + i), exp_at(i) / sum)) << n << " at " << r << "," << i;
      }
      ASSERT_TRUE(out.guards_whole());
    }
  }
}

// Memory is asked for in the pass between a row's first and its last one; a kernel of two passes has none.
TEST(JitRows, PrefetchesBetweenFirstAndLastPass) {
  KernelWriter softmax(Walk::kRows, 2), unit_sums(Walk::kRows, 2);
  const int x = softmax.load(DType::f32);
  const int e = softmax.op("exp", {softmax.op("sub", {x, softmax.reduce_row(x, DType::f32, true)})});
  softmax.store(softmax.op("div", {e, softmax.reduce_row(e, DType::f32)}), DType::f32);
  const int y = unit_sums.load(DType::f32);
  unit_sums.store(unit_sums.op("div", {y, unit_sums.reduce_row(y, DType::f32)}), DType::f32);

  const cpu::LoopPlan plan = cpu::plan_loop(*softmax.done());
  ASSERT_EQ(plan.passes.size(), 3U);
  EXPECT_EQ(plan.prefetching_pass(), &plan.passes[1]);
  EXPECT_EQ(cpu::plan_loop(*unit_sums.done()).prefetching_pass(), nullptr);
  const auto has_prefetch = [](const std::shared_ptr<const LoopKernel>& kernel) {
    return compiler(Isa::avx2).llvm_ir(*kernel).find("llvm.prefetch") != std::string::npos;
  };
  EXPECT_TRUE(has_prefetch(softmax.done()));
  EXPECT_FALSE(has_prefetch(unit_sums.done()));
}

// In place, with row-level operands of its own, a broadcast gain and mixed f64 sums.
TEST(JitRows, LayerNormInPlace) {
  KernelWriter w(Walk::kRows, 2);
  const int x = w.load(DType::f32), gain = w.load(DType::f32), scale = w.scalar(DType::f32), epsilon = w.scalar(DType::f32),
            offset = w.load(DType::f32, Step::kSplat);
  const int mean = w.op("mul", {w.reduce_row(x, DType::f32), scale});
  const int centred = w.op("sub", {x, mean});
  const int variance = w.op("mul", {w.reduce_row(w.op("mul", {centred, centred}), DType::f32), scale});
  const int inverse = w.op("rsqrt", {w.op("add", {variance, epsilon})});
  w.store(w.op("add", {w.op("mul", {w.op("mul", {centred, inverse}), gain}), offset}), DType::f32);
  w.store(inverse, DType::f32, Step::kSplat);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    const LoopCode code = compile_one(isa, kernel);
    EXPECT_EQ(code.scratch_slots, 0) << "cheap values are computed again";
    for (int64_t n : kLengths) {
      if (n == 0) continue;
      const int64_t rows = 7;
      Array data(DType::f32, rows * n), before(DType::f32, rows * n), g(DType::f32, n), off(DType::f32, rows),
          inv(DType::f32, rows);
      fill_random(data, 5);
      before = data;
      fill_random(g, 6);
      fill_random(off, 7);
      Call call(*kernel, {rows, n});
      call.bind_dense(0, data)
          .bind(1, g.data(), {0, 1})
          .bind(2, off.data(), {1, 0})
          .bind_dense(3, data)
          .bind(4, inv.data(), {1, 0});
      const float s = 1 / static_cast<float>(n);
      call.scalar(0, bits_of(s)).scalar(1, bits_of(1e-5f));
      call.run(code, kernel->walk);
      const StepMode mode;
      for (int64_t r = 0; r < rows; ++r) {
        auto at = [&](int64_t i) { return before.at<float>(r * n + i); };
        const float mean_of = contract_sum<float>(n, at) * s;
        const float var = contract_sum<float>(n, [&](int64_t i) { return (at(i) - mean_of) * (at(i) - mean_of); }) * s;
        const float rs = evaluate("rsqrt", {var + 1e-5f});
        ASSERT_TRUE(same(inv.at<float>(r), rs));
        for (int64_t i = 0; i < n; ++i)
          ASSERT_TRUE(same(data.at<float>(r * n + i), (at(i) - mean_of) * rs * g.at<float>(i) + off.at<float>(r)))
              << n << " at " << i;
      }
      ASSERT_TRUE(data.guards_whole() && inv.guards_whole());
    }
  }
}

TEST(JitRows, IntegerAndDoubleSums) {
  KernelWriter w(Walk::kRows, 2);
  const int i = w.load(DType::i32), x = w.load(DType::f32);
  w.store(w.reduce_row(i, DType::i32), DType::i32, Step::kSplat);
  w.store(w.reduce_row(i, DType::i32, true), DType::i32, Step::kSplat);
  const int wide = w.op("cast", {x}, DType::f64, {{"dtype", DType::f64}});
  const int total = w.reduce_row(w.op("mul", {wide, wide}, DType::f64), DType::f64);
  w.store(total, DType::f64, Step::kSplat);
  w.store(w.op("mul", {x, w.op("cast", {total}, DType::f32, {{"dtype", DType::f32}})}), DType::f32);
  const auto kernel = w.done();
  for (Isa isa : machine_isas())
    for (int64_t n : kLengths) {
      Array a(DType::i32, 5 * n), b(DType::f32, 5 * n), sum(DType::i32, 5), max(DType::i32, 5), total_out(DType::f64, 5),
          out(DType::f32, 5 * n);
      fill_random(a, 1, -1e6, 1e6);
      fill_random(b, 2);
      Call call(*kernel, {5, n});
      call.bind_dense(0, a)
          .bind_dense(1, b)
          .bind(2, sum.data(), {1, 0})
          .bind(3, max.data(), {1, 0})
          .bind(4, total_out.data(), {1, 0})
          .bind_dense(5, out);
      call.run(compile_one(isa, kernel), kernel->walk);
      for (int64_t r = 0; r < 5; ++r) {
        int32_t s = 0, m = std::numeric_limits<int32_t>::min();
        for (int64_t k = 0; k < n; ++k) s += a.at<int32_t>(r * n + k), m = std::max(m, a.at<int32_t>(r * n + k));
        EXPECT_EQ(sum.at<int32_t>(r), s);
        EXPECT_EQ(max.at<int32_t>(r), m);
        auto square = [&](int64_t k) {
          return static_cast<double>(b.at<float>(r * n + k)) * static_cast<double>(b.at<float>(r * n + k));
        };
        const double t = contract_sum<double>(n, square);
        EXPECT_EQ(total_out.at<double>(r), t);
        for (int64_t k = 0; k < n; ++k)
          ASSERT_TRUE(same(out.at<float>(r * n + k), b.at<float>(r * n + k) * static_cast<float>(t)));
      }
    }
}

// bf16 rows: read wide, summed in f32, rounded once where the value is bf16.
TEST(JitRows, Bf16) {
  KernelWriter w(Walk::kRows, 2);
  const int x = w.load(DType::bf16);
  const int total = w.reduce_row(x, DType::bf16);
  w.store(w.op("add", {x, total}, DType::bf16), DType::bf16);
  const auto kernel = w.done();
  auto rounded = ops::EvalScalarBuilder::rounded_to_bf16;
  for (Isa isa : machine_isas())
    for (int64_t n : kLengths) {
      Array a(DType::bf16, 7 * n), out(DType::bf16, 7 * n);
      fill_random(a, 9);
      Call(*kernel, {7, n}).bind_dense(0, a).bind_dense(1, out).run(compile_one(isa, kernel), kernel->walk);
      for (int64_t r = 0; r < 7; ++r) {
        auto at = [&](int64_t i) { return static_cast<float>(a.get(r * n + i)); };
        const float t = rounded(contract_sum<float>(n, at));
        for (int64_t i = 0; i < n; ++i)
          ASSERT_TRUE(same(static_cast<float>(out.get(r * n + i)), rounded(at(i) + t))) << n << " at " << i;
      }
      ASSERT_TRUE(out.guards_whole());
    }
}

// A body so long that it is compiled once, with a mask in every iteration: sums, scratch, narrow and wide stores.
TEST(JitRows, HeavyBodies) {
  KernelWriter w(Walk::kRows, 2);
  const int x = w.load(DType::bf16);
  int v = w.op("cast", {x}, DType::f32, {{"dtype", DType::f32}});
  for (int i = 0; i < 8; ++i) v = w.op("tanh", {v});
  const int total = w.reduce_row(v, DType::f32), top = w.reduce_row(v, DType::f32, true);
  int y = w.op("sub", {v, top});
  for (int i = 0; i < 8; ++i) y = w.op("tanh", {y});
  w.store(w.op("add", {y, total}), DType::f32);
  w.store(w.op("cast", {y}, DType::bf16, {{"dtype", DType::bf16}}), DType::bf16);
  w.store(w.op("lt", {y, v}, DType::boolean), DType::boolean);
  const auto kernel = w.done();
  for (Isa isa : machine_isas())
    for (int64_t n : {1, 15, 16, 17, 33, 64, 100}) {
      Array in(DType::bf16, 2 * n), sum_out(DType::f32, 2 * n), narrow(DType::bf16, 2 * n), mask(DType::boolean, 2 * n);
      fill_random(in, 4);
      Call(*kernel, {2, n})
          .bind_dense(0, in)
          .bind_dense(1, sum_out)
          .bind_dense(2, narrow)
          .bind_dense(3, mask)
          .run(compile_one(isa, kernel), kernel->walk);
      for (int64_t r = 0; r < 2; ++r) {
        std::vector<float> deep(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) {
          float d = static_cast<float>(in.get(r * n + i));
          for (int k = 0; k < 8; ++k) d = evaluate("tanh", {d});
          deep[static_cast<size_t>(i)] = d;
        }
        auto at = [&](int64_t i) { return deep[static_cast<size_t>(i)]; };
        const float sum = contract_sum<float>(n, at), max = contract_max(n, at);
        for (int64_t i = 0; i < n; ++i) {
          float d = at(i) - max;
          for (int k = 0; k < 8; ++k) d = evaluate("tanh", {d});
          ASSERT_TRUE(same(sum_out.at<float>(r * n + i), d + sum)) << n << " at " << i;
          ASSERT_EQ(static_cast<float>(narrow.get(r * n + i)), ops::EvalScalarBuilder::rounded_to_bf16(d));
          ASSERT_EQ(mask.get(r * n + i) != 0, d < at(i));
        }
      }
      ASSERT_TRUE(in.guards_whole() && sum_out.guards_whole() && narrow.guards_whole() && mask.guards_whole());
    }
}

TEST(JitRowBlocks, ColumnSumsWithARowSum) {
  KernelWriter w(Walk::kRowBlocks, 3);
  const int x = w.load(DType::f32), y = w.load(DType::f32);
  const int s = w.reduce_row(x, DType::f32);
  const int z = w.op("mul", {x, s});
  w.reduce_column(z, DType::f32);
  w.reduce_column(y, DType::f32, true);
  w.store(z, DType::f32);
  w.store(s, DType::f32, Step::kSplat);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    const LoopCode code = compile_one(isa, kernel);
    for (int64_t rows : {1, 2, 63, 64, 65, 150})
      for (int64_t n : {1, 3, 15, 16, 17, 33, 70}) {
        const int64_t batch = 3, blocks = (rows + kRowBlock - 1) / kRowBlock;
        Array a(DType::f32, batch * rows * n), b(DType::f32, batch * rows * n), sums(DType::f32, batch * blocks * n),
            maxima(DType::f32, batch * blocks * n), z_out(DType::f32, batch * rows * n), s_out(DType::f32, batch * rows);
        fill_random(a, 1);
        fill_random(b, 2, -2, 2, true);
        Call call(*kernel, {batch, rows, n});
        call.bind_dense(0, a)
            .bind_dense(1, b)
            .bind(2, sums.data(), {})
            .bind(3, maxima.data(), {})
            .bind_dense(4, z_out)
            .bind(5, s_out.data(), {rows, 1, 0});
        ASSERT_EQ(call.units(kernel->walk), batch * blocks);
        for (int64_t unit = 0; unit < batch * blocks; ++unit) call.run(code, unit, unit + 1, 0, 0, kernel->walk);
        const StepMode mode;
        for (int64_t o = 0; o < batch; ++o)
          for (int64_t k = 0; k < blocks; ++k)
            for (int64_t c = 0; c < n; ++c) {
              float sum = 0, max = -std::numeric_limits<float>::infinity();
              for (int64_t r = k * kRowBlock; r < std::min(rows, (k + 1) * kRowBlock); ++r) {
                const int64_t row = (o * rows + r) * n;
                const float s_row = contract_sum<float>(n, [&](int64_t i) { return a.at<float>(row + i); });
                ASSERT_TRUE(same(s_out.at<float>(o * rows + r), s_row));
                ASSERT_TRUE(same(z_out.at<float>(row + c), a.at<float>(row + c) * s_row));
                sum += a.at<float>(row + c) * s_row;
                const float pair[] = {max, b.at<float>(row + c)};
                max = contract_max(2, [&](int64_t i) { return pair[i]; });
              }
              ASSERT_TRUE(same(sums.at<float>((o * blocks + k) * n + c), sum)) << rows << "x" << n;
              ASSERT_TRUE(same(maxima.at<float>((o * blocks + k) * n + c), max)) << rows << "x" << n;
            }
        ASSERT_TRUE(sums.guards_whole() && maxima.guards_whole() && z_out.guards_whole() && s_out.guards_whole());
      }
  }
}

TEST(JitRowBlocks, SumOfMinusZerosIsPlusZero) {
  KernelWriter w(Walk::kRowBlocks, 2);
  w.reduce_column(w.load(DType::f32), DType::f32);
  const auto kernel = w.done();
  for (Isa isa : machine_isas()) {
    Array a(DType::f32, 20), out(DType::f32, 20);
    for (int64_t i = 0; i < 20; ++i) a.at<float>(i) = -0.f;
    Call(*kernel, {1, 20}).bind_dense(0, a).bind(1, out.data(), {}).run(compile_one(isa, kernel), kernel->walk);
    for (int64_t i = 0; i < 20; ++i) EXPECT_FALSE(std::signbit(out.at<float>(i)));
  }
}

// The global norm: squares in f64 by blocks of 4096, then the partial sums.
TEST(JitFlatBlocks, NormInTwoPhases) {
  KernelWriter w(Walk::kFlatBlocks, 1);
  const int x = w.load(DType::f32);
  const int wide = w.op("cast", {x}, DType::f64, {{"dtype", DType::f64}});
  w.store(w.reduce_row(w.op("mul", {wide, wide}, DType::f64), DType::f64), DType::f64, Step::kSplat);
  w.store(w.reduce_row(x, DType::f32), DType::f32, Step::kSplat);
  w.store(w.op("neg", {x}), DType::f32);
  const auto kernel = w.done();
  KernelWriter w2(Walk::kElements, 1);
  w2.store(w2.fold(DType::f64, Step::kUnit), DType::f64);
  const auto second = w2.done();
  for (Isa isa : machine_isas())
    for (int64_t n : {int64_t{1}, int64_t{15}, int64_t{4095}, int64_t{4096}, int64_t{4097}, int64_t{20000}}) {
      const int64_t units = (n + kFlatBlock - 1) / kFlatBlock;
      Array a(DType::f32, n), norm(DType::f64, units), sum(DType::f32, units), out(DType::f32, n), total(DType::f64, 1);
      fill_random(a, 3);
      Call(*kernel, {n})
          .bind_dense(0, a)
          .bind(1, norm.data(), {0})
          .bind(2, sum.data(), {0})
          .bind_dense(3, out)
          .run(compile_one(isa, kernel), kernel->walk);
      Call(*second, {1})
          .bind(0, norm.data(), {1})
          .bind(1, total.data(), {1})
          .fold(0, units, 1)
          .run(compile_one(isa, second), second->walk);
      double expected = 0;
      for (int64_t u = 0; u < units; ++u) {
        const int64_t begin = u * kFlatBlock, count = std::min(n - begin, kFlatBlock);
        auto square = [&](int64_t i) {
          return static_cast<double>(a.at<float>(begin + i)) * static_cast<double>(a.at<float>(begin + i));
        };
        const double s = contract_sum<double>(count, square);
        EXPECT_EQ(norm.at<double>(u), s);
        EXPECT_EQ(sum.at<float>(u), contract_sum<float>(count, [&](int64_t i) { return a.at<float>(begin + i); }));
        expected = u == 0 ? s : expected + s;
      }
      EXPECT_EQ(total.at<double>(0), expected);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.at<float>(i), -a.at<float>(i));
      ASSERT_TRUE(out.guards_whole() && norm.guards_whole() && sum.guards_whole());
    }
}

TEST(JitElements, FoldsOfColumnBlocks) {
  for (const bool is_max : {false, true}) {
    KernelWriter w(Walk::kElements, 2);
    const int f = w.fold(DType::f32, Step::kUnit, is_max);
    w.store(w.op("add", {f, w.load(DType::f32)}), DType::f32);
    const auto kernel = w.done();
    for (Isa isa : machine_isas())
      for (int64_t count : {1, 2, 5})
        for (int64_t n = 0; n < 150; n += 7) {
          const int64_t outer = 3;
          Array partial(DType::f32, outer * count * n), bias(DType::f32, n), out(DType::f32, outer * n);
          fill_random(partial, 1, -2, 2, is_max);
          fill_random(bias, 2);
          Call call(*kernel, {outer, n});
          call.bind(0, partial.data(), {count * n, 1}).fold(0, count, n).bind(1, bias.data(), {0, 1}).bind_dense(2, out);
          call.run(compile_one(isa, kernel), kernel->walk);
          for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < n; ++i) {
              auto at = [&](int64_t k) { return partial.at<float>((o * count + k) * n + i); };
              float expected = at(0);
              for (int64_t k = 1; k < count; ++k) expected += at(k);
              if (is_max) expected = contract_max(count, at);
              ASSERT_TRUE(same(out.at<float>(o * n + i), expected + bias.at<float>(i))) << count << " " << n;
            }
          ASSERT_TRUE(out.guards_whole());
        }
  }
}

}  // namespace
}  // namespace ws::test
