// Storage: memory of tensors, from a caching allocator. Fresh memory costs a page fault per 4 KiB (44 MiB: 21 ms), so
// freed blocks are kept by size class and handed out again; the loop reaches a steady state after its first step.
#pragma once
#include <atomic>
#include <cstdint>
#include <utility>

namespace ws {

/// A block of memory, 64-byte aligned. Counted by StorageRef; returns to the allocator with its last one.
struct Storage {
  void* data = nullptr;
  int64_t num_bytes = 0;  // of the block: at least what was asked for
  int size_class = 0;
  std::atomic<int32_t> count{0};
  Storage* next_free = nullptr;
};

void recycle(Storage* storage);

/// Counted handle. Intrusive, since an op of the loop makes one and a shared_ptr's control block would cost as much as the rest.
class StorageRef {
 public:
  StorageRef() = default;
  explicit StorageRef(Storage* fresh) : storage_(fresh) { retain(); }
  StorageRef(const StorageRef& other) : storage_(other.storage_) { retain(); }
  StorageRef(StorageRef&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StorageRef& operator=(StorageRef other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StorageRef() {
    if (storage_ && storage_->count.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(storage_);
  }
  explicit operator bool() const { return storage_ != nullptr; }
  Storage* operator->() const { return storage_; }
  Storage* get() const { return storage_; }
  /// Held by this handle alone: its bytes may be written over.
  bool unique() const { return storage_->count.load(std::memory_order_acquire) == 1; }

 private:
  void retain() {
    if (storage_) storage_->count.fetch_add(1, std::memory_order_relaxed);
  }
  Storage* storage_ = nullptr;
};

/// Never null; contents are whatever was there. std::bad_alloc where the system has no memory left.
StorageRef allocate_storage(int64_t num_bytes);

struct AllocatorStats {
  int64_t live_bytes = 0;    // in blocks that handles hold
  int64_t cached_bytes = 0;  // in blocks kept for reuse
  int64_t peak_live_bytes = 0;
  int64_t system_requests = 0;  // blocks and slabs asked from the backend since the start
};
AllocatorStats allocator_stats();
/// The peak starts again from what is live now.
void reset_allocator_peak();
/// Gives large cached blocks back to the backend: before a compiled step's arena is allocated.
void release_cached_memory();

}  // namespace ws
