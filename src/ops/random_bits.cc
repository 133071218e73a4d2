// random_bits: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), a pure function of key, stream and element position.
#include "ops/op_helpers.h"
#include "ops/op_list.h"
#include "ops/philox.h"

namespace ws::ops {

namespace {

S emit_philox(ScalarBuilder& b, S key0, S key1, uint64_t stream, uint64_t offset) {
  const auto u32 = [&](uint32_t v) { return b.constant(DType::u32, v); };
  S low = b.linear_index_low(), high = b.linear_index_high();
  if (offset != 0) {  // in 64 bits
    const S first = u32(static_cast<uint32_t>(offset));
    low = b.add(low, first);
    high = b.add(b.add(high, u32(static_cast<uint32_t>(offset >> 32))), b.select(b.lt(low, first), u32(1), u32(0)));
  }
  std::array<S, 4> c = {low, high, u32(static_cast<uint32_t>(stream)), u32(static_cast<uint32_t>(stream >> 32))};
  const S m0 = u32(kPhiloxMultiplier0), m1 = u32(kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const S high0 = b.mul_high_u32(m0, c[0]), low0 = b.mul(m0, c[0]);
    const S high1 = b.mul_high_u32(m1, c[2]), low1 = b.mul(m1, c[2]);
    c = {b.bit_xor(b.bit_xor(high1, c[1]), key0), low1, b.bit_xor(b.bit_xor(high0, c[3]), key1), low0};
    if (round + 1 < kPhiloxRounds) key0 = b.add(key0, u32(kPhiloxWeyl0)), key1 = b.add(key1, u32(kPhiloxWeyl1));
  }
  return c[0];
}

}  // namespace

// Element i: word 0 of the block with counter (offset + i, 64 bits; stream, 64 bits) under the element's key. One block an element:
// any element can be made alone, by any rank, thread or recomputation.
const OpDef& random_bits_op() {
  static const OpDef def = {
      .name = "random_bits",
      .arity = 2,
      .num_results = 1,
      .traits = kRandom | kIndexed | kExpensive,
      .lowering = Lowering::kElementwise,
      .attrs = {{"stream", AttrSpec::Kind::integer}, {"offset", AttrSpec::Kind::integer}},
      .infer = [](Types in, const Attrs& attrs) -> std::vector<Type> {
        expect_dtype("random_bits", in[0], bit(DType::u32));
        expect_same_type("random_bits", in[0], in[1]);
        if (attrs.integer("offset") < 0) fail("random_bits: offset {} must not be negative", attrs.integer("offset"));
        return {in[0]};
      },
      .vjp = [](Builder&, const OpDef::VjpArgs&) -> Grads {
        return {Value{}, Value{}};
      },
      .cost = [](Types in, Types out, const Attrs&) { return streaming_cost(in, out, 100); },
      .reference =
          [](Arrays in, const Attrs& attrs, std::span<RefArray> out) {
            const auto stream = static_cast<uint64_t>(attrs.integer("stream"));
            const auto offset = static_cast<uint64_t>(attrs.integer("offset"));
            fill(out[0], [&](int64_t i) {
              const auto j = static_cast<size_t>(i);
              return static_cast<double>(
                  philox_word0(offset + j, stream, static_cast<uint32_t>(in[0].data[j]), static_cast<uint32_t>(in[1].data[j])));
            });
          },
      .emit =
          [](ScalarBuilder& b, std::span<const S> in, const Attrs& attrs) {
            return emit_philox(b, in[0], in[1], static_cast<uint64_t>(attrs.integer("stream")),
                               static_cast<uint64_t>(attrs.integer("offset")));
          },
      .domain = {TestDomain{}},
  };
  return def;
}

}  // namespace ws::ops
