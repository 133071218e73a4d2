// attention_avx512_bf16.cc on the model of its instructions.
#include "avx512_model.h"
#define attention_code_avx512_bf16 attention_code_avx512_bf16_model
#include "backend/cpu/attention/attention_avx512_bf16.cc"
