// The instruction sets that code is generated and written for, each with all before it. Bits are the same on each, but for large
// products of bf16 on AMX (gemm.h); only speed differs.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace ws::cpu {

enum class Isa : uint8_t { avx2, avx512, avx512_bf16, amx };

/// "avx2", "avx512", "avx512_bf16", "amx".
std::string_view name_of(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

/// True where the processor has it and the operating system saves its registers (for AMX: permits them, which is asked for here).
bool supports(Isa isa);

/// Kernels of `isa`; where the processor lacks it and tests have linked a model of its instructions in (else null), those of the model.
template <class Code>
const Code& code_or_model(Isa isa, const Code& (*code)(), const Code& (*model)()) {
  return model != nullptr && !supports(isa) ? model() : code();
}

/// What generated loops use of it: matrix instructions are for products.
constexpr Isa loop_isa(Isa isa) { return isa < Isa::avx512 ? isa : Isa::avx512; }

/// The best one of this machine; nothing on a machine without AVX2 and FMA.
std::optional<Isa> find_best_isa();
/// The same; throws ws::Error naming what the machine lacks.
Isa best_isa();
/// The one that `name` (--isa) asks for, the best one where that is empty; throws ws::Error listing those of the machine.
Isa wanted_isa(std::string_view name);

}  // namespace ws::cpu
