// Plain C++ with std::fma: the definition that the others are tested against.
#include "backend/cpu/attention/head.h"

namespace ws::cpu {
namespace {

struct Portable {
  using Copies = ElementCopies<Portable>;
  static constexpr int kLanes = 1, kRows = 4, kVectors = 4;
  using Reg = float;
  static Reg zero() { return 0; }
  static Reg load(const float* p) { return *p; }
  static Reg load_part(const float* p, int) { return *p; }
  static Reg broadcast(const float* p) { return *p; }
  static Reg fma(Reg a, Reg b, Reg c) { return std::fma(a, b, c); }
  static Reg add(Reg a, Reg b) { return a + b; }
  static void store(float* p, Reg r) { *p = r; }
  static void store_part(float* p, Reg r, int) { *p = r; }
  template <class T>
  static void transpose8(float* to, int64_t to_stride, const T* from, int64_t from_stride) {
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) to[j * to_stride + i] = Bf16Rows::widened(from[i * from_stride + j]);
  }
};

}  // namespace

const AttentionIsaCode& attention_code_portable() {
  static constexpr AttentionIsaCode code = attention_code<Portable>();
  return code;
}

}  // namespace ws::cpu
