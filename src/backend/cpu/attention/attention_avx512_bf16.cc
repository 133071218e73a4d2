// bf16 attention on AVX-512's dot products: the register tiles of attention_avx512.cc, two steps of a sum an instruction.
#if defined(__x86_64__)
#include "backend/cpu/attention/head.h"
#include "backend/cpu/attention/pairs.h"

namespace ws::cpu {
namespace {

struct Avx512PairTiles : Avx512Pairs {
  using Copies = PairCopies;
};

}  // namespace

const AttentionIsaCode& attention_code_avx512_bf16() {
  static constexpr AttentionIsaCode code = attention_code<Avx512PairTiles>();
  return code;
}

}  // namespace ws::cpu
#endif
