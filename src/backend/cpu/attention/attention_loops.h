// The row loops of attention as LoopKernels: the same ops, compiled by the same compiler, as a softmax written out by hand. So there
// is one exp in the program, and attention has the bits of the separate ops.
#pragma once
#include <memory>

#include "schedule/loop_kernel.h"

namespace ws::cpu {

struct PlainLoop {
  enum Scalar : uint8_t { kScale, kOne, kNumScalars };
};

/// `dtype` is that of the weights as stored here: bf16 ones are rounded and held as f32, and so are the gradients of the products that
/// a backward product then reads.
///
/// Rows of scores to rows of weights. Rank 2 [rows, keys], walk kRows.
///   t = s * scale;  m = max t;  e = exp(t - m);  l = sum e;  p = e * (1 / l)
/// Accesses: 0 loads s, 1 stores p (may lie over s), 2 stores m and 3 stores l (one a row).
struct SoftmaxLoop : PlainLoop {
  static constexpr int kScores = 0, kWeights = 1, kRowMax = 2, kRowSum = 3, kNumAccesses = 4;
  static std::shared_ptr<const LoopKernel> kernel(DType dtype);
};

/// Rows of scores and of grad_p = grad_out v^T to weights and gradients of the products q k^T. Rank 2, walk kRows.
///   p = exp(s * scale - m) * (1 / l);  d = sum (grad_p * p);  grad_s = ((grad_p - d) * p) * scale
/// Accesses: 0 loads s, 1 loads grad_p, 2 loads m and 3 loads l (one a row), 4 stores p (may lie over s), 5 stores grad_s (over grad_p).
struct SoftmaxGradLoop : PlainLoop {
  static constexpr int kScores = 0, kGradWeights = 1, kRowMax = 2, kRowSum = 3, kWeights = 4, kGradScores = 5, kNumAccesses = 6;
  static std::shared_ptr<const LoopKernel> kernel(DType dtype);
};

/// The same with a byte for each pair that says whether it is seen, and one that says whether its weight is kept. A row that sees
/// nothing has m = l = 0 and weights 0.
struct MaskedLoop {
  enum Scalar : uint8_t { kScale, kOne, kKeepFactor, kMinusInfinity, kZero, kNumScalars };
};

///   t = seen ? s * scale : -inf;  m = max t, or 0 for -inf;  e = exp(t - m);  l = sum e;  p = kept ? e * (1 / (l, or 1 for 0)) * factor : 0
/// Accesses: loads s, seen, kept; stores p (may lie over s), m and l.
struct MaskedSoftmaxLoop : MaskedLoop {
  static constexpr int kScores = 0, kSeen = 1, kKept = 2, kWeights = 3, kRowMax = 4, kRowSum = 5, kNumAccesses = 6;
  static std::shared_ptr<const LoopKernel> kernel(DType dtype);
};

///   p = exp(t - m) * (1 / (l, or 1 for 0));  g = kept ? grad_w * factor : 0;  d = sum (g * p);  grad_s = (seen ? (g - d) * p : 0) * scale
/// Accesses: loads s, grad_w = grad_out v^T, seen, kept, m, l; stores the weights kept ? p * factor : 0 (over s) and grad_s (over grad_w).
struct MaskedSoftmaxGradLoop : MaskedLoop {
  static constexpr int kScores = 0, kGradWeights = 1, kSeen = 2, kKept = 3, kRowMax = 4, kRowSum = 5, kWeights = 6,
                       kGradScores = 7, kNumAccesses = 8;
  static std::shared_ptr<const LoopKernel> kernel(DType dtype);
};

}  // namespace ws::cpu
