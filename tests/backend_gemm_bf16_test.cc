// Products of bf16: the bits of the fp32 product of the same values, on every ISA, layout, path and thread count, and those rounded
// once where the result is bf16. In the step's floating-point mode, as kernels run: dot-product instructions know no other.
#include "backend_gemm_util.h"
#include "support/float_mode.h"

namespace ws::cpu::test {
namespace {

struct Size {
  int64_t batch, m, n, k;
};
std::ostream& operator<<(std::ostream& out, const Size& s) {
  return out << s.batch << " x [" << s.m << "," << s.k << "][" << s.k << "," << s.n << "]";
}

/// The mode for all threads of the test: they inherit it from the one that starts them.
class GemmBf16 : public testing::Test {
  FlushDenormals mode_;
};

Matrix bf16_matrix(int64_t batch, int64_t rows, int64_t cols, Layout layout, std::mt19937& random, bool shared_batch = false) {
  return Matrix(batch, rows, cols, layout, random, shared_batch, DType::bf16);
}

void expect_bits(const Matrix& a, const Matrix& b, const Size& s, std::vector<float> expected,
                 const std::vector<int>& thread_counts, const std::vector<GemmIsa>& isas = available_isas()) {
  Gemm g = product_of(a, b, s.batch, s.m, s.n, s.k);
  for (DType result : {DType::f32, DType::bf16}) {
    g.result_dtype = result;
    if (result == DType::bf16)
      for (float& x : expected) x = widen(narrow(x));
    for (GemmIsa isa : isas) {
      for (int threads : thread_counts) {
        if (is_modelled(isa) && threads != thread_counts.back()) continue;
        const std::vector<float> got = run_checked(g, isa, threads, threads % 2 ? 0 : 3);
        const int64_t at = first_difference(got.data(), expected.data(), static_cast<int64_t>(expected.size()));
        ASSERT_EQ(at, -1) << s << " to " << ws::name_of(result) << ", " << name_of(isa) << ", threads " << threads << ": "
                          << got[static_cast<size_t>(at)] << " for " << expected[static_cast<size_t>(at)];
      }
    }
  }
}

TEST_F(GemmBf16, SmallShapes) {
  std::mt19937 random(1);
  const std::vector<int64_t> sides = {1, 2, 5, 14, 17, 33, 64};
  for (int64_t m : sides)
    for (int64_t n : sides)
      for (int64_t k : {1, 2, 7, 16, 31, 64}) {
        const Matrix a = bf16_matrix(1, m, k, Layout::kRowMajor, random), b = bf16_matrix(1, k, n, Layout::kRowMajor, random);
        expect_bits(a, b, {1, m, n, k}, contract_product(a, b, 1, m, n, k), {1});
        if (HasFatalFailure()) return;
      }
}

TEST_F(GemmBf16, EveryLayout) {
  std::mt19937 random(2);
  for (const Size& s : std::vector<Size>{{1, 4, 16, 8},
                                         {1, 37, 45, 29},
                                         {2, 9, 35, 515},
                                         {1, 1, 70, 40},
                                         {1, 70, 1, 40},
                                         {1, 190, 3, 513},
                                         {3, 2, 2, 2},
                                         {1, 3, 400, 301},
                                         {1, 61, 130, 515}})
    for (Layout la : layouts())
      for (Layout lb : layouts()) {
        const Matrix a = bf16_matrix(s.batch, s.m, s.k, la, random), b = bf16_matrix(s.batch, s.k, s.n, lb, random);
        expect_bits(a, b, s, contract_product(a, b, s.batch, s.m, s.n, s.k), {1, 2});
        if (HasFatalFailure()) return;
      }
}

TEST_F(GemmBf16, BlocksOf512) {
  std::mt19937 random(3);
  for (int64_t k : {1, 511, 512, 513, 1025, 1365, 8193, 100000})
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 28}, {28, 1}, {4, 28}, {17, 33}, {30, 70}}) {
      if (k > 10000 && m * n > 28) continue;
      for (Layout la : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a = bf16_matrix(1, m, k, la, random), b = bf16_matrix(1, k, n, Layout::kRowMajor, random);
        expect_bits(a, b, {1, m, n, k}, contract_product(a, b, 1, m, n, k), {1, 3});
        if (HasFatalFailure()) return;
      }
    }
}

TEST_F(GemmBf16, LargeShapesEqualFp32AtAnyThreadCount) {
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
        const Matrix a = bf16_matrix(s.batch, s.m, s.k, la, random), b = bf16_matrix(s.batch, s.k, s.n, lb, random, s.batch == 3);
        Gemm as_fp32 = product_of(a, b, s.batch, s.m, s.n, s.k);
        as_fp32.operand_dtype = DType::f32;
        as_fp32.a.data = a.data.data(), as_fp32.b.data = b.data.data();
        expect_bits(a, b, s, run_checked(as_fp32, fast.back(), 2), {1, 2, 3, 4}, fast);
        if (HasFatalFailure()) return;
      }
}

TEST_F(GemmBf16, NothingToSumIsPlusZero) {
  std::mt19937 random(6);
  for (int64_t m : {1, 40, 300})
    for (int64_t n : {1, 70, 300}) {
      const Matrix a = bf16_matrix(2, m, 0, Layout::kRowMajor, random), b = bf16_matrix(2, 0, n, Layout::kRowMajor, random);
      expect_bits(a, b, {2, m, n, 0}, std::vector<float>(static_cast<size_t>(2 * m * n)), {1, 2});
    }
}

TEST_F(GemmBf16, NonFiniteDenormalAndTinyValues) {
  std::mt19937 random(8);
  const float inf = INFINITY, nan = NAN, denormal = std::bit_cast<float>(0x00110000u), tiny = 0x1.8p-70f;
  for (const Size& s :
       std::vector<Size>{{1, 4, 16, 8}, {1, 40, 50, 600}, {1, 200, 3, 600}, {1, 3, 200, 600}, {1, 200, 100, 601}}) {
    Matrix a(1, s.m, s.k, Layout::kRowMajor, random, false, DType::bf16),
        b(1, s.k, s.n, Layout::kRowMajor, random, false, DType::bf16);
    for (int64_t i = 0; i < s.m; ++i) {
      float* row = a.data.data() + i * a.operand.row_stride;
      if (i % 5 == 0) row[i % s.k] = nan;
      if (i % 5 == 1) row[i % s.k] = inf;
      if (i % 5 == 2)
        for (int64_t p = 0; p < s.k; ++p) row[p] = denormal * static_cast<float>(p % 5);
      if (i % 5 == 3)
        for (int64_t p = 0; p < s.k; ++p) row[p] *= tiny;  // sums around the smallest normal number
    }
    b.data[0] = -inf;
    for (int64_t p = 0; p < s.k; ++p) b.data[static_cast<size_t>(p * b.operand.row_stride + 1)] *= 0x1p-56f;
    a.update(), b.update();
    const std::vector<float> expected = contract_product(a, b, 1, s.m, s.n, s.k);
    ASSERT_TRUE(std::isnan(expected[0]));
    expect_bits(a, b, s, expected, {1, 2});
    if (HasFatalFailure()) return;
  }
}

// Sums of products that underflow are -0, whatever fills the last word of an odd depth.
TEST_F(GemmBf16, SumsOfMinusZero) {
  std::mt19937 random(9);
  for (const Size& s :
       std::vector<Size>{{1, 4, 16, 7}, {1, 40, 50, 601}, {1, 200, 3, 601}, {1, 3, 200, 601}, {2, 200, 100, 1023}})
    for (Layout la : layouts())
      for (Layout lb : layouts()) {
        Matrix a = bf16_matrix(s.batch, s.m, s.k, la, random), b = bf16_matrix(s.batch, s.k, s.n, lb, random);
        for (float& x : a.data) x = 0x1p-70f;
        for (float& x : b.data) x = -0x1p-70f;
        a.update(), b.update();
        const std::vector<float> expected = contract_product(a, b, s.batch, s.m, s.n, s.k);
        ASSERT_TRUE(expected[0] == 0 && std::signbit(expected[0]));
        expect_bits(a, b, s, expected, {1, 2});
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace ws::cpu::test
