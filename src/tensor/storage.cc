#include "tensor/storage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <new>

#include "backend/backend.h"

namespace ws {
namespace {

// Size classes: multiples of 64 bytes up to 1 KiB, then eight steps an octave (at most 1/8 wasted).
constexpr int64_t kAlignment = 64, kSmallLimit = 1024, kSlabBytes = 256 << 10, kSlabLimit = 32 << 10, kLargeBytes = 1 << 20;
constexpr int kNumClasses = 16 + 8 * 48;

struct SizeClass {
  int index;
  int64_t num_bytes;
};

SizeClass size_class_of(int64_t num_bytes) {
  num_bytes = std::max<int64_t>(num_bytes, 1);
  if (num_bytes <= kSmallLimit) {
    int64_t units = (num_bytes + kAlignment - 1) / kAlignment;
    return {static_cast<int>(units - 1), units * kAlignment};
  }
  int octave = std::bit_width(static_cast<uint64_t>(num_bytes - 1)) - 1;
  int64_t base = int64_t{1} << octave, step = base / 8;
  int64_t steps = (num_bytes - base + step - 1) / step;  // 1..8
  return {16 + (octave - 10) * 8 + static_cast<int>(steps) - 1, base + steps * step};
}

class Allocator {
 public:
  Storage* take(int64_t num_bytes) {
    SizeClass wanted = size_class_of(num_bytes);
    if (wanted.index >= kNumClasses) throw std::bad_alloc();
    std::lock_guard lock(mutex_);
    Storage* storage = pop(wanted);
    if (!storage) storage = wanted.num_bytes <= kSlabLimit ? carve(wanted) : ask_backend(wanted);
    live_bytes_ += storage->num_bytes;
    peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
    return storage;
  }

  void give_back(Storage* storage) {
    std::lock_guard lock(mutex_);
    live_bytes_ -= storage->num_bytes;
    push(storage);
  }

  void release_large() {
    std::lock_guard lock(mutex_);
    for (Storage*& head : free_) {
      if (!head || head->num_bytes <= kSlabLimit) continue;  // parts of slabs stay
      while (head) {
        Storage* storage = std::exchange(head, head->next_free);
        cached_bytes_ -= storage->num_bytes;
        cpu_backend().release(storage->data, storage->num_bytes);
        delete storage;
      }
    }
  }

  void reset_peak() {
    std::lock_guard lock(mutex_);
    peak_live_bytes_ = live_bytes_;
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return {live_bytes_, cached_bytes_, peak_live_bytes_, system_requests_};
  }

 private:
  Storage* pop(SizeClass wanted) {
    // Large blocks may come from the next two classes (a quarter larger at most): a shorter last batch reuses its memory.
    int last = wanted.num_bytes >= kLargeBytes ? std::min(wanted.index + 2, kNumClasses - 1) : wanted.index;
    for (int c = wanted.index; c <= last; ++c) {
      Storage*& head = free_[static_cast<size_t>(c)];
      if (!head) continue;
      Storage* storage = std::exchange(head, head->next_free);
      cached_bytes_ -= storage->num_bytes;
      return storage;
    }
    return nullptr;
  }

  void push(Storage* storage) {
    Storage*& head = free_[static_cast<size_t>(storage->size_class)];
    storage->next_free = std::exchange(head, storage);
    cached_bytes_ += storage->num_bytes;
  }

  void* request(int64_t num_bytes) {
    ++system_requests_;
    return cpu_backend().allocate(num_bytes);
  }

  static Storage* block(void* data, SizeClass size) {
    auto* storage = new Storage;
    storage->data = data;
    storage->num_bytes = size.num_bytes;
    storage->size_class = size.index;
    return storage;
  }

  Storage* ask_backend(SizeClass wanted) { return block(request(wanted.num_bytes), wanted); }

  Storage* carve(SizeClass wanted) {
    auto* slab = static_cast<char*>(request(kSlabBytes));
    for (int64_t at = wanted.num_bytes; at + wanted.num_bytes <= kSlabBytes; at += wanted.num_bytes)
      push(block(slab + at, wanted));
    return block(slab, wanted);
  }

  std::mutex mutex_;
  std::array<Storage*, kNumClasses> free_{};
  int64_t live_bytes_ = 0, cached_bytes_ = 0, peak_live_bytes_ = 0, system_requests_ = 0;
};

// Never destroyed: tensors in static storage may die after it would.
Allocator& allocator() {
  static Allocator& instance = *new Allocator;
  return instance;
}

}  // namespace

void recycle(Storage* storage) { allocator().give_back(storage); }
StorageRef allocate_storage(int64_t num_bytes) { return StorageRef(allocator().take(num_bytes)); }
AllocatorStats allocator_stats() { return allocator().stats(); }
void reset_allocator_peak() { allocator().reset_peak(); }
void release_cached_memory() { allocator().release_large(); }

}  // namespace ws
