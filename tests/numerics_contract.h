// The numerics contract in plain C++: what a node gives, bit for bit, on any instruction set. Elementwise ops by their `emit`, one element
// after the other; sums and products in the contract's order, written out. Not for what has no order of its own (attention is made of others,
// products in parts of bf16).
#pragma once
#include <cmath>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ops/eval_scalar_builder.h"
#include "support/float_mode.h"

namespace ws::test {

namespace contract {

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

inline void elementwise(const Node& node, std::span<const RefArray> in, RefArray& out) {
  const Shape& shape = out.type.shape;
  ops::EvalScalarBuilder b;
  b.position.assign(at(shape.rank()), 0);
  for (size_t i = 0; i < out.data.size(); ++i) {
    b.clear();
    b.linear_position = i;
    for (int64_t axis = shape.rank() - 1, rest = static_cast<int64_t>(i); axis >= 0; --axis) {
      b.position[at(axis)] = rest % shape[static_cast<int>(axis)];
      rest /= shape[static_cast<int>(axis)];
    }
    std::vector<ScalarHandle> operands;
    for (const RefArray& x : in) operands.push_back(b.load(x.type.dtype, x.data[node.op->has(kSwapsPairs) ? i ^ 1 : i]));
    ScalarHandle y = node.op->emit(b, operands, node.attrs);
    if (out.type.dtype == DType::bf16) y = b.cast(y, DType::bf16);
    out.data[i] = b.value(y);
  }
}

struct Sum {
  template <class T>
  static T combine(T a, T b) {
    return a + b;
  }
  static constexpr double kStart = 0;
};
struct Max {  // NaN wins, +0 over -0
  template <class T>
  static T combine(T a, T b) {
    if (std::isnan(a) || std::isnan(b)) return static_cast<T>(NAN);
    return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
  }
  static constexpr double kStart = -HUGE_VAL;
};

/// Lanes of 16 in blocks of 4,096.
template <class T, class Fold>
T along_row(const double* x, int64_t count) {
  T sum = static_cast<T>(Fold::kStart);
  for (int64_t block = 0; block < count; block += 4096) {
    T lane[16];
    for (T& l : lane) l = static_cast<T>(Fold::kStart);
    for (int64_t i = block; i < std::min(count, block + 4096); ++i)
      lane[i % 16] = Fold::combine(lane[i % 16], static_cast<T>(x[i]));
    for (int width = 8; width >= 1; width /= 2)
      for (int l = 0; l < width; ++l) lane[l] = Fold::combine(lane[l], lane[l + width]);
    sum = block == 0 ? lane[0] : Fold::combine(sum, lane[0]);
  }
  return sum;
}

/// Ascending in blocks of 64.
template <class T, class Fold>
T down_column(const double* x, int64_t count, int64_t stride) {
  T sum = static_cast<T>(Fold::kStart);
  for (int64_t block = 0; block < count; block += 64) {
    T part = static_cast<T>(Fold::kStart);
    for (int64_t i = block; i < std::min(count, block + 64); ++i) part = Fold::combine(part, static_cast<T>(x[i * stride]));
    sum = block == 0 ? part : Fold::combine(sum, part);
  }
  return sum;
}

template <class T, class Fold>
void reduce(const Node& node, const RefArray& in, RefArray& out) {
  const int64_t first = node.attrs.integer("first_axis"), last = first + node.attrs.integer("num_axes");
  int64_t reduced = 1, inner = 1;
  for (int i = 0; i < in.type.shape.rank(); ++i)
    if (i >= first) (i < last ? reduced : inner) *= in.type.shape[i];
  for (size_t i = 0; i < out.data.size(); ++i) {
    const double* x = in.data.data() + static_cast<int64_t>(i) / inner * reduced * inner + static_cast<int64_t>(i) % inner;
    out.data[i] = static_cast<double>(inner == 1 ? along_row<T, Fold>(x, reduced) : down_column<T, Fold>(x, reduced, inner));
  }
}

/// One ascending chain of fma from +0 for each 512 of k, their sums added ascending.
inline void matmul(const Node& node, const RefArray& a, const RefArray& b, RefArray& out) {
  const bool ta = node.attrs.flag("transpose_a"), tb = node.attrs.flag("transpose_b");
  const Shape &s = a.type.shape, &t = b.type.shape;
  const int64_t m = s[ta ? -1 : -2], k = s[ta ? -2 : -1], n = t[tb ? -2 : -1];
  const bool shared = t.rank() == 2;
  for (size_t i = 0; i < out.data.size(); ++i) {
    const int64_t col = static_cast<int64_t>(i) % n, row = static_cast<int64_t>(i) / n % m,
                  batch = static_cast<int64_t>(i) / n / m;
    const double* x = a.data.data() + batch * m * k;
    const double* y = b.data.data() + (shared ? 0 : batch * k * n);
    float sum = 0;
    for (int64_t block = 0; block < k; block += 512) {
      float chain = 0;
      for (int64_t j = block; j < std::min(k, block + 512); ++j)
        chain = std::fma(static_cast<float>(x[ta ? j * m + row : row * k + j]),
                         static_cast<float>(y[tb ? col * k + j : j * n + col]), chain);
      sum = block == 0 ? chain : sum + chain;
    }
    if (out.type.dtype == DType::bf16 && std::fpclassify(sum) == FP_SUBNORMAL) sum = std::copysign(0.0f, sum);
    out.data[i] = static_cast<double>(out.type.dtype == DType::bf16 ? ops::EvalScalarBuilder::rounded_to_bf16(sum) : sum);
  }
}

inline void scatter_add(const RefArray& indices, const RefArray& updates, RefArray& out) {
  std::vector<float> sums(out.data.size(), 0.0f);
  const size_t width = indices.data.empty() ? 0 : updates.data.size() / indices.data.size();
  for (size_t i = 0; i < updates.data.size(); ++i) {
    float& sum = sums[static_cast<size_t>(indices.data[i / width]) * width + i % width];
    sum += static_cast<float>(updates.data[i]);
  }
  for (size_t i = 0; i < sums.size(); ++i) out.data[i] = static_cast<double>(sums[i]);
}

}  // namespace contract

/// The node's results; nothing where the contract leaves it to others.
inline std::optional<std::vector<RefArray>> by_contract(const Graph& graph, const Node& node, std::span<const RefArray> in) {
  const FlushDenormals mode;
  std::vector<RefArray> out;
  for (Value v : node.results) {
    const Type& type = graph.type_of(v);
    out.push_back({type, std::vector<double>(static_cast<size_t>(type.shape.num_elements()), 0.0)});
  }
  switch (node.op->lowering) {
    case Lowering::kElementwise: contract::elementwise(node, in, out[0]); return out;
    case Lowering::kReduce: {
      const bool is_max = node.op->name == "reduce_max", wide = out[0].type.dtype == DType::f64;
      if (is_max)
        wide ? contract::reduce<double, contract::Max>(node, in[0], out[0])
             : contract::reduce<float, contract::Max>(node, in[0], out[0]);
      else
        wide ? contract::reduce<double, contract::Sum>(node, in[0], out[0])
             : contract::reduce<float, contract::Sum>(node, in[0], out[0]);
      return out;
    }
    case Lowering::kMatmul:
      if (node.attrs.find("precision") != nullptr) return std::nullopt;
      contract::matmul(node, in[0], in[1], out[0]);
      return out;
    case Lowering::kScatterAdd: contract::scatter_add(in[0], in[1], out[0]); return out;
    case Lowering::kView:
    case Lowering::kConcatenate:
    case Lowering::kPad:
    case Lowering::kGather:
    case Lowering::kCheck: return interpret_node(graph, node, in);
    default: return std::nullopt;
  }
}

}  // namespace ws::test
