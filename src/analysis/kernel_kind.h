// What sort of work a kernel call is: the key of rates, tables and predictions.
#pragma once
#include <string>

#include "schedule/program.h"

namespace ws {

/// "matmul", "attention", "elementwise", "reduction", "movement", "check".
std::string kind_of(const KernelCall& call);

/// The name under which Roofs::rates has it ("matmul bf16") and its size (of a matmul: cube root of m n k; else 0).
struct RateKey {
  std::string kind;
  double size = 0;
  double times = 1;  // products of this kind that are run for each one counted (matmul_precision)
};
RateKey rate_key(const Program& program, const KernelCall& call);

}  // namespace ws
