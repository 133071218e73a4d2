// The instruction sets that code is generated for. Bits are the same on each; only speed differs.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace ws::cpu {

enum class Isa : uint8_t { avx2, avx512 };

/// "avx2", "avx512".
std::string_view name_of(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

/// True where the processor has it and the operating system saves its registers.
bool supports(Isa isa);

/// The best one of this machine; nothing on a machine without AVX2 and FMA.
std::optional<Isa> find_best_isa();
/// The same; throws ws::Error naming what the machine lacks.
Isa best_isa();

}  // namespace ws::cpu
