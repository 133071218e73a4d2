// What is left of a kernel that runs again for some of its results only.
#include "schedule/drop_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/graph.h"

namespace ws {
namespace {

int buffer_of_output(const Program& p, int output) { return p.outputs[static_cast<size_t>(output)].buffer; }
std::vector<std::string> ops_of(const LoopCall& loop) {
  std::vector<std::string> ops;
  for (const LoopInstr& i : loop.kernel->body)
    if (i.kind == LoopInstr::Kind::kOp) ops.emplace_back(i.op->name);
  return ops;
}
bool has(const std::vector<int>& list, int x) { return std::find(list.begin(), list.end(), x) != list.end(); }

TEST(DropStore, OfALoopTakesWhatOnlyItNeeded) {
  const Program p = schedule(parse(R"(graph main(%0 "x": f32[64], %1 "y": f32[64]) {
    %2 = exp %0 : f32[64]
    %3 = mul %2, %1 : f32[64]
    return %2 "a", %3 "b"
  })"),
                             {});
  ASSERT_EQ(p.calls.size(), 1u) << print(p);
  const int a = buffer_of_output(p, 0), b = buffer_of_output(p, 1);
  KernelCall call = p.calls[0];
  ASSERT_TRUE(drop_store(call, b));
  const auto& loop = std::get<LoopCall>(call.what);
  EXPECT_EQ(ops_of(loop), std::vector<std::string>{"exp"});
  EXPECT_EQ(call.writes, std::vector<int>{a});
  EXPECT_EQ(call.reads, std::vector<int>{p.input_buffers[0]});
  EXPECT_EQ(loop.accesses.size(), 2u);
  EXPECT_EQ(loop.kernel->accesses.size(), 2u);
  EXPECT_EQ(call.cost.bytes, 2 * 64 * 4);
  EXPECT_EQ(std::get<LoopCall>(p.calls[0].what).accesses.size(), 4u) << "the original keeps its own";
  EXPECT_FALSE(drop_store(call, a)) << "nothing would be left";
  EXPECT_FALSE(drop_store(call, p.input_buffers[0])) << "only read";

  KernelCall other = p.calls[0];
  ASSERT_TRUE(drop_store(other, a));
  EXPECT_EQ(ops_of(std::get<LoopCall>(other.what)), (std::vector<std::string>{"exp", "mul"}));
  EXPECT_FALSE(has(other.writes, a));
}

TEST(DropStore, RowsStayRows) {
  const Program p = schedule(parse(R"(graph main(%0 "x": f32[64, 32]) {
    %1 = reduce_sum %0 {first_axis = 1, num_axes = 1} : f32[64]
    %2 = exp %0 : f32[64, 32]
    return %1 "sum", %2 "e"
  })"),
                             {});
  ASSERT_EQ(p.calls.size(), 1u) << print(p);
  KernelCall call = p.calls[0];
  EXPECT_FALSE(drop_store(call, buffer_of_output(p, 0))) << "a loop over rows without a sum over them";
  EXPECT_TRUE(drop_store(call, buffer_of_output(p, 1)));
  EXPECT_TRUE(ops_of(std::get<LoopCall>(call.what)).empty());
}

TEST(DropStore, OfAHoleStillReadsTheTile) {
  const Program p = schedule(parse(R"(graph main(%0 "a": f32[65, 16], %1 "b": f32[16, 32], %2 "x": f32[65, 32]) {
    %3 = matmul %0, %1 {out_dtype = f32, transpose_a = false, transpose_b = false} : f32[65, 32]
    %4 = exp %3 : f32[65, 32]
    %5 = mul %4, %2 : f32[65, 32]
    return %4 "e", %5 "y"
  })"),
                             {});
  ASSERT_EQ(p.calls.size(), 1u) << print(p);
  KernelCall call = p.calls[0];
  ASSERT_TRUE(drop_store(call, buffer_of_output(p, 1)));
  const auto& gemm = std::get<GemmCall>(call.what);
  EXPECT_EQ(ops_of(*gemm.store), std::vector<std::string>{"exp"});
  EXPECT_FALSE(has(call.reads, p.input_buffers[2]));
  EXPECT_TRUE(has(call.reads, p.input_buffers[0]) && has(call.reads, p.input_buffers[1]));
}

}  // namespace
}  // namespace ws
