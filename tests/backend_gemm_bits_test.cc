// GEMM's bits: equal to the numerics contract spelled out, for every ISA, thread count, layout and path.
#include "backend_gemm_util.h"

namespace ws::cpu::test {
namespace {

struct Size {
  int64_t batch, m, n, k;
};
std::ostream& operator<<(std::ostream& out, const Size& s) {
  return out << s.batch << " x [" << s.m << "," << s.k << "][" << s.k << "," << s.n << "]";
}

void expect_bits(const Matrix& a, const Matrix& b, const Size& s, const std::vector<float>& expected,
                 const std::vector<int>& thread_counts, const std::vector<GemmIsa>& isas) {
  const Gemm g = product_of(a, b, s.batch, s.m, s.n, s.k);
  for (GemmIsa isa : isas) {
    for (int threads : thread_counts) {
      const std::vector<float> got = run_checked(g, isa, threads, threads % 2 ? 0 : 3);
      const int64_t at = first_difference(got.data(), expected.data(), static_cast<int64_t>(expected.size()));
      ASSERT_EQ(at, -1) << s << " " << name_of(isa) << " threads " << threads << ": " << got[static_cast<size_t>(at)] << " for "
                        << expected[static_cast<size_t>(at)];
    }
  }
}

TEST(GemmBits, SmallShapesAreTheContract) {
  std::mt19937 random(1);
  const std::vector<int64_t> sides = {1, 2, 3, 5, 8, 14, 15, 17, 28, 33, 64};
  for (int64_t m : sides)
    for (int64_t n : sides)
      for (int64_t k : {1, 2, 7, 16, 31, 64}) {
        const Matrix a(1, m, k, Layout::kRowMajor, random), b(1, k, n, Layout::kRowMajor, random);
        expect_bits(a, b, {1, m, n, k}, contract_product(a, b, 1, m, n, k), {1}, available_isas());
        if (HasFatalFailure()) return;
      }
}

TEST(GemmBits, EveryLayoutIsTheContract) {
  std::mt19937 random(2);
  for (const Size& s : std::vector<Size>{
           {1, 4, 16, 8}, {1, 37, 45, 29}, {2, 9, 35, 515}, {1, 1, 70, 40}, {1, 70, 1, 40}, {1, 190, 3, 513}, {3, 2, 2, 2}})
    for (Layout la : layouts())
      for (Layout lb : layouts()) {
        const Matrix a(s.batch, s.m, s.k, la, random), b(s.batch, s.k, s.n, lb, random);
        expect_bits(a, b, s, contract_product(a, b, s.batch, s.m, s.n, s.k), {1, 2}, available_isas());
        if (HasFatalFailure()) return;
      }
}

TEST(GemmBits, BlocksOf512AreTheContract) {
  std::mt19937 random(3);
  for (int64_t k : {1, 511, 512, 513, 1023, 1024, 1025, 1365, 8192, 100000})
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 28}, {28, 1}, {4, 28}, {17, 33}}) {
      if (k > 10000 && m * n > 28) continue;
      for (Layout la : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a(1, m, k, la, random), b(1, k, n, Layout::kRowMajor, random);
        expect_bits(a, b, {1, m, n, k}, contract_product(a, b, 1, m, n, k), {1, 3}, available_isas());
        if (HasFatalFailure()) return;
      }
    }
}

TEST(GemmBits, LargeShapesEqualPortableAtAnyThreadCount) {
  std::mt19937 random(4);
  std::vector<GemmIsa> fast = available_isas();
  fast.erase(fast.begin());
  const std::vector<Size> sizes = {{1, 400, 100, 1100}, {1, 257, 1365, 70}, {1, 1000, 28, 513}, {1, 1365, 40, 600},
                                   {1, 30, 1365, 1100}, {1, 4, 1365, 2000}, {1, 1, 3000, 700},  {1, 3000, 1, 700},
                                   {1, 3000, 5, 513},   {40, 65, 70, 64},   {3, 300, 70, 600},  {1, 500, 200, 128},
                                   {1, 70, 600, 4200}};
  for (const Size& s : sizes)
    for (Layout la : {Layout::kRowMajor, Layout::kTransposed})
      for (Layout lb : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a(s.batch, s.m, s.k, la, random), b(s.batch, s.k, s.n, lb, random, s.batch == 3);
        const std::vector<float> expected = run_checked(product_of(a, b, s.batch, s.m, s.n, s.k), GemmIsa::portable, 2);
        // The slow path is itself held to the contract at a few elements.
        for (int64_t t = 0; t < 20; ++t) {
          const int64_t at = static_cast<int64_t>(random()) % static_cast<int64_t>(expected.size());
          const int64_t item = at / (s.m * s.n), i = at / s.n % s.m, j = at % s.n;
          const float element = contract_element(
              s.k, [&](int64_t p) { return a.at(item, i, p); }, [&](int64_t p) { return b.at(item, p, j); });
          ASSERT_EQ(first_difference(&element, &expected[static_cast<size_t>(at)], 1), -1) << s << " portable at " << at;
        }
        expect_bits(a, b, s, expected, {1, 2, 3, 4}, fast);
        if (HasFatalFailure()) return;
      }
}

/// Elements taken at random are the contract's.
void expect_contract_at_some(const Matrix& a, const Matrix& b, const Size& s, const std::vector<float>& got, int count,
                             std::mt19937& random) {
  for (int t = 0; t < count; ++t) {
    const int64_t i = static_cast<int64_t>(random()) % s.m, j = static_cast<int64_t>(random()) % s.n;
    const float element = contract_element(
        s.k, [&](int64_t p) { return a.at(0, i, p); }, [&](int64_t p) { return b.at(0, p, j); });
    ASSERT_EQ(first_difference(&element, &got[static_cast<size_t>(i * s.n + j)], 1), -1) << s << " at " << i << "," << j;
  }
}

TEST(GemmBits, GroupsOfColumnsAndRows) {
  // Caches so small that little is packed at a time: several groups of columns, and of rows where sums wait for blocks of k; and that a
  // few rows find their columns far away.
  const AssumedCacheSizes tiny({8 << 10, 64 << 10, 256 << 10});
  std::mt19937 random(16);
  for (const Size& s : std::vector<Size>{{1, 300, 120, 700},
                                         {1, 700, 40, 2100},
                                         {1, 70, 300, 1700},
                                         {1, 300, 33, 512},
                                         {1, 260, 300, 1100},
                                         {1, 200, 300, 40},
                                         {1, 10, 700, 1100},
                                         {1, 5, 130, 900}})
    for (Layout la : {Layout::kRowMajor, Layout::kTransposed})
      for (Layout lb : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a(1, s.m, s.k, la, random), b(1, s.k, s.n, lb, random);
        const std::vector<float> expected = run_checked(product_of(a, b, 1, s.m, s.n, s.k), available_isas().back(), 1);
        expect_contract_at_some(a, b, s, expected, 200, random);
        for (GemmIsa isa : available_isas())
          expect_bits(a, b, s, expected, isa == GemmIsa::portable ? std::vector{2} : std::vector{2, 3}, {isa});
        if (HasFatalFailure()) return;
      }
}

TEST(GemmBits, ManyKBlocksOfManyColumns) {
  std::mt19937 random(5);
  const Size s{1, 200, 4200, 1100};
  const Matrix a(1, s.m, s.k, Layout::kTransposed, random), b(1, s.k, s.n, Layout::kRowMajor, random);
  const std::vector<float> expected = run_checked(product_of(a, b, 1, s.m, s.n, s.k), available_isas().back(), 1);
  expect_contract_at_some(a, b, s, expected, 200, random);
  expect_bits(a, b, s, expected, {2, 4}, {available_isas().back()});
}

TEST(GemmBits, SmallResultsOfADeepK) {
  std::mt19937 random(17);
  const auto all_equal_the_contract = [&](const Size& s, const std::vector<int>& threads) {
    for (Layout la : {Layout::kRowMajor, Layout::kTransposed})
      for (Layout lb : layouts()) {
        const Matrix a(1, s.m, s.k, la, random), b(1, s.k, s.n, lb, random);
        expect_bits(a, b, s, contract_product(a, b, 1, s.m, s.n, s.k), threads, available_isas());
        if (testing::Test::HasFatalFailure()) return;
      }
  };
  for (const Size& s : std::vector<Size>{{1, 1, 1, 8200},
                                         {1, 1, 1, 4096},
                                         {1, 4, 1, 6000},
                                         {1, 1, 20, 9000},
                                         {1, 3, 9, 4608},
                                         {1, 6, 16, 5121},
                                         {1, 8, 8, 5632},
                                         {1, 17, 33, 8193},
                                         {1, 64, 70, 4700}})
    all_equal_the_contract(s, {1, 2, 4, 5});
  const AssumedCacheSizes tiny({8 << 10, 64 << 10, 256 << 10});  // for the sums of a few blocks at a time
  for (const Size& s : std::vector<Size>{{1, 2, 3, 30000}, {1, 28, 100, 8000}}) all_equal_the_contract(s, {1, 3});
}

TEST(GemmBits, NothingToSumIsPlusZero) {
  std::mt19937 random(6);
  for (int64_t m : {1, 40, 300, 1100})
    for (int64_t n : {1, 70, 300})
      for (GemmIsa isa : available_isas())
        for (int threads : {1, 2}) {
          const Matrix a(2, m, 0, Layout::kRowMajor, random), b(2, 0, n, Layout::kRowMajor, random);
          const std::vector<float> got = run_checked(product_of(a, b, 2, m, n, 0), isa, threads);
          const std::vector<float> zero(got.size(), 0.0f);
          ASSERT_EQ(first_difference(got.data(), zero.data(), static_cast<int64_t>(got.size())), -1) << m << "," << n;
        }
}

TEST(GemmBits, EmptyProductsTouchNothing) {
  std::mt19937 random(7);
  const Matrix a(1, 8, 8, Layout::kRowMajor, random);
  for (const Size& s : std::vector<Size>{{0, 8, 8, 8}, {1, 0, 8, 8}, {1, 8, 0, 8}})
    for (GemmIsa isa : available_isas()) EXPECT_TRUE(run_checked(product_of(a, a, s.batch, s.m, s.n, s.k), isa, 2).empty());
}

TEST(GemmBits, SignsOfZeroFollowTheChainFromPlusZero) {
  // +0 + (-0) is +0, so a product of -0 alone gives +0: FMA with accumulator +0.
  for (GemmIsa isa : available_isas()) {
    std::vector<float> a(64, -0.0f), b(64, 1.0f);
    Gemm g;
    g.m = g.n = 8, g.k = 8;
    g.a = {a.data(), 8, 1, 0}, g.b = {b.data(), 8, 1, 0};
    for (float x : run_checked(g, isa, 1)) EXPECT_EQ(std::bit_cast<uint32_t>(x), 0u);
  }
}

TEST(GemmBits, NonFiniteAndDenormalValuesPropagate) {
  std::mt19937 random(8);
  const float inf = INFINITY, nan = NAN, denormal = 1e-41f;
  for (const Size& s :
       std::vector<Size>{{1, 4, 16, 8}, {1, 40, 50, 600}, {1, 200, 3, 600}, {1, 3, 200, 600}, {1, 200, 100, 600}}) {
    Matrix a(1, s.m, s.k, Layout::kRowMajor, random), b(1, s.k, s.n, Layout::kRowMajor, random);
    for (int64_t i = 0; i < s.m; ++i) {
      float* row = a.data.data() + i * a.operand.row_stride;
      if (i % 4 == 0) row[i % s.k] = nan;
      if (i % 4 == 1) row[i % s.k] = inf;
      if (i % 4 == 2)
        for (int64_t p = 0; p < s.k; ++p) row[p] = denormal * static_cast<float>(p % 5);
    }
    b.data[0] = -inf;
    for (int64_t p = 0; p < s.k; ++p)
      b.data[static_cast<size_t>(p * b.operand.row_stride + 1)] = denormal * static_cast<float>(p % 3);
    const std::vector<float> expected = contract_product(a, b, 1, s.m, s.n, s.k);
    ASSERT_TRUE(std::isnan(expected[0]));
    expect_bits(a, b, s, expected, {1, 2}, available_isas());
    if (HasFatalFailure()) return;
  }
}

TEST(GemmBits, FewerThreadsThanPromisedFitTheWorkspace) {
  std::mt19937 random(9);
  for (const Size& s : std::vector<Size>{{1, 300, 200, 700}, {1, 20, 30, 6000}, {1, 2, 3, 6000}}) {
    const Matrix a(1, s.m, s.k, Layout::kRowMajor, random), b(1, s.k, s.n, Layout::kRowMajor, random);
    Gemm g = product_of(a, b, 1, s.m, s.n, s.k);
    const std::vector<float> expected = run_checked(g, available_isas().back(), 1);
    std::vector<float> c(expected.size());
    g.c = c.data(), g.c_row_stride = s.n;
    Guarded workspace(gemm_workspace_bytes(g, available_isas().back(), 4));
    SerialWorkers alone;
    gemm(g, available_isas().back(), workspace.data(), alone);
    EXPECT_EQ(first_difference(c.data(), expected.data(), static_cast<int64_t>(c.size())), -1);
    EXPECT_TRUE(workspace.intact());
  }
}

}  // namespace
}  // namespace ws::cpu::test
