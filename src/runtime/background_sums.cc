#include "runtime/background_sums.h"

#include "support/float_mode.h"

namespace ws {

BackgroundSums::BackgroundSums(std::function<void(Bucket)> add_up) : add_up_(std::move(add_up)), thread_([this] { work(); }) {}

BackgroundSums::~BackgroundSums() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

int64_t BackgroundSums::begin(Bucket bucket) {
  int64_t ticket = 0;
  {
    std::lock_guard lock(mutex_);
    if (done_ == next_) buckets_.clear(), first_ = next_;  // nobody reads them any more
    buckets_.push_back(bucket);
    ticket = next_++;
  }
  wake_.notify_one();
  return ticket;
}

void BackgroundSums::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done_ > ticket; });
}

void BackgroundSums::wait_for_all() {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return done_ == next_; });
}

void BackgroundSums::work() {
  const FlushDenormals mode;  // the step's
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return ends_ || done_ < next_; });
    if (done_ == next_) return;
    const Bucket bucket = buckets_[static_cast<size_t>(done_ - first_)];
    lock.unlock();
    add_up_(bucket);
    lock.lock();
    ++done_;
    finished_.notify_all();
  }
}

}  // namespace ws
