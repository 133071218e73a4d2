// gemm_chain: a chain cut into pieces gives the bits of one chain, whatever the layout.
#include "backend/cpu/gemm/micro.h"
#include "backend_gemm_util.h"

namespace ws::cpu::test {
namespace {

TEST(GemmChain, PiecesEqualOneChain) {
  std::mt19937 random(21);
  for (GemmIsa isa : available_isas())
    for (int64_t m : {1, 3, 14, 29, 64, 128})
      for (int64_t n : {1, 8, 33, 64, 96})
        for (Layout la : layouts())
          for (Layout lb : {Layout::kRowMajor, Layout::kTransposed, Layout::kBothStrided}) {
            const int64_t k = 96, ldc = n + 2;
            const Matrix a(1, m, k, la, random), b(1, k, n, lb, random);
            Guarded c(m * ldc * 4), scratch(gemm_chain_scratch_bytes(m, n, k));
            std::vector<float> start(static_cast<size_t>(m * ldc), 3.5f);
            std::copy(start.begin(), start.end(), c.floats());
            for (auto [k0, k1] : std::vector<std::pair<int64_t, int64_t>>{{0, 40}, {40, 41}, {41, 96}})
              gemm_chain(isa, m, n, k1 - k0, a.data.data() + k0 * a.operand.col_stride, a.operand.row_stride,
                         a.operand.col_stride, b.data.data() + k0 * b.operand.row_stride, b.operand.row_stride,
                         b.operand.col_stride, c.floats(), ldc, k0 == 0, scratch.data());
            const std::vector<float> expected = contract_product(a, b, 1, m, n, k);
            for (int64_t i = 0; i < m; ++i) {
              ASSERT_EQ(first_difference(c.floats() + i * ldc, expected.data() + i * n, n), -1)
                  << name_of(isa) << " " << m << "," << n << " row " << i;
              for (int64_t j = n; j < ldc; ++j) ASSERT_EQ(c.floats()[i * ldc + j], 3.5f);
            }
            ASSERT_TRUE(c.intact() && scratch.intact()) << name_of(isa) << " " << m << "," << n;
          }
}

TEST(GemmChain, StartsFromWhatCHolds) {
  std::mt19937 random(22);
  for (GemmIsa isa : available_isas()) {
    const int64_t m = 20, n = 40, k = 512;
    const Matrix a(1, m, k, Layout::kRowMajor, random), b(1, k, n, Layout::kTransposed, random);
    Guarded c(m * n * 4), scratch(gemm_chain_scratch_bytes(m, n, k));
    std::vector<float> start(static_cast<size_t>(m * n));
    std::normal_distribution<float> normal;
    for (float& x : start) x = normal(random);
    std::copy(start.begin(), start.end(), c.floats());
    gemm_chain(isa, m, n, k, a.data.data(), a.operand.row_stride, a.operand.col_stride, b.data.data(), b.operand.row_stride,
               b.operand.col_stride, c.floats(), n, false, scratch.data());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float chain = start[static_cast<size_t>(i * n + j)];
        for (int64_t p = 0; p < k; ++p) chain = std::fma(a.at(0, i, p), b.at(0, p, j), chain);
        ASSERT_EQ(first_difference(&chain, c.floats() + i * n + j, 1), -1) << name_of(isa) << " " << i << "," << j;
      }
  }
}

}  // namespace
}  // namespace ws::cpu::test
