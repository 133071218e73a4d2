// IEEE half precision as files hold it.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace ws {

inline float from_half(uint16_t h) {
  int exponent = h >> 10 & 31;
  uint32_t fraction = h & 1023u, sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                  : std::ldexp(static_cast<float>(fraction | 1024u), exponent - 25);
  return sign ? -magnitude : magnitude;
}

}  // namespace ws
