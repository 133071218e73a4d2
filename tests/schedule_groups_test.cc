// What becomes one kernel, what is stored, and in which order calls run: decided from graphs in text form.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/graph.h"
#include "schedule/program.h"
#include "schedule/views.h"

namespace ws {
namespace {

Program lower(const char* text, bool fuse = true) {
  ScheduleOptions options;
  options.fuse = fuse;
  return schedule(parse(text), options);
}

int index_of(const Program& p, const std::string& start) {
  for (size_t c = 0; c < p.calls.size(); ++c)
    if (p.calls[c].name.rfind(start, 0) == 0) return static_cast<int>(c);
  return -1;
}

constexpr const char* kMomentumStep =
    R"(graph main(%0 "x": f32[64, 16], %1 "g": f32[64, 8], %2 "w": f32[16, 8], %3 "buf": f32[16, 8]) {
  %4 = matmul %0, %1 {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[16, 8]
  %5 = constant {dtype = f32, value = 0.9} : f32[]
  %6 = broadcast %5 {shape = [16, 8]} : f32[16, 8]
  %7 = mul %3, %6 : f32[16, 8]
  %8 = add %7, %4 : f32[16, 8]
  %9 = sub %2, %8 : f32[16, 8]
  return %9 "w" donates 2, %8 "buf" donates 3
})";

// mul(buf, 0.9) is made from inputs alone: it must go to its reader, the hole, not open a loop of its own.
TEST(Groups, AnUpdateLivesInTheHoleOfItsGradient) {
  const Program p = lower(kMomentumStep);
  ASSERT_EQ(p.calls.size(), 1u) << print(p);
  const auto& gemm = std::get<GemmCall>(p.calls[0].what);
  ASSERT_NE(gemm.store, nullptr);
  EXPECT_TRUE(std::all_of(p.buffers.begin(), p.buffers.end(),
                          [](const ProgramBuffer& b) { return b.role != ProgramBuffer::Role::kTemporary; }));
}

TEST(Groups, WithoutFusionEachOpIsAKernel) {
  const Program p = lower(kMomentumStep, false);
  EXPECT_EQ(p.calls.size(), 4u) << print(p);  // matmul, mul, add, sub; the constant is a scalar of its reader
}

TEST(Groups, EqualLoopsShareOneKernel) {
  const Program p = lower(R"(graph main(%0 "x": f32[40], %1 "y": f32[70]) {
    %2 = exp %0 : f32[40]
    %3 = exp %1 : f32[70]
    return %2 "a", %3 "b"
  })");
  ASSERT_EQ(p.calls.size(), 2u);
  EXPECT_EQ(std::get<LoopCall>(p.calls[0].what).kernel, std::get<LoopCall>(p.calls[1].what).kernel);
}

// The hole could store dy*g and dy*x; their one reader can make both from dy.
// The mask of labels is made from a check and a count: it goes to the loop over the logits, which then need one pass.
TEST(Groups, MaskOfCheckedLabelsLivesInTheLoopThatReadsIt) {
  const Program p = lower(R"(graph main(%0 "labels": i32[64], %1 "logits": f32[64, 32]) {
    %2 = check_range %0 {high = 32, low = 0, what = "label"} : i32[64]
    %3 = reduce_max %1 {first_axis = 1, num_axes = 1} : f32[64]
    %4 = reshape %3 {shape = [64, 1]} : f32[64, 1]
    %5 = broadcast %4 {shape = [64, 32]} : f32[64, 32]
    %6 = sub %1, %5 : f32[64, 32]
    %7 = reshape %2 {shape = [64, 1]} : i32[64, 1]
    %8 = iota {axis = 0, dtype = i32, shape = [32]} : i32[32]
    %9 = broadcast %8 {shape = [64, 32]} : i32[64, 32]
    %10 = broadcast %7 {shape = [64, 32]} : i32[64, 32]
    %11 = eq %9, %10 : bool[64, 32]
    %12 = constant {dtype = f32, value = 0.0} : f32[]
    %13 = broadcast %12 {shape = [64, 32]} : f32[64, 32]
    %14 = select %11, %6, %13 : f32[64, 32]
    return %14 "picked"
  })");
  EXPECT_EQ(p.calls.size(), 3u) << print(p);  // check, iota, and all of the rest
}

TEST(Groups, AHoleStoresTheValueThatItsReadersStartFrom) {
  const Program p = lower(R"(graph main(%0 "a": f32[65, 16], %1 "b": f32[16, 32], %2 "x": f32[65, 32], %3 "gain": f32[32]) {
    %4 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[65, 32]
    %5 = broadcast %3 {shape = [65, 32]} : f32[65, 32]
    %6 = mul %4, %5 : f32[65, 32]
    %7 = mul %4, %2 : f32[65, 32]
    %8 = reduce_sum %6 {first_axis = 1, num_axes = 1} : f32[65]
    %9 = reduce_sum %7 {first_axis = 0, num_axes = 1} : f32[32]
    return %8 "rows", %9 "columns"
  })");
  ASSERT_EQ(p.calls.size(), 3u) << print(p);  // product, one pass for both sums, fold
  EXPECT_EQ(p.calls[0].name, "matmul") << print(p);
  EXPECT_EQ(std::get<GemmCall>(p.calls[0].what).store, nullptr);
}

// x + x for the backward pass is cheaper to make there than to keep.
// A value that was rounded and widened again is kept as it was rounded.
TEST(Groups, AHoleStoresTheNarrowerOfTwoEqualValues) {
  const Program p = lower(R"(graph main(%0 "x": bf16[64, 32], %1 "w": bf16[32, 48], %2 "y": f32[64, 48]) {
    %3 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[64, 48]
    %4 = cast %3 {dtype = bf16} : bf16[64, 48]
    %5 = cast %4 {dtype = f32} : f32[64, 48]
    %6 = mul %5, %2 : f32[64, 48]
    %7 = reduce_sum %6 {first_axis = 1, num_axes = 1} : f32[64]
    %8 = reshape %7 {shape = [64, 1]} : f32[64, 1]
    %9 = broadcast %8 {shape = [64, 48]} : f32[64, 48]
    %10 = add %5, %9 : f32[64, 48]
    return %10 "out"
  })");
  ASSERT_EQ(p.calls.size(), 2u) << print(p);
  EXPECT_TRUE(std::none_of(p.buffers.begin(), p.buffers.end(), [](const ProgramBuffer& b) {
    return b.role == ProgramBuffer::Role::kTemporary && b.dtype == DType::f32;
  })) << print(p);
}

// The differences from a row's mean, wanted again later: of a bf16 row it is less to keep the row and the mean; of an fp32 row it is not.
TEST(Groups, ARowLoopKeepsTheMeanWhereThatIsLess) {
  const auto kept = [](const char* dtype) {
    const Program p = lower(fmt::format(R"(graph main(%0 "x": f32[64, 32], %1 "w": bf16[32, 32], %2 "v": bf16[32, 32]) {{
      %3 = cast %0 {{dtype = bf16}} : bf16[64, 32]
      %4 = matmul %3, %1 {{out_dtype = f32, transpose_a = false, transpose_b = false}} : f32[64, 32]
      %5 = cast %4 {{dtype = {0}}} : {0}[64, 32]
      %6 = cast %5 {{dtype = f32}} : f32[64, 32]
      %7 = reduce_sum %6 {{first_axis = 1, num_axes = 1}} : f32[64]
      %8 = reshape %7 {{shape = [64, 1]}} : f32[64, 1]
      %9 = constant {{dtype = f32, value = 32.0}} : f32[]
      %10 = broadcast %9 {{shape = [64, 1]}} : f32[64, 1]
      %11 = div %8, %10 : f32[64, 1]
      %12 = broadcast %11 {{shape = [64, 32]}} : f32[64, 32]
      %13 = sub %6, %12 : f32[64, 32]
      %14 = reduce_max %13 {{first_axis = 1, num_axes = 1}} : f32[64]
      %15 = reshape %14 {{shape = [64, 1]}} : f32[64, 1]
      %16 = broadcast %15 {{shape = [64, 32]}} : f32[64, 32]
      %17 = sub %13, %16 : f32[64, 32]
      %18 = cast %17 {{dtype = bf16}} : bf16[64, 32]
      %19 = matmul %18, %2 {{out_dtype = f32, transpose_a = false, transpose_b = false}} : f32[64, 32]
      %20 = mul %19, %13 : f32[64, 32]
      return %20 "out"
    }})",
                                        dtype)
                                .c_str());
    std::map<std::string, int> count;
    for (const ProgramBuffer& b : p.buffers)
      if (b.role == ProgramBuffer::Role::kTemporary) ++count[fmt::format("{}x{}", name_of(b.dtype), b.num_elements)];
    return count;
  };
  const auto narrow = kept("bf16");
  EXPECT_EQ(narrow.count("f32x2048"), 0u);
  EXPECT_EQ(narrow.at("f32x64"), 1);
  EXPECT_EQ(kept("f32").at("f32x2048"), 2);  // the row and the differences
}

TEST(Groups, CheapValuesAreMadeAgainWhereTheyAreRead) {
  const Program p = lower(R"(graph main(%0 "a": f32[65, 16], %1 "b": f32[16, 32]) {
    %2 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[65, 32]
    %3 = add %2, %2 : f32[65, 32]
    %4 = reduce_sum %2 {first_axis = 1, num_axes = 1} : f32[65]
    %5 = reshape %4 {shape = [65, 1]} : f32[65, 1]
    %6 = broadcast %5 {shape = [65, 32]} : f32[65, 32]
    %7 = mul %3, %6 : f32[65, 32]
    return %7 "y"
  })");
  ASSERT_EQ(p.calls.size(), 2u) << print(p);
  EXPECT_EQ(p.calls[0].name, "matmul");
}

// The second product's update needs a scalar that the program makes last; it must not wait until everything else has run.
TEST(Order, ScalarsRunBeforeTheirFirstReader) {
  const Program p = lower(R"(graph main(%0 "x": f32[64, 16], %1 "w": f32[16, 16], %2 "v": f32[16, 16], %3 "power": f64[]) {
    %4 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[64, 16]
    %5 = matmul %0, %4 {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[16, 16]
    %6 = matmul %4, %2 {out_dtype = f32, transpose_a = false, transpose_b = true} : f32[64, 16]
    %7 = exp %6 : f32[64, 16]
    %8 = matmul %0, %7 {out_dtype = f32, transpose_a = true, transpose_b = false} : f32[16, 16]
    %9 = sqrt %3 : f64[]
    %10 = cast %9 {dtype = f32} : f32[]
    %11 = broadcast %10 {shape = [16, 16]} : f32[16, 16]
    %12 = mul %5, %11 : f32[16, 16]
    %13 = sub %1, %12 : f32[16, 16]
    %14 = sub %2, %8 : f32[16, 16]
    return %13 "w" donates 1, %14 "v" donates 2, %9 "power" donates 3
  })");
  const int scalar = index_of(p, "sqrt"), update = index_of(p, "matmul+mul+sub"), late = index_of(p, "matmul+exp");
  ASSERT_GE(scalar, 0);
  ASSERT_GE(update, 0) << print(p);
  ASSERT_GE(late, 0) << print(p);
  EXPECT_LT(scalar, update);
  EXPECT_LT(update, late) << print(p);
}

// w is still read after its new value is known only through a cycle: the new value waits in a temporary and is copied at the end.
TEST(Order, SwappedStatesGoThroughATemporary) {
  const Program p = lower(R"(graph main(%0 "a": f32[40], %1 "b": f32[40]) {
    %2 = exp %0 : f32[40]
    %3 = exp %1 : f32[40]
    return %3 "a" donates 0, %2 "b" donates 1
  })");
  EXPECT_GE(index_of(p, "copy"), 0) << print(p);
}

TEST(Views, StridesUnderAnotherShape) {
  const Shape from{4, 6};
  EXPECT_EQ(*reshape_strides(from, dense_strides(from), Shape{2, 2, 6}), dense_strides(Shape{2, 2, 6}));
  // Columns 0..2 of a [4, 6]: rows do not join.
  const std::array<int64_t, kMaxRank> window = {6, 1};
  EXPECT_FALSE(reshape_strides(Shape{4, 3}, window, Shape{12}).has_value());
  const auto split = reshape_strides(Shape{4, 3}, window, Shape{2, 2, 3, 1});
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ((*split)[0], 12);
  EXPECT_EQ((*split)[1], 6);
  EXPECT_EQ((*split)[2], 1);
  // A transposed matrix has no strides as a vector.
  const std::array<int64_t, kMaxRank> transposed = {1, 6};
  EXPECT_FALSE(reshape_strides(Shape{6, 4}, transposed, Shape{24}).has_value());
}

}  // namespace
}  // namespace ws
