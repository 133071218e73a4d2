// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), the generator of every random number inside a step. Inlined always: files compiled
// for other instruction sets must not share a copy.
#pragma once
#include <array>
#include <cstdint>

namespace ws {

constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;
constexpr int kPhiloxRounds = 10;

/// Word 0 of the block with counter (position low, position high, stream low, stream high).
[[gnu::always_inline]] inline uint32_t philox_word0(uint64_t position, uint64_t stream, uint32_t key0, uint32_t key1) {
  uint32_t c0 = static_cast<uint32_t>(position), c1 = static_cast<uint32_t>(position >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < kPhiloxRounds; ++round, key0 += kPhiloxWeyl0, key1 += kPhiloxWeyl1) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c0, p1 = uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
  }
  return c0;
}

/// A number is kept with probability 1 - p where its random word is below this.
constexpr uint32_t keep_threshold(double p) {
  const double t = (1 - p) * 0x1p32 + 0.5;
  return t >= 0x1p32 ? ~uint32_t{0} : static_cast<uint32_t>(t);
}

}  // namespace ws
