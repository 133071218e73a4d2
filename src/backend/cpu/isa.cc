#include "backend/cpu/isa.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <vector>

#include "support/error.h"

namespace ws::cpu {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

bool bit(unsigned word, int position) { return ((word >> position) & 1u) != 0; }

/// Register state the operating system saves on a context switch (XCR0), 0 where it does not say.
uint64_t saved_state() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

bool has_avx2() {
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), extended = cpuid(0x80000001u, 0);
  const bool instructions = bit(one.c, 12) && bit(one.c, 28) && bit(one.c, 29) &&     // FMA, AVX, F16C
                            bit(seven.b, 5) && bit(seven.b, 3) && bit(seven.b, 8) &&  // AVX2, BMI1, BMI2
                            bit(extended.c, 5);                                       // LZCNT
  return instructions && (saved_state() & 0x6) == 0x6;                                // xmm, ymm
}

bool has_avx512() {
  const Registers seven = cpuid(7, 0);
  const bool instructions =
      bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 28) && bit(seven.b, 30) && bit(seven.b, 31);  // F, DQ, CD, BW, VL
  return instructions && has_avx2() && (saved_state() & 0xe6) == 0xe6;                                   // and opmask, zmm
}

/// Whether the dot product adds the product of the upper halves, rounds, then adds that of the lower ones, as documented: sums
/// that a change of the order or a rounding left out would give away.
__attribute__((target("avx512f,avx512bf16"))) bool dot_products_ascend() {
  constexpr float kLarge = 0x1p24f;  // its neighbours are 2 apart
  const auto dot = [](float sum, float upper, float lower) __attribute__((target("avx512f,avx512bf16"))) {
    const auto half = [](float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 16); };
    const __m512i x = _mm512_set1_epi32(half(upper) << 16 | half(lower)), ones = _mm512_set1_epi32(0x3F803F80);
    return _mm512_cvtss_f32(
        _mm512_dpbf16_ps(_mm512_set1_ps(sum), reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(ones)));
  };
  return dot(1, kLarge, -kLarge) == 0 && dot(kLarge, 1, 1) == kLarge;
}

bool has_avx512_bf16() { return has_avx512() && bit(cpuid(7, 1).a, 5) && dot_products_ascend(); }

/// Linux gives a process the tiles' registers, 8 KiB a thread, only where it asks.
bool may_use_tiles() {
  constexpr long kAskPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool permitted = syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
  return permitted;
}

bool has_amx() {
  const unsigned features = cpuid(7, 0).d;
  const bool instructions = bit(features, 24) && bit(features, 22);  // AMX-TILE, AMX-BF16
  return instructions && has_avx512_bf16() && (saved_state() & 0x60000) == 0x60000 && may_use_tiles();
}

constexpr std::array kAll = {Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

}  // namespace

std::string_view name_of(Isa isa) {
  return std::array<std::string_view, kAll.size()>{"avx2", "avx512", "avx512_bf16", "amx"}[static_cast<size_t>(isa)];
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa : kAll)
    if (name_of(isa) == name) return isa;
  return std::nullopt;
}

bool supports(Isa isa) {
  constexpr std::array kHas = {has_avx2, has_avx512, has_avx512_bf16, has_amx};
  return kHas[static_cast<size_t>(isa)]();
}

std::optional<Isa> find_best_isa() {
  std::optional<Isa> best;
  for (Isa isa : kAll)
    if (isa != Isa::amx && supports(isa))
      best = isa;  // AMX's kernels have run on the model of its tiles only: ISA=amx asks for them
  return best;
}

Isa best_isa() {
  if (auto isa = find_best_isa()) return *isa;
  throw Error("this processor or its operating system lacks AVX2 and FMA, which wholestep's kernels need (x86-64-v3)");
}

Isa wanted_isa(std::string_view name) {
  const Isa best = best_isa();
  if (name.empty()) return best;
  if (const auto isa = isa_from_name(name); isa && supports(*isa)) return *isa;
  std::vector<std::string_view> names;
  for (Isa isa : kAll)
    if (supports(isa)) names.push_back(name_of(isa));
  fail("--isa (WHOLESTEP_ISA) must be one of those that this machine has, {}; not '{}'", fmt::join(names, ", "), name);
}

}  // namespace ws::cpu
