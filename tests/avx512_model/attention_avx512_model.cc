// attention_avx512.cc on the model of its instructions.
#include "avx512_model.h"
#define attention_code_avx512 attention_code_avx512_model
#include "backend/cpu/attention/attention_avx512.cc"
