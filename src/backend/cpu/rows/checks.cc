// Checks: find the first offending element of an array without stopping anyone.
#include <algorithm>
#include <atomic>
#include <bit>

#include "backend/cpu/rows/walk.h"

namespace ws::cpu {
namespace {

// The lowest row-major position where bad(address) holds.
template <class Bad>
int64_t first_bad(const Strided& x, int64_t element_bytes, Workers& workers, const Bad& bad) {
  const int64_t n = x.dims.num_elements();
  IndexSpace<1> walk;
  walk.push(1, {element_bytes});
  for (int axis = 0; axis < x.dims.rank(); ++axis)
    walk.push(x.dims[axis], {x.strides[static_cast<size_t>(axis)] * element_bytes});
  const auto* const data = static_cast<const char*>(x.data);
  std::atomic<int64_t> first{n};
  workers.parallel_for(n, 32768, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = walk.rank == 1 ? i * walk.stride(0, 0) : walk.offset(i, 0)[0];
      if (!bad(data + at)) continue;
      int64_t seen = first.load(std::memory_order_relaxed);
      while (i < seen && !first.compare_exchange_weak(seen, i, std::memory_order_relaxed)) {
      }
      return;
    }
  });
  return first.load(std::memory_order_relaxed);
}

template <class T>
T element_at(const Strided& x, int64_t i) {
  int64_t at = 0;
  for (int axis = x.dims.rank() - 1; axis >= 0; --axis) {
    at += i % x.dims[axis] * x.strides[static_cast<size_t>(axis)];
    i /= x.dims[axis];
  }
  return static_cast<const T*>(x.data)[at];
}

}  // namespace

CheckResult check_range(const Strided& x, int64_t low, int64_t high, Workers& workers) {
  const int64_t i = first_bad(x, 4, workers, [&](const char* p) {
    const int32_t v = *reinterpret_cast<const int32_t*>(p);
    return v < low || v >= high;
  });
  if (i == x.dims.num_elements()) return {};
  return {false, static_cast<double>(element_at<int32_t>(x, i))};
}

CheckResult check_finite(const Strided& x, DType dtype, Workers& workers) {
  const int64_t n = x.dims.num_elements();
  // All exponent bits set: infinite or NaN.
  if (dtype == DType::f64) {
    constexpr uint64_t kExponent = 0x7FF0000000000000u;
    const int64_t i =
        first_bad(x, 8, workers, [](const char* p) { return (*reinterpret_cast<const uint64_t*>(p) & kExponent) == kExponent; });
    return i == n ? CheckResult{} : CheckResult{false, element_at<double>(x, i)};
  }
  if (dtype == DType::bf16) {
    constexpr uint32_t kExponent = 0x7F80u;
    const int64_t i =
        first_bad(x, 2, workers, [](const char* p) { return (*reinterpret_cast<const uint16_t*>(p) & kExponent) == kExponent; });
    return i == n ? CheckResult{}
                  : CheckResult{false, std::bit_cast<float>(static_cast<uint32_t>(element_at<uint16_t>(x, i)) << 16)};
  }
  constexpr uint32_t kExponent = 0x7F800000u;
  const int64_t i =
      first_bad(x, 4, workers, [](const char* p) { return (*reinterpret_cast<const uint32_t*>(p) & kExponent) == kExponent; });
  return i == n ? CheckResult{} : CheckResult{false, static_cast<double>(element_at<float>(x, i))};
}

}  // namespace ws::cpu
