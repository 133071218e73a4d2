// Items made ahead of their use by a thread of their own, in order: the next batch is gathered while the step runs on this one.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace ws {

/// Calls make(first), make(first + 1), .. up to last - 1, at most `ahead` items before they are taken. `make` runs in the thread only.
template <class Item>
class Prefetcher {
 public:
  Prefetcher(std::function<Item(int64_t)> make, int64_t first, int64_t last, size_t ahead = 2)
      : make_(std::move(make)), ahead_(ahead), thread_([this, first, last] { work(first, last); }) {}
  ~Prefetcher() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_one();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item. What make() threw for it is thrown here, and from then on.
  Item next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !items_.empty() || failure_; });
    if (items_.empty()) std::rethrow_exception(failure_);
    Item item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    room_.notify_one();
    return item;
  }

 private:
  void work(int64_t first, int64_t last) {
    try {
      for (int64_t i = first; i < last; ++i) {
        {
          std::unique_lock lock(mutex_);
          room_.wait(lock, [&] { return stopping_ || items_.size() < ahead_; });
          if (stopping_) return;
        }
        Item item = make_(i);
        std::lock_guard lock(mutex_);
        items_.push_back(std::move(item));
        ready_.notify_one();
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      ready_.notify_one();
    }
  }

  std::function<Item(int64_t)> make_;
  const size_t ahead_;
  std::mutex mutex_;
  std::condition_variable ready_, room_;
  std::deque<Item> items_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace ws
