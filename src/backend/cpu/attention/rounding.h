// bf16 rows in and out of fp32, as casts in a step do it (numerics contract 3.5 and 3.7): to nearest even, NaN stays NaN, denormals
// become signed zero. Plain loops that the compiler turns into vectors of each file's instruction set.
#pragma once
#include <bit>
#include <cstdint>

namespace ws::cpu {
namespace {

struct Bf16Rows {
  static float widened(float x) { return x; }
  static float widened(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  static void widen(float* to, const uint16_t* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = widened(from[i]);
  }
  static void narrow(uint16_t* to, const float* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint16_t>(rounded_bits(std::bit_cast<uint32_t>(from[i])) >> 16);
  }

 private:
  static uint32_t rounded_bits(uint32_t bits) {
    const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
    const uint32_t picked = (bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
    return (bits & 0x7F800000u) == 0 ? bits & 0x80000000u : picked;
  }
};

}  // namespace
}  // namespace ws::cpu
