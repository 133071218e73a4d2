// The collectives themselves: order of the sum, sizes around every limit, in place, all dtypes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "support/communicator.h"
#include "wholestep/distributed.h"
#include "wholestep/random.h"

namespace ws {
namespace {

std::vector<float> numbers_of(int rank, int64_t count) {
  RandomStream stream(Key(static_cast<uint64_t>(rank)).fold("numbers"));
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = static_cast<float>(stream.normal() * 1e3);
  return numbers;
}

TEST(AllReduce, AddsInTheOrderOfTheRanks) {
  Communicator& ranks = communicator();
  for (int64_t count : {0, 1, 2, 7, 1023, 1024, 1025, 4097, 131071, 131072 * 2 + 3, 700001}) {
    std::vector<float> want = numbers_of(0, count);
    for (int r = 1; r < ranks.num_ranks(); ++r) {
      const std::vector<float> more = numbers_of(r, count);
      for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
    }
    std::vector<float> mine = numbers_of(ranks.rank(), count), sum(mine.size());
    const std::vector<float> before = mine;
    ranks.all_reduce(mine.data(), sum.data(), count, DType::f32, Communicator::Reduction::sum);
    EXPECT_EQ(sum, want) << count;
    EXPECT_EQ(mine, before) << count;
    ranks.all_reduce(mine.data(), mine.data(), count, DType::f32, Communicator::Reduction::sum);
    EXPECT_EQ(mine, want) << count << ", in place";
  }
}

// Buckets of arrays of all sizes, several under way at once, with the bits of one all-reduce each; what comes after them waits.
TEST(BucketSums, HaveTheBitsOfAllReduce) {
  Communicator& ranks = communicator();
  const std::vector<std::vector<int64_t>> buckets = {
      {1}, {3, 0, 5, 1}, {1000, 70001, 7}, {300000}, {200000, 200000, 1, 65536, 300001}, {0}, {}, {65536, 65536, 65536}};
  std::vector<std::vector<std::vector<float>>> data(buckets.size()), want(buckets.size());
  std::vector<std::vector<Communicator::Numbers>> numbers(buckets.size());
  for (size_t b = 0; b < buckets.size(); ++b)
    for (int64_t count : buckets[b]) {
      data[b].push_back(numbers_of(ranks.rank(), count));
      want[b].push_back(data[b].back());
      ranks.all_reduce(want[b].back().data(), want[b].back().data(), count, DType::f32, Communicator::Reduction::sum);
    }
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (auto& array : data[b]) numbers[b].push_back({array.data(), static_cast<int64_t>(array.size())});
    ranks.begin_sum(static_cast<int64_t>(b), numbers[b]);
  }
  ranks.finish_sum(2);
  EXPECT_EQ(data[2], want[2]);
  float one = 1;  // behind all of them
  ranks.all_reduce(&one, &one, 1, DType::f32, Communicator::Reduction::sum);
  EXPECT_EQ(one, static_cast<float>(ranks.num_ranks()));
  for (size_t b = buckets.size(); b-- > 0;) {
    ranks.finish_sum(static_cast<int64_t>(b));
    EXPECT_EQ(data[b], want[b]) << "bucket " << b;
  }
  const auto times = ranks.times();
  EXPECT_GT(times.total_s, 0);
  EXPECT_GT(times.exposed_s, 0);
}

TEST(AllReduce, OtherTypesAndMaximum) {
  Communicator& ranks = communicator();
  const int k = ranks.num_ranks();
  double d = 0.1 * (ranks.rank() + 1), d_want = 0.1;
  for (int r = 1; r < k; ++r) d_want += 0.1 * (r + 1);
  ranks.all_reduce(&d, &d, 1, DType::f64, Communicator::Reduction::sum);
  EXPECT_EQ(d, d_want);
  int32_t i = -5 + ranks.rank();
  ranks.all_reduce(&i, &i, 1, DType::i32, Communicator::Reduction::maximum);
  EXPECT_EQ(i, -5 + k - 1);
  float nan = ranks.rank() == k - 1 ? std::numeric_limits<float>::quiet_NaN() : 1;
  ranks.all_reduce(&nan, &nan, 1, DType::f32, Communicator::Reduction::maximum);
  EXPECT_TRUE(std::isnan(nan));
}

TEST(AllGather, UnevenParts) {
  Communicator& ranks = communicator();
  const int k = ranks.num_ranks();
  for (int64_t rows : {0, 1, k, 3 * k + 1, 1000003}) {
    std::vector<int32_t> want(static_cast<size_t>(rows)), all(want.size(), -1);
    std::iota(want.begin(), want.end(), 0);
    const auto [begin, end] = rows_of_rank(rows, k, ranks.rank());
    std::vector<int64_t> bytes;
    for (int r = 0; r < k; ++r) bytes.push_back(4 * (rows_of_rank(rows, k, r).second - rows_of_rank(rows, k, r).first));
    ranks.all_gather(want.data() + begin, all.data(), bytes);
    EXPECT_EQ(all, want) << rows;
    EXPECT_LE(end - begin, rows / k + 1);
  }
}

TEST(Decisions, AreCommon) {
  EXPECT_FALSE(distributed::any(false));
  EXPECT_TRUE(distributed::any(distributed::rank() == distributed::size() - 1));
}

}  // namespace
}  // namespace ws
