#include "api/batches.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"

namespace ws {

int64_t check_samples(const Tensor& X, const Tensor& y, const char* what) {
  if (!X.defined() || X.rank() < 1) fail("{}: X must be a tensor whose first dim counts the samples", what);
  if (X.dim(0) < 1) fail("{}: X {} holds no samples", what, X.shape().str());
  if (y.defined() && (y.rank() < 1 || y.dim(0) != X.dim(0)))
    fail("{}: X {} and y {} must have as many samples, their first dim", what, X.shape().str(), y.shape().str());
  return X.dim(0);
}

Batches::Batches(const Tensor& X, const Tensor& y, int64_t batch_size, bool drop_last)
    : X_(X.contiguous()), y_(y.defined() ? y.contiguous() : y), num_samples_(X.dim(0)), batch_size_(batch_size),
      drop_last_(drop_last) {}

void Batches::shuffle(Key key) { order_ = random_permutation(key, num_samples_); }

int64_t Batches::count() const {
  return drop_last_ ? num_samples_ / batch_size_ : (num_samples_ + batch_size_ - 1) / batch_size_;
}

int64_t Batches::num_samples(int64_t batch) const { return std::min(batch_size_, num_samples_ - batch * batch_size_); }

std::pair<Tensor, Tensor> Batches::operator[](int64_t i) const {
  int64_t start = i * batch_size_, stop = start + num_samples(i);
  return {rows(X_, start, stop), y_.defined() ? rows(y_, start, stop) : Tensor()};
}

Tensor Batches::rows(const Tensor& from, int64_t start, int64_t stop) const {
  if (order_.empty()) return from.slice(0, start, stop);
  auto row_bytes = static_cast<size_t>(from.size() / from.dim(0)) * size_of(from.dtype());
  std::vector<std::byte> picked(static_cast<size_t>(stop - start) * row_bytes);
  const auto* source = static_cast<const std::byte*>(from.data());
  for (int64_t i = start; i < stop; ++i)
    std::memcpy(picked.data() + static_cast<size_t>(i - start) * row_bytes,
                source + static_cast<size_t>(order_[static_cast<size_t>(i)]) * row_bytes, row_bytes);
  std::vector<int64_t> dims(from.shape().begin(), from.shape().end());
  dims[0] = stop - start;
  return Tensor::from_bytes(picked.data(), from.dtype(), Shape(dims));
}

}  // namespace ws
