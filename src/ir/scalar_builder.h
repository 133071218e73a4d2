// What an elementwise op's `emit` is written against: arithmetic on one logical element.
// A backend implements it (LLVM: 16 lanes at a time; tests: plain C++), so a new backend edits no op.
// Every method is exactly one IEEE operation, so the bits are the same whoever implements it.
#pragma once
#include <cstdint>

#include "wholestep/dtype.h"

namespace ws {

/// Handle to a value inside one emission. `dtype` is the computing type: f32, f64, i32, u32 or boolean
/// (bf16 is widened to f32 on load and narrowed on store or by `cast`).
struct ScalarHandle {
  int id = -1;
  DType dtype = DType::f32;
};

class ScalarBuilder {
 public:
  using S = ScalarHandle;
  virtual ~ScalarBuilder() = default;

  virtual S constant(DType dtype, double value) = 0;  ///< exact value after rounding to dtype; i32/u32 take integers
  virtual S bits_f32(uint32_t bits) = 0;              ///< an f32 immediate by its bits

  // floating (f32, f64) and integer (i32, u32, wrapping)
  virtual S add(S a, S b) = 0;
  virtual S sub(S a, S b) = 0;
  virtual S mul(S a, S b) = 0;
  virtual S neg(S a) = 0;
  // floating only
  virtual S div(S a, S b) = 0;
  virtual S fma(S a, S b, S c) = 0;  ///< a*b + c, rounded once
  virtual S sqrt(S a) = 0;
  virtual S abs(S a) = 0;  ///< clears the sign bit
  virtual S copysign(S magnitude, S sign) = 0;
  virtual S round_even(S a) = 0;  ///< to the nearest integer, ties to even
  virtual S floor(S a) = 0;
  // integer only
  virtual S bit_and(S a, S b) = 0;
  virtual S bit_or(S a, S b) = 0;
  virtual S bit_xor(S a, S b) = 0;
  virtual S shift_left(S a, int count) = 0;
  virtual S shift_right(S a, int count) = 0;  ///< arithmetic for i32, logical for u32
  virtual S mul_high_u32(S a, S b) = 0;       ///< upper 32 bits of the 64-bit product (Philox)
  // comparisons give boolean; floating ones are ordered (false on NaN) except ne (true on NaN)
  virtual S eq(S a, S b) = 0;
  virtual S ne(S a, S b) = 0;
  virtual S lt(S a, S b) = 0;
  virtual S le(S a, S b) = 0;
  virtual S logical_and(S a, S b) = 0;
  virtual S logical_or(S a, S b) = 0;
  virtual S logical_not(S a) = 0;
  virtual S select(S condition, S if_true, S if_false) = 0;  ///< picks bits, computes nothing

  /// Value conversion. float->int truncates toward zero (caller keeps it in range); boolean->number is 0/1;
  /// number->boolean is != 0; to bf16 rounds to nearest even (NaN stays NaN) and the result computes as f32.
  virtual S cast(S a, DType to) = 0;
  virtual S bitcast(S a, DType to) = 0;  ///< f32 <-> i32/u32, i32 <-> u32

  /// Position of the element along `axis` of the op's result, and its row-major position as two u32 halves.
  virtual S index(int axis) = 0;      ///< i32
  virtual S linear_index_low() = 0;   ///< u32
  virtual S linear_index_high() = 0;  ///< u32
};

}  // namespace ws
