// Cuts a data set into batches: contiguous slices in order, or rows picked in a shuffled order.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "wholestep/random.h"
#include "wholestep/tensor.h"

namespace ws {

/// Throws an Error that names `what` where there are no samples or the lengths differ. Returns the number of samples.
int64_t check_samples(const Tensor& X, const Tensor& y, const char* what);

class Batches {
 public:
  /// X [N, ..], y [N, ..] or undefined.
  Batches(const Tensor& X, const Tensor& y, int64_t batch_size, bool drop_last);
  /// A new order; without a call batches follow the data.
  void shuffle(Key key);
  int64_t count() const;
  int64_t num_samples(int64_t batch) const;
  /// Batch `i` of X and of y.
  std::pair<Tensor, Tensor> operator[](int64_t i) const;

 private:
  Tensor rows(const Tensor& from, int64_t start, int64_t stop) const;
  Tensor X_, y_;
  int64_t num_samples_, batch_size_;
  bool drop_last_;
  std::vector<int64_t> order_;  // empty: as they come
};

}  // namespace ws
