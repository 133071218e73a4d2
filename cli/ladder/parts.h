// Parts that replace those of a model's blocks: what the ladder compares the built-in ones with. They have the built-in ones' names and
// initial weights.
#pragma once
#include "ladder/task.h"

namespace ws::cli {

/// Attention and feed-forward whose inputs and results pass through bf16 while the layers compute in fp32: storage changes, nothing else.
models::Parts storage_cast_parts(const Task& task);
/// Attention whose RoPE multiplies by fp32 tables, so that q, k and the attention after it are fp32 whatever the compute dtype. Empty
/// where the model has no RoPE.
models::Parts leaky_rope_parts(const Task& task);
/// Attention as separate ops: product, mask, softmax, product. Memory grows with the square of the length.
models::Parts composed_attention_parts(const Task& task);
/// Feed-forward whose operands are rounded to fp8 e4m3 under one scale a tensor, in fp32 arithmetic: the effect on the loss without the
/// speed.
models::Parts fp8_parts(const Task& task);

}  // namespace ws::cli
