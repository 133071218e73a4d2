// What attention's tests share: the separate ops one at a time, and a problem with views of packed arrays and guards.
#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_loops.h"
#include "backend/cpu/jit/loop_compiler.h"
#include "runtime/thread_pool.h"
#include "support/float_mode.h"
#include "tensor/scalar_bits.h"

namespace ws::cpu::test {

using Floats = std::vector<float>;

// ---- one op at a time, as the separate kernels that attention must equal -----------------------------------------------------

class Composer {
 public:
  explicit Composer(Isa isa) : compiler_({.isa = isa, .cache_directory = {}, .num_threads = 1}) {}

  // x [rows, cols] op y, where y is [rows, cols], one value a row, or one value.
  enum class Operand { kFull, kRow, kScalar };
  Floats binary(std::string_view op, const Floats& x, const Floats& y, Operand kind, int64_t cols) {
    LoopKernel kernel;
    kernel.rank = 2;
    kernel.accesses = {
        {DType::f32, Step::kUnit}, {DType::f32, kind == Operand::kFull ? Step::kUnit : Step::kSplat}, {DType::f32, Step::kUnit}};
    kernel.body = {instr(LoopInstr::Kind::kLoad, {}, 0), instr(LoopInstr::Kind::kLoad, {}, 1), of(op, {0, 1}),
                   instr(LoopInstr::Kind::kStore, {2}, 2)};
    Floats out(x.size());
    const int64_t row = kind == Operand::kFull ? cols : kind == Operand::kRow ? 1 : 0;
    call(kernel, cols, static_cast<int64_t>(x.size()),
         {{x.data(), cols, 1}, {y.data(), row, kind == Operand::kFull ? 1 : 0}, {out.data(), cols, 1}});
    return out;
  }
  Floats unary(std::string_view op, const Floats& x, int64_t cols) {
    LoopKernel kernel;
    kernel.rank = 2;
    kernel.accesses = {{DType::f32, Step::kUnit}, {DType::f32, Step::kUnit}};
    kernel.body = {instr(LoopInstr::Kind::kLoad, {}, 0), of(op, {0}), instr(LoopInstr::Kind::kStore, {1}, 1)};
    Floats out(x.size());
    call(kernel, cols, static_cast<int64_t>(x.size()), {{x.data(), cols, 1}, {out.data(), cols, 1}});
    return out;
  }
  /// Rounded to bf16, as f32.
  Floats rounded(const Floats& x) {
    LoopKernel kernel;
    kernel.accesses = {{DType::f32, Step::kUnit}, {DType::f32, Step::kUnit}};
    kernel.body = {instr(LoopInstr::Kind::kLoad, {}, 0), cast_to(DType::bf16, 0), cast_to(DType::f32, 1),
                   instr(LoopInstr::Kind::kStore, {2}, 1)};
    kernel.rank = 2;
    Floats out(x.size());
    const auto elements = static_cast<int64_t>(x.size());
    call(kernel, elements, elements, {{x.data(), elements, 1}, {out.data(), elements, 1}});
    return out;
  }
  Floats reduce(bool is_max, const Floats& x, int64_t cols) {
    LoopKernel kernel;
    kernel.walk = Walk::kRows;
    kernel.rank = 2;
    kernel.accesses = {{DType::f32, Step::kUnit}, {DType::f32, Step::kSplat}};
    kernel.body = {instr(LoopInstr::Kind::kLoad, {}, 0), instr(LoopInstr::Kind::kReduceRow, {0}, -1),
                   instr(LoopInstr::Kind::kStore, {1}, 1)};
    kernel.body[1].is_max = is_max;
    Floats out(cols == 0 ? 0 : x.size() / static_cast<size_t>(cols));
    call(kernel, cols, static_cast<int64_t>(x.size()), {{x.data(), cols, 1}, {out.data(), 1, 0}});
    return out;
  }
  LoopCompiler& compiler() { return compiler_; }

 private:
  struct Access {
    const float* data;
    int64_t row_stride, stride;
  };
  static LoopInstr instr(LoopInstr::Kind kind, std::vector<int> operands, int access) {
    LoopInstr i;
    i.kind = kind;
    i.operands = std::move(operands);
    i.access = access;
    return i;
  }
  static LoopInstr of(std::string_view op, std::vector<int> operands) {
    LoopInstr i = instr(LoopInstr::Kind::kOp, std::move(operands), -1);
    i.op = find_op(op);
    return i;
  }
  static LoopInstr cast_to(DType dtype, int operand) {
    LoopInstr i = of("cast", {operand});
    i.dtype = dtype;
    i.attrs.set("dtype", dtype);
    return i;
  }
  void call(const LoopKernel& kernel, int64_t cols, int64_t elements, std::vector<Access> accesses) {
    if (elements == 0) return;
    auto found = compiled_.find(kernel.key());
    if (found == compiled_.end()) {
      const std::shared_ptr<const LoopKernel> shared = std::make_shared<LoopKernel>(kernel);
      found = compiled_.emplace(kernel.key(), compiler_.compile({&shared, 1})[0]).first;
    }
    const LoopCode& code = found->second;
    const LoopArgsLayout layout{static_cast<int>(accesses.size()), 2, 0};
    std::vector<int64_t> args(static_cast<size_t>(layout.words()), 0);
    const auto set = [&](int word, int64_t value) { args[static_cast<size_t>(word)] = value; };
    set(layout.dim(0), elements / cols);
    set(layout.dim(1), cols);
    for (int a = 0; a < static_cast<int>(accesses.size()); ++a) {
      const Access& access = accesses[static_cast<size_t>(a)];
      set(layout.pointer(a), static_cast<int64_t>(reinterpret_cast<intptr_t>(access.data)));
      set(layout.stride(a, 0), access.row_stride);
      set(layout.stride(a, 1), access.stride);
    }
    struct alignas(64) Line {
      char bytes[64];
    };
    std::vector<Line> scratch(static_cast<size_t>(code.scratch_slots * ((cols + 15) / 16 * 16) * 8 / 64 + 1));
    code.fn(args.data(), 0, elements / cols, 0, cols, scratch.data());
  }
  LoopCompiler compiler_;
  std::map<std::string, LoopCode> compiled_;
};

inline Floats product(int64_t m, int64_t n, int64_t k, const Floats& a, bool transpose_a, const Floats& b, bool transpose_b) {
  Gemm g;
  g.m = m, g.n = n, g.k = k;
  g.a = {a.data(), transpose_a ? 1 : k, transpose_a ? m : 1, 0, nullptr, nullptr};
  g.b = {b.data(), transpose_b ? 1 : n, transpose_b ? k : 1, 0, nullptr, nullptr};
  Floats c(static_cast<size_t>(m * n));
  g.c = c.data(), g.c_row_stride = n;
  std::vector<char> workspace(static_cast<size_t>(gemm_workspace_bytes(g, GemmIsa::portable, 1)) + 64);
  SerialWorkers serial;
  void* at = workspace.data();
  size_t space = workspace.size();
  gemm(g, GemmIsa::portable, std::align(64, space - 64, at, space), serial);
  return c;
}

// ---- one problem: views of packed arrays, with gaps that nothing may write ---------------------------------------------------

constexpr float kGuard = 1232;  // bf16 holds it

struct Case {
  int64_t batch, heads, queries, keys, size;
  bool causal;
  DType dtype = DType::f32, grad_dtype = dtype;  // of q, k, v and the result; of the result's gradient
};
inline std::string str(const Case& c) {
  return fmt::format("B {} H {} T {} S {} D {}{}{}", c.batch, c.heads, c.queries, c.keys, c.size, c.causal ? " causal" : "",
                     c.dtype == DType::bf16 ? " bf16" : "");
}

struct Problem {
  Case c;
  Attention a;
  Floats inputs, grads, out, grad_out, row_max, row_sum;  // inputs and grads: [B, max(T, S), 3, H, D + gap]
  Problem(const Problem&) = delete;                       // `a` points into it
  explicit Problem(const Case& shape, uint32_t seed = 1) : c(shape) {
    constexpr int64_t kGap = 3;
    const int64_t length = std::max(c.queries, c.keys), head = c.size + kGap, time = 3 * c.heads * head;
    const auto elements = static_cast<size_t>(c.batch * length * time) + 1;
    inputs.assign(elements, kGuard);
    grads.assign(elements, kGuard);
    const auto rows = static_cast<size_t>(c.batch * c.heads * c.queries);
    out.assign(rows * static_cast<size_t>(head) + 1, kGuard);
    grad_out = out;
    row_max.assign(rows + 1, kGuard);
    row_sum = row_max;
    a.batch = c.batch, a.heads = c.heads, a.queries = c.queries, a.keys = c.keys, a.head_size = c.size, a.causal = c.causal;
    a.scale = 1 / std::sqrt(static_cast<float>(c.size));
    const auto packed = [&](Floats& x, int64_t part) {
      return AttentionTensor{x.data() + part * c.heads * head, length * time, time, head, DType::f32};
    };
    a.q = packed(inputs, 0), a.k = packed(inputs, 1), a.v = packed(inputs, 2);
    a.grad_q = packed(grads, 0), a.grad_k = packed(grads, 1), a.grad_v = packed(grads, 2);
    a.out = {out.data(), c.queries * c.heads * head, c.heads * head, head, DType::f32};
    a.grad_out = a.out;
    a.grad_out.data = grad_out.data();
    a.row_max = row_max.data(), a.row_sum = row_sum.data();
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (const auto& [tensor, steps] : {std::pair{a.q, c.queries}, {a.k, c.keys}, {a.v, c.keys}, {a.grad_out, c.queries}})
      fill(tensor, steps, [&] { return normal(random); });
    if (c.dtype == DType::bf16)
      for (float& x : inputs) x = f32_from_bf16(bf16_from_f32(x));
    if (c.grad_dtype == DType::bf16)
      for (float& x : grad_out) x = f32_from_bf16(bf16_from_f32(x));
  }
  template <class Next>
  void fill(const AttentionTensor& x, int64_t steps, const Next& next) {
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t t = 0; t < steps; ++t)
        for (int64_t h = 0; h < c.heads; ++h)
          for (int64_t d = 0; d < c.size; ++d) at(x, b, t, h, d) = next();
  }
  Floats get(const AttentionTensor& x, int64_t steps, int64_t b, int64_t h) const {
    Floats rows;
    for (int64_t t = 0; t < steps; ++t)
      for (int64_t d = 0; d < c.size; ++d) rows.push_back(at(x, b, t, h, d));
    return rows;
  }
  static float& at(const AttentionTensor& x, int64_t b, int64_t t, int64_t h, int64_t d) {
    return static_cast<float*>(x.data)[b * x.batch_stride + t * x.time_stride + h * x.head_stride + d];
  }
  int64_t visible(int64_t t) const { return c.causal ? std::clamp<int64_t>(t + 1 + c.keys - c.queries, 0, c.keys) : c.keys; }

  /// Arrays of bf16 have the layout of the f32 ones; what came out is widened.
  void run(Composer& composer, GemmIsa isa, Workers& workers) {
    std::vector<std::pair<Floats*, std::vector<uint16_t>>> narrow;
    Attention a = this->a;
    const auto as_bf16 = [&](Floats& wide, std::initializer_list<AttentionTensor*> tensors) {
      std::vector<uint16_t>& bits = narrow.emplace_back(&wide, wide.size()).second;
      for (size_t i = 0; i < wide.size(); ++i) bits[i] = bf16_from_f32(wide[i]);
      for (AttentionTensor* x : tensors) {
        x->data = bits.data() + (static_cast<float*>(x->data) - wide.data());
        x->dtype = DType::bf16;
      }
    };
    if (c.dtype == DType::bf16) as_bf16(inputs, {&a.q, &a.k, &a.v}), as_bf16(out, {&a.out});
    if (c.grad_dtype == DType::bf16) as_bf16(grad_out, {&a.grad_out});
    for (const bool backward : {false, true}) {
      const auto kernels = attention_loops(backward, c.dtype, isa, a.masked);
      const auto code = composer.compiler().compile(kernels);
      a.loops = code.data();
      struct alignas(64) Line {
        char bytes[64];
      };
      constexpr char kByte = 0x7B;
      const auto bytes = attention_workspace_bytes(a, isa, workers.num_threads(), backward);
      ASSERT_EQ(bytes % 64, 0);
      std::vector<Line> workspace(static_cast<size_t>(bytes / 64) + 1);
      std::memset(static_cast<void*>(workspace.data()), kByte, workspace.size() * 64);
      if (backward)
        attention_backward(a, isa, workspace.data(), workers);
      else
        attention_forward(a, isa, workspace.data(), workers);
      for (char byte : workspace.back().bytes) ASSERT_EQ(byte, kByte) << "wrote behind its workspace";
    }
    for (auto& [wide, bits] : narrow)
      for (size_t i = 0; i < bits.size(); ++i) (*wide)[i] = f32_from_bf16(bits[i]);
  }
};

// What the separate ops give for one head.
struct Composed {
  Floats out, row_max, row_sum, grad_q, grad_k, grad_v;
};

inline Composed compose(Composer& ops, const Problem& p, int64_t b, int64_t h) {
  using Operand = Composer::Operand;
  const int64_t rows = p.c.queries, keys = p.c.keys, size = p.c.size;
  const auto rounded = [&](const Floats& x) { return p.c.dtype == DType::bf16 ? ops.rounded(x) : x; };
  const Floats q = p.get(p.a.q, rows, b, h), k = p.get(p.a.k, keys, b, h), v = p.get(p.a.v, keys, b, h),
               g = rounded(p.get(p.a.grad_out, rows, b, h));
  const Floats scale{p.a.scale};
  const auto masked = [&](Floats x, float value) {
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t s = p.visible(t); s < keys; ++s) x[static_cast<size_t>(t * keys + s)] = value;
    return x;
  };
  Composed r;
  const Floats scores =
      masked(ops.binary("mul", product(rows, keys, size, q, false, k, true), scale, Operand::kScalar, keys), -HUGE_VALF);
  r.row_max = ops.reduce(true, scores, keys);
  const Floats e = ops.unary("exp", ops.binary("sub", scores, r.row_max, Operand::kRow, keys), keys);
  r.row_sum = ops.reduce(false, e, keys);
  const Floats ones(r.row_sum.size(), 1.0f);
  Floats weights = ops.binary("mul", e, ops.binary("div", ones, r.row_sum, Operand::kFull, rows), Operand::kRow, keys);
  r.row_max.resize(static_cast<size_t>(rows));  // without any key there was nothing to reduce
  r.row_sum.resize(static_cast<size_t>(rows));
  for (int64_t t = 0; t < rows; ++t) {
    if (p.visible(t) > 0) continue;  // nothing to attend to
    r.row_max[static_cast<size_t>(t)] = r.row_sum[static_cast<size_t>(t)] = 0;
    std::fill_n(weights.begin() + t * keys, keys, 0.0f);
  }
  r.out = rounded(product(rows, size, keys, rounded(weights), false, v, false));
  r.grad_v = product(keys, size, rows, rounded(weights), true, g, false);
  const Floats grad_p = product(rows, keys, size, g, false, v, true);
  const Floats mean = ops.reduce(false, ops.binary("mul", grad_p, weights, Operand::kFull, keys), keys);
  const Floats grad_t =
      masked(ops.binary("mul", ops.binary("sub", grad_p, mean, Operand::kRow, keys), weights, Operand::kFull, keys), 0.0f);
  const Floats grad_s = rounded(ops.binary("mul", grad_t, scale, Operand::kScalar, keys));
  r.grad_q = product(rows, size, keys, grad_s, false, k, false);
  r.grad_k = product(keys, size, rows, grad_s, true, q, false);
  return r;
}

inline void expect_same_bits(const Floats& a, const Floats& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) || (a[i] != a[i] && b[i] != b[i]))
        << what << " at " << i << ": " << a[i] << " and " << b[i];
}

inline void expect_equals_composed(Composer& ops, Problem& p) {
  for (int64_t b = 0; b < p.c.batch; ++b) {
    for (int64_t h = 0; h < p.c.heads; ++h) {
      const Composed r = compose(ops, p, b, h);
      const int64_t first = (b * p.c.heads + h) * p.c.queries;
      const auto rows_of = [&](const Floats& x) { return Floats(x.begin() + first, x.begin() + first + p.c.queries); };
      expect_same_bits(rows_of(p.row_max), r.row_max, str(p.c) + " row_max");
      expect_same_bits(rows_of(p.row_sum), r.row_sum, str(p.c) + " row_sum");
      expect_same_bits(p.get(p.a.out, p.c.queries, b, h), r.out, str(p.c) + " out");
      expect_same_bits(p.get(p.a.grad_v, p.c.keys, b, h), r.grad_v, str(p.c) + " grad_v");
      expect_same_bits(p.get(p.a.grad_k, p.c.keys, b, h), r.grad_k, str(p.c) + " grad_k");
      expect_same_bits(p.get(p.a.grad_q, p.c.queries, b, h), r.grad_q, str(p.c) + " grad_q");
    }
  }
}

// Every value that is no element of a result is as it was.
inline void expect_guards(const Problem& p) {
  Problem marked(p.c);
  marked.grads.assign(marked.grads.size(), kGuard);
  const auto mark = [&](const AttentionTensor& x, int64_t steps) { marked.fill(x, steps, [] { return 0.0f; }); };
  mark(marked.a.grad_q, p.c.queries);
  mark(marked.a.grad_k, p.c.keys);
  mark(marked.a.grad_v, p.c.keys);
  mark(marked.a.out, p.c.queries);
  for (size_t i = 0; i < p.grads.size(); ++i) ASSERT_TRUE(marked.grads[i] != kGuard || p.grads[i] == kGuard) << i;
  for (size_t i = 0; i < p.out.size(); ++i) ASSERT_TRUE(marked.out[i] != kGuard || p.out[i] == kGuard) << i;
  ASSERT_EQ(p.row_max.back(), kGuard);
  ASSERT_EQ(p.row_sum.back(), kGuard);
}

}  // namespace ws::cpu::test
