// Every elementwise op of the table through the compiler: against plain C++ bit by bit, against the op's double-precision
// reference within its tolerance, and one instruction set against the other.
#include "backend_jit_support.h"

namespace ws::test {
namespace {

constexpr DType kAllDTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::boolean};

/// One way to call an op.
struct Signature {
  const OpDef* op;
  std::vector<DType> inputs;
  DType result;
  Attrs attrs;
  std::string name() const {
    std::string text = std::string(op->name) + attrs.str() + "(";
    for (DType d : inputs) text += std::string(name_of(d)) + " ";
    return text + ") -> " + std::string(name_of(result));
  }
};

std::vector<Attrs> attr_choices(const OpDef& op, int64_t n) {
  std::vector<Attrs> out(1);
  for (const AttrSpec& spec : op.attrs) {
    std::vector<Attrs> grown;
    for (const Attrs& attrs : out) {
      auto with = [&](AttrValue value) {
        Attrs a = attrs;
        a.set(spec.name, std::move(value));
        grown.push_back(a);
      };
      switch (spec.kind) {
        case AttrSpec::Kind::dtype:
          for (DType d : kAllDTypes) with(d);
          break;
        case AttrSpec::Kind::number: with(3.0); break;
        case AttrSpec::Kind::integer: with(spec.name == "axis" ? int64_t{1} : int64_t{5}); break;
        case AttrSpec::Kind::integers: with(std::vector<int64_t>{2, n}); break;
        case AttrSpec::Kind::flag: with(true); break;
        case AttrSpec::Kind::text: with(std::string("x")); break;
      }
    }
    out = grown;
  }
  return out;
}

std::vector<Signature> signatures(int64_t n) {
  std::vector<Signature> out;
  for (const OpDef* op : all_ops()) {
    if (!op->emit) continue;
    for (const Attrs& attrs : attr_choices(*op, n))
      for (DType d : kAllDTypes)
        for (const bool first_is_mask : {false, true}) {
          std::vector<DType> inputs(static_cast<size_t>(op->arity), d);
          if (first_is_mask && (op->arity < 3 || d == DType::boolean)) continue;
          if (first_is_mask) inputs[0] = DType::boolean;
          if (op->arity == 0 && d != DType::f32) continue;
          std::vector<Type> types;
          for (DType t : inputs) types.push_back({t, Shape{2, n}});
          try {
            out.push_back({op, inputs, op->infer(types, attrs).at(0).dtype, attrs});
          } catch (const Error&) {
          }
        }
  }
  return out;
}

std::shared_ptr<const LoopKernel> kernel_of(const Signature& s) {
  KernelWriter w(Walk::kElements, 2);
  std::vector<int> operands;
  for (DType d : s.inputs) operands.push_back(w.load(d, s.op->has(kSwapsPairs) ? Step::kSwapped : Step::kUnit));
  w.store(w.op(*s.op, operands, s.result, s.attrs), s.result);
  return w.done();
}

/// Numbers a cast to an integer may meet, or the op's own domain, or anything at all.
enum class Draw { kDomain, kSpecials };

void fill_inputs(const Signature& s, std::vector<Array>& inputs, Draw draw, int64_t n) {
  const bool to_integer = s.op->name == "cast" && !is_floating(s.result) && s.result != DType::boolean;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TestDomain domain = s.op->domain.empty() ? TestDomain{} : s.op->domain[std::min(i, s.op->domain.size() - 1)];
    double low = domain.low, high = domain.high;
    if (to_integer) low = s.result == DType::u32 ? 0 : -2e9, high = s.result == DType::u32 ? 4e9 : 2e9;
    if (!is_floating(inputs[i].dtype())) {
      high = draw == Draw::kDomain ? 30000 : 1e9;  // products that the reference's doubles hold
      low = inputs[i].dtype() == DType::u32 ? 0 : -high;
    }
    fill_random(inputs[i], static_cast<uint32_t>(n * 10 + static_cast<int64_t>(i)), low, high,
                draw == Draw::kSpecials && !to_integer);
  }
}

/// The op on plain C++ numbers, with results as a store would leave them.
Array evaluate(const Signature& s, const std::vector<Array>& inputs, int64_t n) {
  Array out(s.result, 2 * n);
  ops::EvalScalarBuilder b;
  for (int64_t i = 0; i < 2 * n; ++i) {
    b.clear();
    b.position = {i / n, i % n};
    b.linear_position = static_cast<uint64_t>(i);
    std::vector<ScalarBuilder::S> handles;
    for (const Array& a : inputs) {
      const double v = a.get(s.op->has(kSwapsPairs) ? i ^ 1 : i);
      handles.push_back(a.dtype() == DType::f32 || a.dtype() == DType::bf16
                            ? b.load_bits(std::bit_cast<uint32_t>(static_cast<float>(v)))
                            : b.load(a.dtype(), v));
    }
    ScalarBuilder::S result = s.op->emit(b, handles, s.attrs);
    if (s.result == DType::bf16) result = b.cast(result, DType::bf16);
    out.set(i, b.value(result));
  }
  return out;
}

void expect_near_reference(const Signature& s, const std::vector<Array>& inputs, const Array& got, int64_t n) {
  std::vector<RefArray> arguments, results(1);
  std::vector<Type> types;
  for (const Array& a : inputs) {
    RefArray r{{a.dtype(), Shape{2, n}}, {}};
    for (int64_t i = 0; i < 2 * n; ++i) r.data.push_back(a.get(i));
    types.push_back(r.type);
    arguments.push_back(std::move(r));
  }
  results[0].type = s.op->infer(types, s.attrs)[0];
  results[0].data.resize(static_cast<size_t>(results[0].type.shape.num_elements()));
  s.op->reference(arguments, s.attrs, results);
  double tolerance = s.op->domain.empty() ? TestDomain{}.tolerance : s.op->domain[0].tolerance;
  if (s.result == DType::bf16) tolerance += 0x1p-8;
  for (int64_t i = 0; i < 2 * n; ++i) {
    double expected = results[0].data[results[0].data.size() == 1 ? 0 : static_cast<size_t>(i)];  // a constant has the shape []
    if (s.result == DType::u32)
      expected = static_cast<double>(static_cast<uint32_t>(static_cast<int64_t>(expected)));  // integers wrap
    const double allowed = is_floating(s.result) ? tolerance * std::abs(expected) + 1e-7 : 0;
    ASSERT_NEAR(got.get(i), expected, allowed) << s.name() << " at " << i;
  }
}

TEST(JitElementwise, EveryOpOnBothInstructionSets) {
  int tried = 0;
  for (int64_t n : {int64_t{2}, int64_t{16}, int64_t{38}, int64_t{70}})
    for (const Signature& s : signatures(n)) {
      if (s.op->has(kIndexed) && n != 38) continue;  // iota's shape is an attribute: one compilation is enough
      const auto kernel = kernel_of(s);
      for (Draw draw : {Draw::kDomain, Draw::kSpecials}) {
        std::vector<Array> inputs, results;
        for (DType d : s.inputs) inputs.emplace_back(d, 2 * n);
        fill_inputs(s, inputs, draw, n);
        const Array expected = evaluate(s, inputs, n);
        for (Isa isa : machine_isas()) {
          Array out(s.result, 2 * n);
          Call call(*kernel, {2, n});
          for (size_t i = 0; i < inputs.size(); ++i) call.bind_dense(static_cast<int>(i), inputs[i]);
          call.bind_dense(static_cast<int>(inputs.size()), out);
          call.run(compile_one(isa, kernel), kernel->walk);
          const int64_t at = first_difference(out, expected);
          ASSERT_EQ(at, -1) << s.name() << " on " << cpu::name_of(isa) << ": " << out.get(at) << " instead of "
                            << expected.get(at) << " for " << (inputs.empty() ? 0.0 : inputs[0].get(at));
          ASSERT_TRUE(out.guards_whole()) << s.name();
          for (const Array& a : inputs) ASSERT_TRUE(a.guards_whole()) << s.name();
          if (draw == Draw::kDomain) expect_near_reference(s, inputs, out, n);
          results.push_back(std::move(out));
        }
        if (results.size() == 2) {
          ASSERT_EQ(first_difference(results[0], results[1]), -1) << s.name();
        }
        ++tried;
      }
    }
  EXPECT_GT(tried, 500);
}

// Lengths around one and several vectors, as heads and tails of a range, for one- to eight-byte elements.
TEST(JitElementwise, EveryLengthAndRange) {
  for (DType d : kAllDTypes) {
    KernelWriter w(Walk::kElements, 1);
    const DType type = d;
    const int a = w.load(d), b = w.load(d), c = w.load(DType::boolean);
    w.store(w.op("select", {c, a, b}, type), d);
    const auto kernel = w.done();
    for (Isa isa : machine_isas()) {
      const LoopCode code = compile_one(isa, kernel);
      for (int64_t n = 0; n <= 70; ++n)
        for (int64_t from : {int64_t{0}, int64_t{16}, int64_t{32}}) {
          if (from > n) continue;
          const int64_t to = n - (n > from ? n % 3 % (n - from) : 0);
          Array x(d, n), y(d, n), mask(DType::boolean, n), out(d, n);
          fill_random(x, 1);
          fill_random(y, 2);
          fill_random(mask, 3);
          Call call(*kernel, {n});
          call.bind_dense(0, x).bind_dense(1, y).bind_dense(2, mask).bind_dense(3, out);
          call.run(code, 0, 1, from, to, kernel->walk);
          const Array fresh(d, n);
          for (int64_t i = 0; i < n; ++i)
            ASSERT_TRUE(Array::same(out,
                                    i < from || i >= to ? fresh
                                    : mask.get(i) != 0  ? x
                                                        : y,
                                    i))
                << name_of(d) << " " << n << " from " << from << " at " << i;
          ASSERT_TRUE(out.guards_whole());
        }
    }
  }
}

// C44: every corner of the conversion, in whole vectors and in tails. Denormals are zeros inside a step.
TEST(JitElementwise, RoundingToBf16) {
  struct Case {
    uint32_t from;
    uint16_t to;
  };
  const Case cases[] = {{0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81}, {0x3F807FFF, 0x3F80},
                        {0x7F7F7FFF, 0x7F7F}, {0x7F7F8000, 0x7F80}, {0x7F7FFFFF, 0x7F80}, {0x7F800000, 0x7F80},
                        {0xFF800000, 0xFF80}, {0x80000000, 0x8000}, {0x00000000, 0x0000}, {0x3E4CCCCD, 0x3E4D},
                        {0x80000001, 0x8000}, {0x00008000, 0x0000}, {0x00018000, 0x0000}, {0x807FFFFF, 0x8000},
                        {0x00800000, 0x0080}};
  const uint32_t nans[] = {0x7F800001, 0x7FC00000, 0x7FFF9ABC, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF};
  KernelWriter w(Walk::kElements, 1);
  w.store(w.load(DType::f32), DType::bf16);
  const auto kernel = w.done();
  KernelWriter back(Walk::kElements, 1);
  back.store(back.load(DType::bf16), DType::f32);
  const auto widen = back.done();
  for (Isa isa : machine_isas())
    for (int64_t n = 1; n <= 33; ++n) {
      Array in(DType::f32, n), out(DType::bf16, n), wide(DType::f32, n);
      auto run = [&] {
        Call(*kernel, {n}).bind_dense(0, in).bind_dense(1, out).run(compile_one(isa, kernel), kernel->walk);
        Call(*widen, {n}).bind_dense(0, out).bind_dense(1, wide).run(compile_one(isa, widen), widen->walk);
      };
      for (const Case& c : cases) {
        for (int64_t i = 0; i < n; ++i) in.at<uint32_t>(i) = c.from;
        run();
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(out.at<uint16_t>(i), c.to) << std::hex << c.from;
          ASSERT_EQ(wide.at<uint32_t>(i), static_cast<uint32_t>(c.to) << 16);
        }
      }
      for (uint32_t nan : nans) {
        for (int64_t i = 0; i < n; ++i) in.at<uint32_t>(i) = nan;
        run();
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_TRUE(std::isnan(out.get(i))) << std::hex << nan;
          ASSERT_EQ(out.at<uint16_t>(i) >> 15, nan >> 31) << "sign of " << std::hex << nan;
        }
      }
    }
}

// A bf16 op rounds its result where the graph makes it, though the value stays in a register.
TEST(JitElementwise, Bf16ChainsRoundAtEachOp) {
  KernelWriter w(Walk::kElements, 1);
  const int a = w.load(DType::bf16), b = w.load(DType::bf16);
  w.store(w.op("add", {w.op("mul", {a, b}, DType::bf16), a}, DType::bf16), DType::bf16);
  const auto kernel = w.done();
  auto rounded = ops::EvalScalarBuilder::rounded_to_bf16;
  for (Isa isa : machine_isas()) {
    Array x(DType::bf16, 50), y(DType::bf16, 50), out(DType::bf16, 50);
    fill_random(x, 1);
    fill_random(y, 2);
    Call(*kernel, {50}).bind_dense(0, x).bind_dense(1, y).bind_dense(2, out).run(compile_one(isa, kernel), kernel->walk);
    for (int64_t i = 0; i < 50; ++i) {
      const float p = static_cast<float>(x.get(i)), q = static_cast<float>(y.get(i));
      ASSERT_EQ(static_cast<float>(out.get(i)), rounded(rounded(p * q) + p));
    }
  }
}

// No contraction: a*b + c is two roundings, fma one; denormals vanish.
TEST(JitElementwise, RoundsTwiceAndFlushes) {
  KernelWriter w(Walk::kElements, 1);
  const int a = w.load(DType::f32), b = w.load(DType::f32), c = w.load(DType::f32);
  w.store(w.op("add", {w.op("mul", {a, b}), c}), DType::f32);
  const auto kernel = w.done();
  const float x = 1 + 0x1p-12f;
  for (Isa isa : machine_isas()) {
    Array p(DType::f32, 20), q(DType::f32, 20), r(DType::f32, 20), out(DType::f32, 20);
    for (int64_t i = 0; i < 20; ++i) p.at<float>(i) = x, q.at<float>(i) = x, r.at<float>(i) = -(x * x);
    p.at<float>(3) = 1e-30f, q.at<float>(3) = 1e-10f, r.at<float>(3) = 0;
    p.at<float>(4) = 1e-40f, q.at<float>(4) = 1e30f, r.at<float>(4) = 0;
    Call(*kernel, {20})
        .bind_dense(0, p)
        .bind_dense(1, q)
        .bind_dense(2, r)
        .bind_dense(3, out)
        .run(compile_one(isa, kernel), kernel->walk);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(out.at<float>(i), 0) << i;
  }
}

// What is not arithmetic leaves denormals as they are, whatever else is in the kernel: a machine's maximum would make zeros of them.
TEST(JitElementwise, SelectsKeepDenormalsFusedOrNot) {
  KernelWriter alone(Walk::kElements, 1), fused(Walk::kElements, 1);
  alone.store(alone.op("relu", {alone.load(DType::f32)}), DType::f32);
  const int x = fused.load(DType::f32), bound = fused.scalar(DType::f32);
  fused.store(fused.op("relu", {fused.op("neg", {x})}), DType::f32);
  fused.store(fused.op("select", {fused.op("lt", {x, bound}, DType::boolean), bound, x}), DType::f32);
  for (Isa isa : machine_isas()) {
    Array in(DType::f32, 20), negated(DType::f32, 20), of_alone(DType::f32, 20), of_fused(DType::f32, 20), raised(DType::f32, 20);
    const float values[] = {1e-40f, -1e-40f, 0.0f, -0.0f, 2.5f, -2.5f, 2e-45f, -2e-45f};
    for (int64_t i = 0; i < 20; ++i) in.at<float>(i) = values[i % 8], negated.at<float>(i) = -values[i % 8];
    Call(*alone.done(), {20}).bind_dense(0, negated).bind_dense(1, of_alone).run(compile_one(isa, alone.done()), Walk::kElements);
    Call call(*fused.done(), {20});
    call.bind_dense(0, in).bind_dense(1, of_fused).bind_dense(2, raised).scalar(0, bits_of(0.0f));
    call.run(compile_one(isa, fused.done()), Walk::kElements);
    EXPECT_EQ(first_difference(of_alone, of_fused), -1);
    for (int64_t i = 0; i < 20; ++i) {
      const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
      const float value = in.at<float>(i);
      EXPECT_EQ(bits(of_fused.at<float>(i)), bits(value > 1 ? 0.0f : -value)) << value;
      EXPECT_EQ(bits(raised.at<float>(i)), bits(value < -1 ? 0.0f : value)) << value;
    }
  }
}

// A conversion is arithmetic: f64 and back makes zeros of denormals, in one kernel as in two.
TEST(JitElementwise, ThereAndBackDropsDenormals) {
  KernelWriter w(Walk::kElements, 1);
  const int wide = w.op("cast", {w.load(DType::f32)}, DType::f64, {{"dtype", DType::f64}});
  w.store(w.op("cast", {w.op("neg", {wide}, DType::f64)}, DType::f32, {{"dtype", DType::f32}}), DType::f32);
  for (Isa isa : machine_isas()) {
    Array in(DType::f32, 20), out(DType::f32, 20);
    const float values[] = {1e-40f, -1e-40f, 0.0f, -0.0f, 2.5f, -2.5f, INFINITY};
    for (int64_t i = 0; i < 20; ++i) in.at<float>(i) = values[i % 7];
    Call(*w.done(), {20}).bind_dense(0, in).bind_dense(1, out).run(compile_one(isa, w.done()), Walk::kElements);
    for (int64_t i = 0; i < 20; ++i) {
      const float value = -in.at<float>(i), kept = std::abs(value) < 1 ? std::copysign(0.0f, value) : value;
      EXPECT_EQ(std::bit_cast<uint32_t>(out.at<float>(i)), std::bit_cast<uint32_t>(kept)) << value;
    }
  }
}

}  // namespace
}  // namespace ws::test
