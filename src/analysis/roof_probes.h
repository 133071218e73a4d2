// The loops that roofs.cc times: each does a known number of operations on one thread and nothing else.
#pragma once
#include <cstdint>

#include "backend/cpu/isa.h"

namespace ws {

/// Runs `rounds` rounds of independent FMA chains; returns operations done (two an FMA).
double fma_probe(cpu::Isa isa, int64_t rounds);
/// The same of bf16 dot products into fp32 (two operations a product). Needs Isa::avx512_bf16.
double bf16_probe(int64_t rounds);
/// Reads n floats (a multiple of 128, 64-byte aligned) `rounds` times.
void read_probe(cpu::Isa isa, const float* data, int64_t n, int64_t rounds);
/// Copies n floats (a multiple of 128, both 64-byte aligned) `rounds` times.
void copy_probe(cpu::Isa isa, float* to, const float* from, int64_t n, int64_t rounds);

}  // namespace ws
