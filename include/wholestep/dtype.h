// Element types of tensors. Shared by the public API and the IR.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ws {

/// Element type. `f64` is for scalars and norms, `u32` for random bits, `boolean` (one byte, 0 or 1) for masks.
enum class DType : uint8_t { f32, bf16, f64, i32, u32, boolean };

/// Size of one element in bytes.
constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::bf16: return 2;
    case DType::f64: return 8;
    case DType::boolean: return 1;
  }
  return 0;
}

constexpr bool is_floating(DType d) { return d == DType::f32 || d == DType::bf16 || d == DType::f64; }

/// "f32", "bf16", "f64", "i32", "u32", "bool".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::u32: return "u32";
    case DType::boolean: return "bool";
  }
  return "?";
}

/// Inverse of name_of; nothing for an unknown word.
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType d : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::boolean})
    if (name_of(d) == name) return d;
  return std::nullopt;
}

}  // namespace ws
