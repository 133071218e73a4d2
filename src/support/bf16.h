// bf16 in memory: the upper half of an fp32. Arithmetic is done on widened values; `narrow` is the one rounding.
#pragma once
#include <bit>
#include <cstdint>

namespace ws {

struct Bf16 {
  uint16_t bits;
};

inline float widen(Bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

/// To nearest even; a NaN stays one and keeps its sign.
inline Bf16 narrow(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto rounded = static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  return {x != x ? static_cast<uint16_t>(bits >> 16 | 0x40u) : rounded};
}

}  // namespace ws
