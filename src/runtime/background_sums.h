// BackgroundSums: a thread that adds up buckets of gradients one after the other while the step computes. Takes the function that
// does it; one thread at a time gives it buckets and waits for them by ticket. Allocates nothing once it has seen a step.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "support/communicator.h"

namespace ws {

class BackgroundSums {
 public:
  using Bucket = std::span<const Communicator::Numbers>;
  explicit BackgroundSums(std::function<void(Bucket)> add_up);  // throws nothing
  ~BackgroundSums();                                            // when the last one is done
  BackgroundSums(const BackgroundSums&) = delete;
  BackgroundSums& operator=(const BackgroundSums&) = delete;

  /// Tickets grow by one.
  int64_t begin(Bucket bucket);
  /// Until the bucket of that ticket is done, and so all before it.
  void wait(int64_t ticket);
  void wait_for_all();

 private:
  void work();
  const std::function<void(Bucket)> add_up_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::vector<Bucket> buckets_;              // by ticket, from first_
  int64_t first_ = 0, next_ = 0, done_ = 0;  // tickets: of buckets_; of the bucket that comes next; those below are done
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace ws
