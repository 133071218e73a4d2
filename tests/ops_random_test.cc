// random_bits is Philox4x32-10: published vectors, and the position, stream and key where they belong.
#include <gtest/gtest.h>

#include "ops/eval_scalar_builder.h"
#include "ops_examples.h"

namespace ws {
namespace {

uint32_t emitted(uint64_t position, int64_t stream, uint32_t key0, uint32_t key1) {
  ops::EvalScalarBuilder b;
  b.linear_position = position;
  const ScalarBuilder::S keys[] = {b.constant(DType::u32, key0), b.constant(DType::u32, key1)};
  return b.bits(find_op("random_bits")->emit(b, keys, {{"stream", stream}, {"offset", int64_t{0}}}));
}

// The first word of the three known answers of Random123 (counter, key): zeros, ones, digits of pi.
TEST(RandomBits, KnownAnswers) {
  EXPECT_EQ(emitted(0, 0, 0, 0), 0x6627e8d5u);
  EXPECT_EQ(emitted(~uint64_t{0}, -1, 0xffffffff, 0xffffffff), 0x408f276du);
  EXPECT_EQ(emitted(0x85a308d3243f6a88u, 0x0370734413198a2e, 0xa4093822, 0x299f31d0), 0xd16cfe09u);
}

TEST(RandomBits, ReferenceAndEmitAgree) {
  const Type type{DType::u32, {4, 5}};
  for (int64_t stream : {int64_t{0}, int64_t{1}, int64_t{0x123456789a}}) {
    const RefArray key0{type, std::vector<double>(20, 4000000000.0)}, key1{type, std::vector<double>(20, 17)};
    const std::vector<RefArray> inputs = {key0, key1};
    const RefArray bits = test::run_reference(*find_op("random_bits"), inputs, {{"stream", stream}, {"offset", int64_t{0}}})[0];
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ(static_cast<uint32_t>(bits.data[i]), emitted(i, stream, 4000000000u, 17));
  }
}

TEST(RandomBits, EveryInputCounts) {
  const uint32_t base = emitted(5, 3, 1, 2);
  EXPECT_NE(emitted(6, 3, 1, 2), base);
  EXPECT_NE(emitted(5 + (uint64_t{1} << 32), 3, 1, 2), base);
  EXPECT_NE(emitted(5, 4, 1, 2), base);
  EXPECT_NE(emitted(5, 3 + (int64_t{1} << 32), 1, 2), base);
  EXPECT_NE(emitted(5, 3, 2, 2), base);
  EXPECT_NE(emitted(5, 3, 1, 3), base);
}

// Mean and each bit's share of 20,000 draws, five standard deviations wide.
TEST(RandomBits, LooksUniform) {
  constexpr int kDraws = 20000;
  double sum = 0;
  std::array<int, 32> ones{};
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t bits = emitted(static_cast<uint64_t>(i), 0, 42, 0);
    sum += bits / 4294967296.0;
    for (size_t k = 0; k < 32; ++k) ones[k] += static_cast<int>(bits >> k & 1u);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
  for (int count : ones) EXPECT_NEAR(count, kDraws / 2, 5 * 0.5 * std::sqrt(kDraws));
}

}  // namespace
}  // namespace ws
