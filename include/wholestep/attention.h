// Attention with more than a causal mask: any mask, and dropout on the weights. Memory stays linear in the length (apart from a mask
// that the caller makes for each pair), and the bits are those of the ops written out:
//   scores = where(mask, matmul(q, k^T) * scale, -infinity);  out = matmul(dropout(softmax(scores)), v)
#pragma once
#include <optional>

#include "wholestep/tensor.h"

namespace ws {

struct AttentionOptions {
  bool causal = false;               ///< query t sees keys s <= t + S - T
  std::optional<double> scale = {};  ///< 1/sqrt(D)
  /// Boolean, true where a query sees a key; broadcasts to [B, H, T, S]: a padding mask is [B, 1, 1, S]. Undefined: all are seen. A query
  /// that sees no key gives 0, with zero gradient.
  Tensor mask = {};
  /// Weights are zeroed with this probability, the others divided by 1 - dropout. Dropped weights depend on the key and on their place in
  /// [B, H, T, S], on nothing else.
  double dropout = 0;
  std::optional<Variable> key = {};  ///< u32 [2], see key_tensor(); advances at each call. Needed where dropout > 0
};

/// q [B,T,H,D], k and v [B,S,H,D], of one dtype -> [B,T,H,D].
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

}  // namespace ws
