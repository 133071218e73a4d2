// Registers in plain C++, of any number of lanes: for the definition of a product and for models of instructions.
#pragma once
#include <cmath>
#include <cstdint>
#include <utility>

#include "support/bf16.h"

namespace ws::cpu {
namespace {

template <int kLanesOf>
struct PortableRegisters {
  static constexpr int kLanes = kLanesOf;
  struct Reg {
    float lane[kLanes];
  };
  static Reg zero() { return {}; }
  static Reg load(const float* p) { return load_part(p, kLanes); }
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
  static Reg broadcast(const float* p) {
    Reg r;
    for (float& x : r.lane) x = *p;
    return r;
  }
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
  static void store(Bf16* p, const Reg& r) { store_part(p, r, kLanes); }
  static void store_part(Bf16* p, const Reg& r, int lanes) {
    for (int i = 0; i < lanes; ++i) p[i] = narrow(r.lane[i]);
  }
  static void transpose(Reg (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < i; ++j) std::swap(r[i].lane[j], r[j].lane[i]);
  }
};

}  // namespace
}  // namespace ws::cpu
