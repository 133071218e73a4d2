// The definition: one std::fma an element and step. Slow and right on any machine.
#include "backend/cpu/gemm/nest.h"
#include "backend/cpu/gemm/portable_registers.h"

namespace ws::cpu {
namespace {

struct Portable : SingleWords<PortableRegisters<4>> {
  static constexpr int kRows = 4, kVectors = 2, kDepth = 64;
};

}  // namespace

const GemmCode& gemm_code_portable() {
  static constexpr GemmCode code = gemm_code<Portable>();
  return code;
}

}  // namespace ws::cpu
