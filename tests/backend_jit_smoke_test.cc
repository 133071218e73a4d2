#include "backend_jit_support.h"

namespace ws::test {
namespace {

TEST(JitSmoke, ReluOfFma) {
  for (Isa isa : machine_isas()) {
    KernelWriter w(Walk::kElements, 1);
    const int a = w.load(DType::f32), b = w.load(DType::f32), c = w.load(DType::f32);
    w.store(w.op("relu", {w.op("add", {w.op("mul", {a, b}), c})}), DType::f32);
    const auto kernel = w.done();
    const LoopCode code = compile_one(isa, kernel);
    for (int64_t n = 0; n < 200; ++n) {
      Array x(DType::f32, n), y(DType::f32, n), z(DType::f32, n), out(DType::f32, n);
      fill_random(x, 1); fill_random(y, 2); fill_random(z, 3);
      Call call(*kernel, {n});
      call.bind_dense(0, x).bind_dense(1, y).bind_dense(2, z).bind_dense(3, out);
      call.run(code, kernel->walk);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.at<float>(i), std::max(0.f, x.at<float>(i) * y.at<float>(i) + z.at<float>(i)));
      ASSERT_TRUE(out.guards_whole());
    }
  }
}

}  // namespace
}  // namespace ws::test
