// The holes: pack holes feed the operands, store holes see each finished element exactly once, and neither changes a bit.
#include "backend_gemm_util.h"

namespace ws::cpu::test {
namespace {

struct Size {
  int64_t batch, m, n, k;
};
const std::vector<Size>& sizes() {
  static const std::vector<Size> all = {
      {1, 4, 16, 8},      {5, 3, 7, 9},        {1, 1, 300, 700},     {1, 300, 1, 700},   {1, 300, 5, 1100}, {1, 64, 200, 600},
      {1, 400, 300, 513}, {1, 200, 100, 2100}, {30, 65, 70, 64},     {2, 400, 130, 600}, {1, 28, 28, 28},   {1, 300, 40, 0},
      {3, 700, 2, 20},    {1, 500, 40, 700},   {1, 200, 1100, 4200}, {1, 20, 36, 6200},  {1, 2, 3, 5000}};
  return all;
}

/// Copies tiles to C and counts how often each element came.
struct Collect {
  int64_t m, n;
  int threads;
  std::vector<float> c;
  std::vector<std::atomic<int>> seen;
  std::atomic<bool> fits{true};
  Collect(const Size& s, int num_threads)
      : m(s.m), n(s.n), threads(num_threads), c(static_cast<size_t>(s.batch * s.m * s.n)),
        seen(static_cast<size_t>(s.batch * s.m * s.n)) {}
  static void hole(void* context, float* tile, int64_t ld, int64_t batch, int64_t m0, int64_t n0, int64_t mc, int64_t nc,
                   int worker) {
    auto& self = *static_cast<Collect*>(context);
    if (worker < 0 || worker >= self.threads || m0 < 0 || n0 < 0 || m0 + mc > self.m || n0 + nc > self.n || (nc > 1 && ld < nc)) {
      self.fits = false;
      return;
    }
    for (int64_t i = 0; i < mc; ++i)
      for (int64_t j = 0; j < nc; ++j) {
        const auto at = static_cast<size_t>((batch * self.m + m0 + i) * self.n + n0 + j);
        self.c[at] = tile[i * ld + j];
        ++self.seen[at];
        tile[i * ld + j] = NAN;  // the tile is the hole's to overwrite
      }
  }
};

/// Gives an operand's elements, and refuses blocks outside it.
struct Feed {
  const Matrix* matrix;
  int64_t batch;
  int threads;
  std::atomic<bool> fits{true};
  static void hole(void* context, void* dst, int64_t ld, int64_t batch, int64_t row0, int64_t col0, int64_t rows, int64_t cols,
                   int worker) {
    auto& self = *static_cast<Feed*>(context);
    if (worker < 0 || worker >= self.threads || batch < 0 || batch >= self.batch || row0 < 0 || col0 < 0 ||
        row0 + rows > self.matrix->rows || col0 + cols > self.matrix->cols || ld < cols) {
      self.fits = false;
      return;
    }
    const bool is_bf16 = self.matrix->dtype == DType::bf16;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        const float x = self.matrix->at(batch, row0 + i, col0 + j);
        if (is_bf16)
          static_cast<Bf16*>(dst)[i * ld + j] = narrow(x);
        else
          static_cast<float*>(dst)[i * ld + j] = x;
      }
  }
};

std::string describe(const Size& s, GemmIsa isa, int threads) {
  return std::to_string(s.batch) + " x " + std::to_string(s.m) + "," + std::to_string(s.n) + "," + std::to_string(s.k) + " " +
         name_of(isa) + " threads " + std::to_string(threads);
}

/// All elements of the hole equal `expected`, each once.
void expect_collected(Gemm g, const Size& s, const std::vector<float>& expected, GemmIsa isa, int threads) {
  Collect collect(s, threads);
  g.store = Collect::hole, g.store_context = &collect;
  Guarded workspace(gemm_workspace_bytes(g, isa, threads));
  ThreadWorkers workers(threads);
  gemm(g, isa, workspace.data(), workers);
  ASSERT_TRUE(collect.fits) << describe(s, isa, threads);
  for (const auto& count : collect.seen) ASSERT_EQ(count, 1) << describe(s, isa, threads);
  ASSERT_EQ(first_difference(collect.c.data(), expected.data(), static_cast<int64_t>(expected.size())), -1)
      << describe(s, isa, threads);
  ASSERT_TRUE(workspace.intact()) << describe(s, isa, threads);
}

class GemmHoles : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(, GemmHoles, testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(ws::name_of(info.param)); });

TEST_P(GemmHoles, StoreHoleSeesEachElementOnceWithTheSameBits) {
  std::mt19937 random(11);
  for (const Size& s : sizes())
    for (GemmIsa isa : available_isas()) {
      if ((isa == GemmIsa::portable || is_modelled(isa)) && s.m * s.n * s.k > 30000000) continue;
      for (Layout layout : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a(s.batch, s.m, s.k, layout, random, false, GetParam());
        const Matrix b(s.batch, s.k, s.n, Layout::kRowMajor, random, false, GetParam());
        const Gemm g = product_of(a, b, s.batch, s.m, s.n, s.k);
        const std::vector<float> expected = run_checked(g, isa, 1);
        for (int threads : {1, 2, 3, 4}) expect_collected(g, s, expected, isa, threads);
        if (HasFatalFailure()) return;
      }
    }
}

TEST_P(GemmHoles, StoreHoleOfGroupsInTurn) {
  std::mt19937 random(13);
  for (const Size& s :
       std::vector<Size>{{1, 300, 120, 700}, {1, 700, 40, 2100}, {1, 70, 300, 1701}, {1, 200, 300, 40}, {1, 10, 700, 600}})
    for (GemmIsa isa : available_isas()) {
      if ((isa == GemmIsa::portable || is_modelled(isa)) && s.m * s.n * s.k > 30000000) continue;
      for (Layout layout : {Layout::kRowMajor, Layout::kTransposed}) {
        const Matrix a(1, s.m, s.k, layout, random, false, GetParam()),
            b(1, s.k, s.n, Layout::kRowMajor, random, false, GetParam());
        const Gemm g = product_of(a, b, 1, s.m, s.n, s.k);
        const std::vector<float> expected = run_checked(g, isa, 1);
        const AssumedCacheSizes tiny({8 << 10, 64 << 10, 256 << 10});
        for (int threads : {1, 3}) expect_collected(g, s, expected, isa, threads);
        if (HasFatalFailure()) return;
      }
    }
}

TEST_P(GemmHoles, PackHolesGiveTheSameBits) {
  std::mt19937 random(12);
  for (const Size& s : sizes()) {
    if (s.k == 0) continue;
    for (GemmIsa isa : available_isas()) {
      if ((isa == GemmIsa::portable || is_modelled(isa)) && s.m * s.n * s.k > 30000000) continue;
      const Matrix a(s.batch, s.m, s.k, Layout::kBothStrided, random, false, GetParam());
      const Matrix b(s.batch, s.k, s.n, Layout::kTransposed, random, false, GetParam());
      const Gemm plain = product_of(a, b, s.batch, s.m, s.n, s.k);
      const std::vector<float> expected = run_checked(plain, isa, 1);
      for (int which : {1, 2, 3})
        for (int threads : {1, 3}) {
          Feed feed_a{&a, s.batch, threads, true}, feed_b{&b, s.batch, threads, true};
          Gemm g = plain;
          if (which & 1) g.a = {nullptr, 0, 0, 0, Feed::hole, &feed_a};
          if (which & 2) g.b = {nullptr, 0, 0, 0, Feed::hole, &feed_b};
          const std::vector<float> got = run_checked(g, isa, threads);
          ASSERT_TRUE(feed_a.fits && feed_b.fits) << describe(s, isa, threads);
          ASSERT_EQ(first_difference(got.data(), expected.data(), static_cast<int64_t>(got.size())), -1)
              << describe(s, isa, threads) << " holes " << which;
          if (which == 3) expect_collected(g, s, expected, isa, threads);
          if (HasFatalFailure()) return;
        }
    }
  }
}

}  // namespace
}  // namespace ws::cpu::test
