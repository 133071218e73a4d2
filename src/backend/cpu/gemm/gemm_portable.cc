// The definition: one std::fma an element and step. Slow and right on any machine.
#include <cmath>

#include "backend/cpu/gemm/nest.h"

namespace ws::cpu {
namespace {

struct PortableRegisters {
  static constexpr int kLanes = 4;
  struct Reg {
    float lane[kLanes];
  };
  static Reg zero() { return {}; }
  static Reg load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static Reg load_part(const float* p, int lanes) {
    Reg r{};
    for (int i = 0; i < lanes; ++i) r.lane[i] = p[i];
    return r;
  }
  static Reg load(const Bf16* p) { return load_part(p, kLanes); }
  static Reg load_part(const Bf16* p, int lanes) {
    Reg r{};
    for (int i = 0; i < lanes; ++i) r.lane[i] = widen(p[i]);
    return r;
  }
  static Reg broadcast(const float* p) { return {{*p, *p, *p, *p}}; }
  static Reg fma(const Reg& a, const Reg& b, const Reg& c) {
    Reg r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = std::fma(a.lane[i], b.lane[i], c.lane[i]);
    return r;
  }
  static Reg add(const Reg& a, const Reg& b) {
    Reg r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = a.lane[i] + b.lane[i];
    return r;
  }
  static void store(float* p, const Reg& r) { store_part(p, r, kLanes); }
  static void store_part(float* p, const Reg& r, int lanes) {
    for (int i = 0; i < lanes; ++i) p[i] = r.lane[i];
  }
};

struct Portable : SingleWords<PortableRegisters> {
  static constexpr int kRows = 4, kVectors = 2, kDepth = 64;
  static void transpose(Reg (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < i; ++j) std::swap(r[i].lane[j], r[j].lane[i]);
  }
};

}  // namespace

const GemmCode& gemm_code_portable() {
  static constexpr GemmCode code = gemm_code<Portable>();
  return code;
}

}  // namespace ws::cpu
