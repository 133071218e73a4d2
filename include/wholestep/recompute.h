// checkpoint(): the forward pass of a block keeps the block's inputs and results only; what lies between is computed again when the
// backward pass comes to it. Same bits, less memory, up to a third more time. Random masks are the same the second time (a draw is a
// function of its key), and what the block sets (running statistics, random keys) is set once.
//
//   h = ws::checkpoint(block, h);        // any callable or Module of one tensor
//
// Works in the loop and inside jit. A checkpoint inside another belongs to the outer one. See JitOptions::memory_budget_bytes for
// letting the planner choose what to compute again.
#pragma once
#include <functional>
#include <vector>

#include "wholestep/tensor.h"

namespace ws {

/// Calls `block` and returns its results. Whatever it computes on the way is forgotten until a gradient asks for it.
std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>()>& block);

template <class Block>
Tensor checkpoint(const Block& block, const Tensor& x) {
  return checkpoint(std::function<std::vector<Tensor>()>([&] { return std::vector<Tensor>{block(x)}; }))[0];
}

}  // namespace ws
