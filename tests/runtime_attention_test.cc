// Attention of f32 and bf16 on every instruction set: the bits of the separate ops, whatever the sizes, threads and values.
#include <limits>
#include <memory>
#include <tuple>

#include "runtime_attention_util.h"

namespace ws::cpu::test {
namespace {

const std::vector<Case> kCases = {
    {1, 1, 1, 1, 1, false},      {1, 1, 1, 1, 1, true},      {2, 3, 7, 7, 5, true},       {2, 3, 7, 9, 5, false},
    {1, 2, 33, 65, 16, false},   {1, 2, 33, 65, 16, true},   {1, 2, 65, 33, 16, true},    {2, 2, 128, 128, 64, true},
    {1, 2, 130, 130, 64, false}, {1, 1, 20, 20, 520, true},  {1, 1, 600, 600, 24, true},  {1, 1, 530, 40, 20, false},
    {1, 1, 1100, 90, 17, true},  {1, 1, 70, 1100, 8, true},  {1, 1, 3, 5000, 4, false},   {1, 1, 5, 0, 3, false},
    {1, 1, 0, 5, 3, true},       {1, 2, 131, 131, 65, true}, {1, 1, 129, 1025, 33, true}, {1, 1, 515, 513, 31, false},
};
const std::vector<Case> kBf16Cases = [] {
  std::vector<Case> cases;
  for (Case c : kCases) {
    c.dtype = DType::bf16;
    c.grad_dtype = cases.size() % 2 == 0 ? DType::bf16 : DType::f32;
    cases.push_back(c);
  }
  return cases;
}();

/// Of generated loops and of products. Products of AVX-512 run on the processor where it has them, else on the model of its
/// instructions (avx512_model/), between loops of AVX2.
std::vector<std::pair<Isa, GemmIsa>> isas() {
  std::vector<std::pair<Isa, GemmIsa>> found;
  if (!supports(Isa::avx2)) return found;
  for (const GemmIsa isa : {GemmIsa::portable, GemmIsa::avx2}) found.emplace_back(Isa::avx2, isa);
  found.emplace_back(supports(Isa::avx512) ? Isa::avx512 : Isa::avx2, GemmIsa::avx512);
  found.emplace_back(supports(Isa::avx512_bf16) ? Isa::avx512_bf16 : Isa::avx2, GemmIsa::avx512_bf16);
  return found;
}

TEST(Attention, HasTheBitsOfTheSeparateOps) {
  const FlushDenormals mode;
  for (const auto& [isa, gemm_isa] : isas()) {
    Composer ops(isa);
    for (const auto& cases : {kCases, kBf16Cases}) {
      for (const Case& c : cases) {
        Problem p(c);
        SerialWorkers serial;
        p.run(ops, gemm_isa, serial);
        expect_equals_composed(ops, p);
        expect_guards(p);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Attention, ThreadsAndInstructionSetsChangeNothing) {
  const FlushDenormals mode;
  for (const Case& c : {Case{1, 1, 300, 300, 32, true}, Case{1, 3, 140, 400, 20, false}, Case{3, 5, 40, 40, 8, true},
                        Case{1, 1, 1100, 70, 16, true}, Case{1, 1, 300, 300, 32, true, DType::bf16},
                        Case{1, 1, 601, 601, 33, true, DType::bf16}, Case{1, 3, 141, 401, 20, false, DType::bf16}}) {
    Problem first(c);
    bool have_first = false;
    for (const auto& [isa, gemm_isa] : isas()) {
      Composer ops(isa);
      for (int threads : {1, 2, 4}) {
        ThreadPool pool(threads);
        Problem p(c);
        p.run(ops, gemm_isa, pool);
        if (!have_first) {
          first.run(ops, gemm_isa, pool);
          have_first = true;
        }
        expect_same_bits(p.out, first.out, str(c) + " out");
        expect_same_bits(p.grads, first.grads, str(c) + " grads");
        expect_same_bits(p.row_sum, first.row_sum, str(c) + " row_sum");
        if (HasFatalFailure()) return;
      }
    }
  }
}

// In double, from the definition.
TEST(Attention, IsAttention) {
  const FlushDenormals mode;
  Composer ops(isas().front().first);
  for (const Case& c : {Case{2, 2, 40, 70, 16, false}, Case{1, 2, 150, 150, 32, true}, Case{1, 1, 30, 20, 8, true}}) {
    Problem p(c);
    SerialWorkers serial;
    p.run(ops, isas().front().second, serial);
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const Floats q = p.get(p.a.q, c.queries, b, h), k = p.get(p.a.k, c.keys, b, h), v = p.get(p.a.v, c.keys, b, h);
        const Floats g = p.get(p.a.grad_out, c.queries, b, h);
        const auto n = static_cast<size_t>(c.size);
        const auto dot = [&](const Floats& x, size_t i, const Floats& y, size_t j) {
          double sum = 0;
          for (size_t d = 0; d < n; ++d) sum += double{x[i * n + d]} * y[j * n + d];
          return sum;
        };
        std::vector<double> out(q.size(), 0), grad_q(q.size(), 0), grad_k(k.size(), 0), grad_v(k.size(), 0);
        for (size_t t = 0; t < static_cast<size_t>(c.queries); ++t) {
          const auto keys = static_cast<size_t>(p.visible(static_cast<int64_t>(t)));
          std::vector<double> w(keys), grad_w(keys);
          double high = -HUGE_VAL, sum = 0, mean = 0;
          for (size_t s = 0; s < keys; ++s) high = std::max(high, w[s] = dot(q, t, k, s) * double{p.a.scale});
          for (double& x : w) sum += x = std::exp(x - high);
          for (size_t s = 0; s < keys; ++s) mean += (w[s] /= sum) * (grad_w[s] = dot(g, t, v, s));
          for (size_t s = 0; s < keys; ++s) {
            const double grad_s = w[s] * (grad_w[s] - mean) * double{p.a.scale};
            for (size_t d = 0; d < n; ++d) {
              out[t * n + d] += w[s] * v[s * n + d];
              grad_v[s * n + d] += w[s] * g[t * n + d];
              grad_q[t * n + d] += grad_s * k[s * n + d];
              grad_k[s * n + d] += grad_s * q[t * n + d];
            }
          }
        }
        const auto expect_near = [&](const Floats& x, const std::vector<double>& y, const char* what) {
          ASSERT_EQ(x.size(), y.size());
          for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 4e-6) << str(c) << " " << what << " at " << i;
        };
        expect_near(p.get(p.a.out, c.queries, b, h), out, "out");
        expect_near(p.get(p.a.grad_q, c.queries, b, h), grad_q, "grad_q");
        expect_near(p.get(p.a.grad_k, c.keys, b, h), grad_k, "grad_k");
        expect_near(p.get(p.a.grad_v, c.keys, b, h), grad_v, "grad_v");
      }
    }
  }
}

// q = k = 0 and v = [1, 3]: a row that sees both keys gives their mean, a row that sees none gives 0 and no gradient.
TEST(Attention, RowWithEveryKeyMasked) {
  const FlushDenormals mode;
  for (const auto& [isa, gemm_isa] : isas()) {
    Composer ops(isa);
    Problem p({1, 1, 3, 2, 1, true});  // query 0 sees nothing, 1 one key, 2 both
    p.fill(p.a.q, 3, [] { return 0.0f; });
    p.fill(p.a.k, 2, [] { return 0.0f; });
    float value = -1;
    p.fill(p.a.v, 2, [&] { return value += 2; });
    for (const float loss_has_masked_row : {1.0f, 0.0f}) {
      int row = 0;
      p.fill(p.a.grad_out, 3, [&] { return std::array{loss_has_masked_row, 0.0f, 1.0f}[static_cast<size_t>(row++)]; });
      SerialWorkers serial;
      p.run(ops, gemm_isa, serial);
      EXPECT_EQ(p.get(p.a.out, 3, 0, 0), (Floats{0, 1, 2}));
      EXPECT_EQ(p.get(p.a.grad_v, 2, 0, 0), (Floats{0.5f, 0.5f}));
      EXPECT_EQ(p.get(p.a.grad_k, 2, 0, 0), (Floats{0, 0}));
      EXPECT_EQ(p.get(p.a.grad_q, 3, 0, 0), (Floats{0, 0, 0}));
      EXPECT_EQ(p.row_max[0], 0.0f);
      EXPECT_EQ(p.row_sum[0], 0.0f);
    }
  }
}

// Products that underflow leave sums of -0; the masked keys that are left out would turn some of them into +0, and so would +0 in the
// half that an odd length leaves of a pair.
TEST(Attention, SignsOfZerosThatUnderflowed) {
  const FlushDenormals mode;
  constexpr float tiny = 0x1p-126f;
  const auto underflow = [](Problem& p, float last, float scale_sign) {
    const Case& c = p.c;
    p.a.scale *= scale_sign;
    p.fill(p.a.q, c.queries, [] { return tiny; });
    for (const auto& [x, length] : {std::pair{p.a.v, c.keys}, {p.a.k, c.keys}, {p.a.grad_out, c.queries}}) {
      int64_t element = 0;
      p.fill(x, length, [&, count = c.size * (length - 1)] { return element++ < count ? -tiny : last; });
    }
  };
  for (const auto& [isa, gemm_isa] : isas()) {
    Composer ops(isa);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [queries, keys, causal, last, scale_sign] : {std::tuple{130, 130, true, 1.0f, 1.0f},
                                                                    {131, 131, true, 1.0f, 1.0f},
                                                                    {131, 131, true, -1.0f, -1.0f},
                                                                    {701, 701, true, -1.0f, 1.0f},
                                                                    {37, 71, true, -tiny, -1.0f},
                                                                    {71, 37, false, -tiny, 1.0f},
                                                                    {37, 71, false, 1.0f, 1.0f}}) {
        Problem p({1, 1, queries, keys, 5, causal, dtype});
        underflow(p, last, scale_sign);
        SerialWorkers serial;
        p.run(ops, gemm_isa, serial);
        expect_equals_composed(ops, p);
        if (HasFatalFailure()) return;
      }
  }
}

// A row is NaN where it sees a NaN, and nowhere else, whatever rows share its stripe, its thread or a word of its sums; so are the
// gradients. What is not NaN has the bits that it has without any.
TEST(Attention, NonFiniteValuesStayBehindTheMask) {
  const FlushDenormals mode;
  struct Bad {
    DType dtype;
    int64_t length, more_keys, key, query;
    int threads;
  };
  for (const auto& [isa, gemm_isa] : isas()) {
    Composer ops(isa);
    for (const Bad& bad :
         {Bad{DType::f32, 400, 0, 100, 100, 1}, Bad{DType::f32, 401, 1, 129, 101, 2}, Bad{DType::bf16, 400, 1, 129, 100, 1},
          Bad{DType::bf16, 401, 0, 101, 101, 2}, Bad{DType::bf16, 700, 3, 65, 599, 1}}) {
      const Case c{1, 1, bad.length, bad.length + bad.more_keys, 9, true, bad.dtype};
      ThreadPool pool(bad.threads);
      Problem clean(c), value(c), gradient(c);
      Problem::at(value.a.v, 0, bad.key, 0, 3) = std::numeric_limits<float>::infinity();
      Problem::at(gradient.a.grad_out, 0, bad.query, 0, 3) = std::numeric_limits<float>::infinity();
      for (Problem* p : {&clean, &value, &gradient}) p->run(ops, gemm_isa, pool);
      const auto expect_bad_rows = [&](const Problem& p, AttentionTensor Attention::*of, int64_t rows, const char* what,
                                       const auto& should) {
        const Floats x = p.get(p.a.*of, rows, 0, 0), good = clean.get(clean.a.*of, rows, 0, 0);
        for (int64_t row = 0; row < rows; ++row) {
          bool finite = true, same = true;
          for (auto e = static_cast<size_t>(row * c.size); e < static_cast<size_t>((row + 1) * c.size); ++e) {
            finite = finite && std::isfinite(x[e]);
            same = same && std::bit_cast<uint32_t>(x[e]) == std::bit_cast<uint32_t>(good[e]);
          }
          ASSERT_EQ(!finite, should(row)) << str(c) << ' ' << what << " row " << row;
          ASSERT_EQ(same, finite) << str(c) << ' ' << what << " row " << row;
        }
      };
      const auto sees_key = [&](int64_t t) { return bad.key < clean.visible(t); };
      const auto seen_by_query = [&](int64_t s) { return s < clean.visible(bad.query); };
      expect_bad_rows(value, &Attention::out, c.queries, "out", sees_key);
      expect_bad_rows(gradient, &Attention::grad_v, c.keys, "grad_v", seen_by_query);
      expect_bad_rows(gradient, &Attention::grad_k, c.keys, "grad_k", seen_by_query);
      expect_bad_rows(gradient, &Attention::grad_q, c.queries, "grad_q", [&](int64_t t) { return t == bad.query; });
      if (HasFatalFailure()) return;
    }
  }
}

// Of bf16, by pairs and by FMAs of widened elements, in whatever shares of threads.
TEST(Attention, MasksAndDropoutHaveTheSameBitsOnEveryInstructionSet) {
  const FlushDenormals mode;
  const uint32_t key0 = 77, key1 = 5;
  for (const Case& c : {Case{2, 2, 37, 41, 20, true}, Case{1, 1, 259, 259, 33, true}, Case{1, 2, 130, 71, 16, false}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Case of = c;
      of.dtype = of.grad_dtype = dtype;
      std::vector<uint8_t> mask(static_cast<size_t>(c.batch * c.queries * c.keys));
      std::mt19937 random(3);
      for (uint8_t& seen : mask) seen = random() % 3 != 0;
      std::fill_n(mask.begin(), c.keys, uint8_t{0});  // query 0 of the first item sees nothing
      const auto masked = [&](GemmIsa gemm_isa, Composer& ops, Workers& workers) {
        auto p = std::make_unique<Problem>(of);
        p->a.masked = true;
        p->a.masking = {mask.data(), c.queries * c.keys, 0, c.keys, 1, &key0, &key1, 0.25, 0};
        p->run(ops, gemm_isa, workers);
        return p;
      };
      std::unique_ptr<Problem> first;
      for (const auto& [isa, gemm_isa] : isas()) {
        Composer ops(isa);
        for (const int threads : {1, 3}) {
          ThreadPool pool(threads);
          auto p = masked(gemm_isa, ops, pool);
          if (first == nullptr)
            first = std::move(p);
          else
            for (const auto& [got, want] :
                 {std::pair{&p->out, &first->out}, {&p->grads, &first->grads}, {&p->row_sum, &first->row_sum}})
              expect_same_bits(*got, *want, str(of) + " masked");
          if (HasFatalFailure()) return;
        }
      }
    }
}

}  // namespace
}  // namespace ws::cpu::test
