// How operands in memory become words of k (micro_kernel.h). For a vector type V with words of kSteps elements:
//   words(depth)                           how many a depth in elements takes; what is missing in the last counts as 0
//   load_lines(src, depth_stride, steps)   a word of each of kLanes lines that are adjacent in memory; `steps` of its elements are valid
//   load_depth(src)                        kLanes words of one line, whose elements are adjacent
//   word(src, depth_stride, steps)         one word
// and _part forms for fewer lines, fewer elements. kRowsOnly: the kernels read rows only as rows, never as packed panels. kOneChain:
// words of several elements continue one chain with all of them, and neutralize_later(word) is there. UnitScope: lives on a thread
// while it does a unit of work. load_whole_square(square, src, line_stride), where there is a faster one: load_depth of kLanes lines,
// transposed.
#pragma once
#include <cstdint>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

inline float widen(float x) { return x; }
using ws::widen;

struct NoScope {};

/// Words of one element: fp32, or bf16 widened.
template <class Registers>
struct SingleWords : Registers {
  using typename Registers::Reg;
  using UnitScope = NoScope;
  static constexpr int kSteps = 1;
  static constexpr bool kRowsOnly = false, kOneChain = false;
  static constexpr int64_t words(int64_t depth) { return depth; }
  template <class S>
  static Reg load_lines(const S* src, int64_t, int64_t) {
    return Registers::load(src);
  }
  template <class S>
  static Reg load_lines_part(const S* src, int64_t, int64_t, int lanes) {
    return Registers::load_part(src, lanes);
  }
  template <class S>
  static Reg load_depth(const S* src) {
    return Registers::load(src);
  }
  template <class S>
  static Reg load_depth_part(const S* src, int elements) {
    return Registers::load_part(src, elements);
  }
  template <class S>
  static float word(const S* src, int64_t, int64_t) {
    return widen(*src);
  }
};

}  // namespace
}  // namespace ws::cpu
