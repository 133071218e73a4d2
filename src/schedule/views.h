// Views: how each value lies on the storage of the value that it is a window of. Takes a verified graph; no arithmetic happens here.
#pragma once
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "schedule/program.h"

namespace ws {

/// Element (i, j, ..) of the value is element offset + i*strides[0] + j*strides[1] + .. of `base`, which is dense unless a graph
/// input with a layout of its own.
struct Strided {
  Value base;
  int64_t offset = 0;
  std::array<int64_t, kMaxRank> strides{};
};

class ViewMap {
 public:
  ViewMap(const Graph& graph, const std::vector<InputLayout>& layouts);
  const Strided& of(Value v) const { return strided_[static_cast<size_t>(v.id)]; }
  /// True where the value has storage of its own: inputs, results of real ops, reshapes that no strides can express.
  bool is_base(Value v) const { return of(v).base == v; }
  /// Offset 0, row-major, the whole base: the same elements in the same order.
  bool is_whole(Value v) const;

 private:
  const Graph& graph_;
  std::vector<Strided> strided_;
  std::vector<bool> dense_base_;
};

/// Strides of the same elements under another shape, where strides can express it.
std::optional<std::array<int64_t, kMaxRank>> reshape_strides(const Shape& from, const std::array<int64_t, kMaxRank>& strides,
                                                             const Shape& to);

/// Row-major apart from dims of size 1.
bool is_dense(const Shape& dims, const std::array<int64_t, kMaxRank>& strides);

}  // namespace ws
