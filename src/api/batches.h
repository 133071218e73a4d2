// Cuts a data set into batches: contiguous slices in order, or rows picked in a shuffled order; and the batches of many epochs in a row.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "api/prefetch.h"
#include "wholestep/random.h"
#include "wholestep/tensor.h"

namespace ws {

/// Throws an Error that names `what` where there are no samples or the lengths differ. Returns the number of samples.
int64_t check_samples(const Tensor& X, const Tensor& y, const char* what);

class Batches {
 public:
  using Pair = std::pair<Tensor, Tensor>;
  /// X [N, ..], y [N, ..] or undefined.
  Batches(const Tensor& X, const Tensor& y, int64_t batch_size, bool drop_last);
  /// A new order; without a call batches follow the data.
  void shuffle(Key key);
  int64_t count() const;
  int64_t num_samples(int64_t batch) const;
  /// Of one whole batch.
  int64_t num_bytes() const;
  /// Batch `i` of X and of y.
  Pair operator[](int64_t i) const;

 private:
  Tensor rows(const Tensor& from, int64_t start, int64_t stop) const;
  Tensor X_, y_;
  int64_t num_samples_, batch_size_;
  bool drop_last_;
  std::vector<int64_t> order_;  // empty: as they come
};

/// The batches of many epochs in a row, epoch e in the order of key.fold(e), or in the order of the data.
class EpochBatches {
 public:
  EpochBatches(Batches batches, std::optional<Key> shuffle) : batches_(std::move(batches)), key_(shuffle) {}
  /// The batch at a position counted through the epochs. A new epoch draws a new order, so ask in turn.
  Batches::Pair at(int64_t position);
  /// Whether gathering a batch is work worth a thread's.
  bool worth_a_thread() const;

 private:
  Batches batches_;
  std::optional<Key> key_;
  int64_t epoch_ = -1;  // of the order that batches_ has
};

/// Those from position `first` to `last`, gathered ahead by a thread of their own where that pays.
class BatchStream {
 public:
  BatchStream(EpochBatches batches, int64_t first, int64_t last, bool prefetch);
  Batches::Pair next() { return ahead_ ? ahead_->next() : batches_.at(next_++); }

 private:
  EpochBatches batches_;
  int64_t next_;
  std::optional<Prefetcher<Batches::Pair>> ahead_;
};

}  // namespace ws
