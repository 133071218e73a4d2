// The floating-point mode of a step (numerics contract 7): round to nearest, no traps, denormals are signed zero going in and out.
// The mode is a register of each thread; the pool gives its workers the caller's.
#pragma once
#include <xmmintrin.h>

#include <cstdint>

namespace ws {

/// MXCSR: all exceptions masked, round to nearest even, flush-to-zero and denormals-are-zero.
constexpr uint32_t kStepFloatMode = 0x1F80u | 0x8000u | 0x0040u;
constexpr uint32_t kFloatFlags = 0x003Fu;  // sticky exception flags: not part of the mode

inline uint32_t float_mode() { return _mm_getcsr(); }
inline void set_float_mode(uint32_t mode) { _mm_setcsr(mode); }

/// Puts the calling thread into the step's mode and gives back its own mode at the end of the scope.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(float_mode()) { set_float_mode(kStepFloatMode); }
  ~FlushDenormals() { set_float_mode(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace ws
