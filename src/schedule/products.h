// Matrix products: folds leading dims into rows or a batch, so that a GEMM with plain strides can run them.
#pragma once
#include <functional>

#include "schedule/program.h"

namespace ws {

/// a [.., M, K], b [.., K, N] or [K, N], the last two dims swapped in memory order where flagged. `dense(window, input)` copies an
/// operand that no single batch stride can walk. Fills everything of the call but c and store.
GemmCall build_product(View a, View b, bool transpose_a, bool transpose_b, const std::function<int(const View&, int)>& dense);

}  // namespace ws
