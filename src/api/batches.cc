#include "api/batches.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"
#include "tensor/tensor_impl.h"

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

int64_t Batches::num_bytes() const {
  auto bytes = [](const Tensor& t) { return t.defined() ? t.size() * static_cast<int64_t>(size_of(t.dtype())) : 0; };
  return (bytes(X_) + bytes(y_)) / num_samples_ * std::min(batch_size_, num_samples_);
}

Batches::Pair Batches::operator[](int64_t i) const {
  int64_t start = i * batch_size_, stop = start + num_samples(i);
  return {rows(X_, start, stop), y_.defined() ? rows(y_, start, stop) : Tensor()};
}

Tensor Batches::rows(const Tensor& from, int64_t start, int64_t stop) const {
  if (order_.empty()) return from.slice(0, start, stop);
  std::vector<int64_t> dims(from.shape().begin(), from.shape().end());
  dims[0] = stop - start;
  auto picked = new_dense({from.dtype(), Shape(dims)});
  auto row_bytes = static_cast<size_t>(from.size() / from.dim(0)) * size_of(from.dtype());
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(picked->pointer());
  for (int64_t i = start; i < stop; ++i, target += row_bytes)
    std::memcpy(target, source + static_cast<size_t>(order_[static_cast<size_t>(i)]) * row_bytes, row_bytes);
  return Tensor(std::move(picked));
}

Batches::Pair EpochBatches::at(int64_t position) {
  int64_t epoch = position / batches_.count();
  if (key_ && epoch != epoch_) batches_.shuffle(key_->fold(static_cast<uint64_t>(epoch)));
  epoch_ = epoch;
  return batches_[position % batches_.count()];
}

bool EpochBatches::worth_a_thread() const {
  constexpr int64_t kBytes = 64 << 10;            // handing a batch over takes as long as copying some ten KiB
  return key_ && batches_.num_bytes() >= kBytes;  // batches in order are views
}

BatchStream::BatchStream(EpochBatches batches, int64_t first, int64_t last, bool prefetch)
    : batches_(std::move(batches)), next_(first) {
  if (prefetch && batches_.worth_a_thread())
    ahead_.emplace([this](int64_t position) { return batches_.at(position); }, first, last);
}

}  // namespace ws
