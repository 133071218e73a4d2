// Numbers to and from the bytes of one element.
#pragma once
#include <cstdint>
#include <cstring>

#include "support/bf16.h"
#include "wholestep/dtype.h"

namespace ws {

inline uint16_t bf16_from_f32(float x) { return narrow(x).bits; }
inline float f32_from_bf16(uint16_t x) { return widen(Bf16{x}); }

/// Writes `value` rounded to `dtype` (bf16 by way of f32).
inline void store_element(void* to, DType dtype, double value) {
  auto put = [to](auto v) { std::memcpy(to, &v, sizeof v); };
  switch (dtype) {
    case DType::f32: return put(static_cast<float>(value));
    case DType::bf16: return put(narrow(static_cast<float>(value)));
    case DType::f64: return put(value);
    case DType::i32: return put(static_cast<int32_t>(value));
    case DType::u32: return put(static_cast<uint32_t>(value));
    case DType::boolean: return put(static_cast<uint8_t>(value != 0));
  }
}

inline double load_element(const void* from, DType dtype) {
  auto get = [from]<class T>(T) {
    T v;
    std::memcpy(&v, from, sizeof v);
    return v;
  };
  switch (dtype) {
    case DType::f32: return static_cast<double>(get(float{}));
    case DType::bf16: return static_cast<double>(widen(get(Bf16{})));
    case DType::f64: return get(double{});
    case DType::i32: return get(int32_t{});
    case DType::u32: return get(uint32_t{});
    case DType::boolean: return get(uint8_t{}) != 0;
  }
  return 0;
}

}  // namespace ws
