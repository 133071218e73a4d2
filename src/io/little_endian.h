// Whole numbers of files, byte by byte, so that neither alignment nor the machine's order matters.
#pragma once
#include <concepts>
#include <cstddef>
#include <string>

#include "io/file.h"

namespace ws {

/// The number at bytes[at], which must be there.
template <std::unsigned_integral T>
T little_endian(Bytes bytes, size_t at) {
  T value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | std::to_integer<T>(bytes[at + i]));
  return value;
}

template <std::unsigned_integral T>
void append_little_endian(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 255);
}

}  // namespace ws
