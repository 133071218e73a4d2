// fp32 operands multiplied in bf16 parts (matmul_precision): the bits of the bf16 product of the parts laid out side by side, on every
// ISA, layout and thread count; and how far from exact that is.
#include <functional>

#include "backend/cpu/gemm/parts.h"
#include "backend_gemm_util.h"
#include "support/float_mode.h"

namespace ws::cpu::test {
namespace {

struct Size {
  int64_t batch, m, n, k;
};

class GemmParts : public testing::Test {
  FlushDenormals mode_;
};

float low_of(float x) { return widen(narrow(x - widen(narrow(x)))); }

/// [hi, hi, lo] of an a, [hi; lo; hi] of a b, dense, or hi alone.
Matrix parts_of(const Matrix& x, const Size& s, bool is_b, int parts) {
  std::mt19937 unused;
  const int64_t times = parts == 2 ? 3 : 1, rows = is_b ? times * s.k : s.m, cols = is_b ? s.n : times * s.k;
  Matrix out(s.batch, rows, cols, Layout::kRowMajor, unused, false, DType::bf16);
  for (int64_t t = 0; t < s.batch; ++t)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        const int64_t third = (is_b ? i : j) / std::max<int64_t>(s.k, 1);
        const float value = is_b ? x.at(t, i % s.k, j) : x.at(t, i, j % s.k);
        out.data[static_cast<size_t>(t * out.operand.batch_stride + i * out.operand.row_stride + j)] =
            third == (is_b ? 1 : 2) ? low_of(value) : value;
      }
  out.update();
  return out;
}

std::vector<float> in_parts(const Matrix& a, const Matrix& b, const Size& s, int parts, GemmIsa isa, int threads) {
  SplitOperands operands;
  return run_checked(split_gemm(product_of(a, b, s.batch, s.m, s.n, s.k), parts, isa, operands), isa, threads,
                     threads % 2 ? 0 : 3);
}

TEST_F(GemmParts, AreTheProductOfPartsSideBySide) {
  std::mt19937 random(1);
  std::vector<GemmIsa> isas = available_isas();
  isas.push_back(GemmIsa::amx_model);
  for (const Size& s : std::vector<Size>{{1, 1, 1, 1},
                                         {1, 3, 5, 7},
                                         {2, 9, 35, 515},
                                         {1, 37, 45, 29},
                                         {1, 190, 3, 513},
                                         {1, 2, 70, 300},
                                         {1, 4, 4, 0},
                                         {3, 2, 2, 2},
                                         {1, 70, 65, 171}})
    for (Layout la : {Layout::kRowMajor, Layout::kTransposed, Layout::kBothStrided})
      for (Layout lb : {Layout::kRowMajor, Layout::kTransposed, Layout::kColBroadcast})
        for (int parts : {1, 2}) {
          const Matrix a(s.batch, s.m, s.k, la, random), b(s.batch, s.k, s.n, lb, random);
          const Matrix deep_a = parts_of(a, s, false, parts), deep_b = parts_of(b, s, true, parts);
          const Gemm deep = product_of(deep_a, deep_b, s.batch, s.m, s.n, deep_a.cols);
          for (GemmIsa isa : isas) {
            const std::vector<float> expected = run_checked(deep, isa, 1);
            for (int threads : {1, 2}) {
              const std::vector<float> got = in_parts(a, b, s, parts, isa, threads);
              const int64_t at = first_difference(got.data(), expected.data(), static_cast<int64_t>(expected.size()));
              ASSERT_EQ(at, -1) << s.m << " " << s.n << " " << s.k << ", " << parts << " parts, " << name_of(isa);
            }
          }
        }
}

/// Root of the mean square of the error, over that of the result.
double relative_error(const Size& s, const std::function<std::vector<float>(const Matrix&, const Matrix&)>& product) {
  std::mt19937 random(2);
  const Matrix a(1, s.m, s.k, Layout::kRowMajor, random), b(1, s.k, s.n, Layout::kRowMajor, random);
  const std::vector<float> got = product(a, b);
  double error = 0, size = 0;
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double exact = 0;
      for (int64_t p = 0; p < s.k; ++p) exact += static_cast<double>(a.at(0, i, p)) * static_cast<double>(b.at(0, p, j));
      const double difference = static_cast<double>(got[static_cast<size_t>(i * s.n + j)]) - exact;
      error += difference * difference, size += exact * exact;
    }
  return std::sqrt(error / size);
}

TEST_F(GemmParts, ErrorsAgainstDouble) {
  const GemmIsa isa = available_isas().back();
  for (const Size& s : std::vector<Size>{{1, 40, 50, 512}, {1, 40, 50, 1365}, {1, 20, 30, 8192}}) {
    const auto of = [&](int parts) {
      return relative_error(s, [&](const Matrix& a, const Matrix& b) { return in_parts(a, b, s, parts, isa, 1); });
    };
    const double high = of(2), bf16 = of(1);
    const double fp32 = relative_error(
        s, [&](const Matrix& a, const Matrix& b) { return run_checked(product_of(a, b, 1, s.m, s.n, s.k), isa, 1); });
    EXPECT_LT(high, 6e-6) << s.k;
    EXPECT_GT(high, fp32) << s.k;  // else the parts are not what was multiplied
    EXPECT_LT(bf16, 4e-3) << s.k;
    EXPECT_GT(bf16, 1e-3) << s.k;
  }
}

}  // namespace
}  // namespace ws::cpu::test
