#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/derive_state.h"

namespace ws {
namespace {

// %w is trained, %f frozen, %s a scalar, %x an argument.
constexpr const char* kStep = R"(graph g(%x: f32[4, 32], %w: f32[32, 48], %f: f32[48, 32], %s: f32[]) {
  %1 = cast %x {dtype = bf16} : bf16[4, 32]
  %2 = cast %w {dtype = bf16} : bf16[32, 48]
  %3 = matmul %1, %2 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[4, 48]
  %4 = transpose %w {permutation = [1, 0]} : f32[48, 32]
  %5 = cast %4 {dtype = bf16} : bf16[48, 32]
  %6 = cast %f {dtype = bf16} : bf16[48, 32]
  %7 = add %5, %6 : bf16[48, 32]
  %8 = cast %s {dtype = bf16} : bf16[]
  %9 = broadcast %8 {shape = [48, 32]} : bf16[48, 32]
  %10 = add %7, %9 : bf16[48, 32]
  %11 = relu %w : f32[32, 48]
  %12 = cast %w {dtype = f64} : f64[32, 48]
  return %11 "next/w" donates 1, %3 "y", %10 "z", %12 "wide"
})";

TEST(DeriveState, CopiesBecomeInputsAndOutputs) {
  const DerivedState got = derive_state(parse(kStep), {false, true, true, true});
  ASSERT_EQ(got.derived.size(), 2u);  // not of the argument, not of a scalar, none that is wider
  EXPECT_EQ(got.derived[0].of, 1);
  EXPECT_EQ(got.derived[1].of, 2);
  EXPECT_EQ(
      print(got.graph),
      print(parse(
          R"(graph g(%x: f32[4, 32], %w: f32[32, 48], %f: f32[48, 32], %s: f32[], %dw "derived/bf16/w": bf16[32, 48], %df "derived/bf16/f": bf16[48, 32]) {
  %1 = cast %x {dtype = bf16} : bf16[4, 32]
  %3 = matmul %1, %dw {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[4, 48]
  %5 = transpose %dw {permutation = [1, 0]} : bf16[48, 32]
  %7 = add %5, %df : bf16[48, 32]
  %8 = cast %s {dtype = bf16} : bf16[]
  %9 = broadcast %8 {shape = [48, 32]} : bf16[48, 32]
  %10 = add %7, %9 : bf16[48, 32]
  %11 = relu %w : f32[32, 48]
  %12 = cast %w {dtype = f64} : f64[32, 48]
  %13 = cast %11 {dtype = bf16} : bf16[32, 48]
  return %11 "next/w" donates 1, %3 "y", %10 "z", %12 "wide", %13 "next/derived/bf16/w" donates 4
})")));
  verify(got.graph);
}

TEST(DeriveState, OnlyOfWhatIsKept) {
  const Graph graph = parse(kStep);
  EXPECT_TRUE(derive_state(graph, {false, false, false, true}).derived.empty());
  const DerivedState got = derive_state(graph, {false, false, true, false});
  ASSERT_EQ(got.derived.size(), 1u);
  EXPECT_EQ(got.derived[0].of, 2);
  EXPECT_EQ(got.graph.outputs().size(), graph.outputs().size());  // the step does not write it
}

}  // namespace
}  // namespace ws
