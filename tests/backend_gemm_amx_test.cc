// Products by AMX's tiles, in software everywhere and by the instructions where ISA=amx asks for them: the bits of the order that
// gemm.h states, written out here on its own; layouts, odd sizes, holes, threads.
#include "backend/cpu/gemm/plan.h"
#include "backend_gemm_util.h"
#include "support/flags.h"
#include "support/float_mode.h"

namespace ws::cpu::test {
namespace {

class GemmAmx : public testing::Test {
  FlushDenormals mode_;
};

std::vector<GemmIsa> tile_isas() {
  std::vector<GemmIsa> isas = {GemmIsa::amx_model};
  if (flags().isa == "amx" && supports(Isa::amx)) isas.push_back(GemmIsa::amx);  // as users get them: where they ask
  return isas;
}

template <class A, class B>
float tile_element(int64_t k, A&& a, B&& b) {
  float sum = 0;
  for (int64_t block = 0; block < k; block += 512) {
    float block_sum = 0;
    const int64_t end = std::min(block + 512, k);
    for (int64_t step = block; step < end; step += 32) {
      float chain[2] = {0, 0};
      for (int64_t p = step; p < std::min(step + 32, end); ++p) chain[p % 2] = std::fma(a(p), b(p), chain[p % 2]);
      block_sum += chain[0] + chain[1];
    }
    sum = block == 0 ? block_sum : sum + block_sum;
  }
  return sum;
}

struct Size {
  int64_t m, n, k;
};

void expect_tile_bits(const Matrix& a, const Matrix& b, const Size& s, const std::vector<int>& thread_counts) {
  Gemm g = product_of(a, b, 1, s.m, s.n, s.k);
  for (GemmIsa isa : tile_isas()) {
    if (is_tiny_gemm(g) || (isa == GemmIsa::amx && !uses_amx_tiles(g))) continue;
    for (DType result : {DType::f32, DType::bf16}) {
      g.result_dtype = result;
      for (int threads : thread_counts) {
        const std::vector<float> got = run_checked(g, isa, threads, threads % 2 ? 0 : 3);
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            float want = tile_element(
                s.k, [&](int64_t p) { return a.at(0, i, p); }, [&](int64_t p) { return b.at(0, p, j); });
            if (result == DType::bf16) want = widen(narrow(want));
            ASSERT_EQ(first_difference(&got[static_cast<size_t>(i * s.n + j)], &want, 1), -1)
                << s.m << "," << s.n << "," << s.k << " " << name_of(isa) << " threads " << threads << " at " << i << "," << j
                << ": " << got[static_cast<size_t>(i * s.n + j)] << " for " << want;
          }
      }
    }
  }
}

TEST_F(GemmAmx, LayoutsAndOddSizes) {
  std::mt19937 random(31);
  for (const Size& s : std::vector<Size>{{33, 35, 65}, {1, 700, 70}, {700, 1, 70}, {16, 64, 513}, {47, 17, 1365}, {65, 100, 33}})
    for (Layout la : layouts())
      for (Layout lb : {Layout::kRowMajor, Layout::kTransposed, Layout::kBothStrided}) {
        const Matrix a(1, s.m, s.k, la, random, false, DType::bf16), b(1, s.k, s.n, lb, random, false, DType::bf16);
        expect_tile_bits(a, b, s, {1, 2});
        if (HasFatalFailure()) return;
      }
}

TEST_F(GemmAmx, LargeEnoughForTheMachine) {
  std::mt19937 random(32);
  for (const Size& s : std::vector<Size>{{130, 70, 600}, {40, 260, 1030}, {40, 60, 6700}}) {
    const Matrix a(1, s.m, s.k, Layout::kTransposed, random, false, DType::bf16),
        b(1, s.k, s.n, Layout::kRowMajor, random, false, DType::bf16);
    expect_tile_bits(a, b, s, {1, 3});
  }
}

TEST_F(GemmAmx, ColumnsPackedForAllThreads) {
  std::mt19937 random(35);
  const auto check = [&](const Size& s, Layout la, const std::vector<int>& thread_counts) {
    const Matrix a(1, s.m, s.k, la, random, false, DType::bf16), b(1, s.k, s.n, Layout::kRowMajor, random, false, DType::bf16);
    expect_tile_bits(a, b, s, thread_counts);
  };
  check({1100, 70, 100}, Layout::kRowMajor, {1, 3});
  check({64, 640, 6700}, Layout::kTransposed, {3});  // by blocks of k
}

TEST_F(GemmAmx, NonFiniteAndTinyValues) {
  std::mt19937 random(33);
  const Size s{40, 50, 90};
  Matrix a(1, s.m, s.k, Layout::kRowMajor, random, false, DType::bf16),
      b(1, s.k, s.n, Layout::kRowMajor, random, false, DType::bf16);
  a.data[0] = NAN, a.data[static_cast<size_t>(a.operand.row_stride)] = INFINITY;
  for (int64_t p = 0; p < s.k; ++p) a.data[static_cast<size_t>(2 * a.operand.row_stride + p)] *= 0x1p-70f;
  for (int64_t p = 0; p < s.k; ++p) b.data[static_cast<size_t>(p * b.operand.row_stride + 1)] *= 0x1p-56f;
  for (int64_t p = 0; p < s.k; ++p) b.data[static_cast<size_t>(p * b.operand.row_stride + 2)] = std::bit_cast<float>(0x00110000u);
  a.update(), b.update();
  expect_tile_bits(a, b, s, {1});
}

TEST_F(GemmAmx, HolesChangeNothing) {
  std::mt19937 random(34);
  const Size s{70, 90, 530};
  const Matrix a(1, s.m, s.k, Layout::kBothStrided, random, false, DType::bf16),
      b(1, s.k, s.n, Layout::kTransposed, random, false, DType::bf16);
  const auto feed = [](void* context, void* dst, int64_t ld, int64_t, int64_t row0, int64_t col0, int64_t rows, int64_t cols,
                       int) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j)
        static_cast<Bf16*>(dst)[i * ld + j] = narrow(static_cast<const Matrix*>(context)->at(0, row0 + i, col0 + j));
  };
  std::vector<float> stored(static_cast<size_t>(s.m * s.n));
  const auto collect = [](void* context, float* tile, int64_t ld, int64_t, int64_t m0, int64_t n0, int64_t mc, int64_t nc, int) {
    for (int64_t i = 0; i < mc; ++i) std::copy_n(tile + i * ld, nc, static_cast<float*>(context) + (m0 + i) * 90 + n0);
  };
  for (GemmIsa isa : tile_isas()) {
    Gemm g = product_of(a, b, 1, s.m, s.n, s.k);
    const std::vector<float> expected = run_checked(g, isa, 1);
    g.a.hole = feed, g.a.context = const_cast<Matrix*>(&a);
    g.b.hole = feed, g.b.context = const_cast<Matrix*>(&b);
    const std::vector<float> got = run_checked(g, isa, 2);
    EXPECT_EQ(first_difference(got.data(), expected.data(), s.m * s.n), -1);
    g.store = collect, g.store_context = stored.data();
    Guarded workspace(gemm_workspace_bytes(g, isa, 2));
    ThreadWorkers workers(2);
    gemm(g, isa, workspace.data(), workers);
    EXPECT_TRUE(workspace.intact());
    EXPECT_EQ(first_difference(stored.data(), expected.data(), s.m * s.n), -1);
  }
}

}  // namespace
}  // namespace ws::cpu::test
