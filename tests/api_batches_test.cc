// Batches gathered ahead by a thread are those gathered when they are asked for.
#include "api/batches.h"

#include <atomic>

#include "api_util.h"

namespace ws::testing {
namespace {

TEST(Batches, PrefetchedAreTheSameOverEpochsAndFromTheMiddle) {
  Tensor X = random_floats({100, 40, 50}, 1), y = random_ints({100}, 10, 2);  // above the size from which a thread is used
  for (int64_t first : {0, 5}) {
    BatchStream plain({Batches(X, y, 16, false), Key(3)}, first, 21, false),
        ahead({Batches(X, y, 16, false), Key(3)}, first, 21, true);
    for (int64_t i = first; i < 21; ++i) {
      auto [a, b] = plain.next();
      auto [c, d] = ahead.next();
      EXPECT_EQ(a.dim(0), i % 7 == 6 ? 4 : 16);
      ASSERT_EQ(bytes(a) + bytes(b), bytes(c) + bytes(d)) << i;
    }
  }
  BatchStream left_early({Batches(X, y, 16, false), Key(3)}, 0, 1000000, true);
  left_early.next();
}

TEST(Batches, PrefetchedFromViewsC51) {
  Tensor X = random_floats({60, 50, 64}, 1), view = X.transpose({1, 2, 0});  // [50, 64, 60]
  Tensor y = random_floats({50}, 2);
  BatchStream of_view({Batches(view, y, 8, true), Key(1)}, 0, 12, true);
  BatchStream of_copy({Batches(view.contiguous(), y, 8, true), Key(1)}, 0, 12, false);
  for (int i = 0; i < 12; ++i) ASSERT_EQ(bytes(of_view.next().first), bytes(of_copy.next().first));
}

TEST(Prefetcher, HandsOnErrorsInTheirPlace) {
  Prefetcher<int> numbers([](int64_t i) { return i == 3 ? throw Error("three") : static_cast<int>(i); }, 0, 10);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers.next(), i);
  EXPECT_EQ(error_of([&] { numbers.next(); }), "three");
  EXPECT_EQ(error_of([&] { numbers.next(); }), "three");
}

TEST(Prefetcher, StaysAheadByAFewOnly) {
  std::atomic<int> made{0};
  Prefetcher<int> numbers([&](int64_t i) { return ++made, static_cast<int>(i); }, 0, 1000, 2);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(numbers.next(), i);
  EXPECT_LE(made, 54);
}

TEST(Trainer, PrefetchDoesNotChangeTheBits) {
  Tensor X = random_floats({600, 64}, 1), y = random_floats({600, 8}, 2);
  std::string first;
  for (bool compile : {false, true})
    for (bool prefetch : {false, true}) {
      auto model = models::mlp({64, 32, 8}, Key(0));
      Trainer trainer(model, MSE(), Adam({.lr = 0.01}), {.compile = compile});
      trainer.fit(X, y, {.epochs = 2, .batch_size = 256, .prefetch = prefetch});
      if (first.empty()) first = bytes(model);
      EXPECT_TRUE(bytes(model) == first) << compile << prefetch;
    }
}

}  // namespace
}  // namespace ws::testing
