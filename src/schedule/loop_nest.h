// The dims that a group's loop runs over, and how it walks them: the coarsest nest in which every value of the group has one stride a
// dim.
#pragma once
#include "schedule/loops.h"

namespace ws {

class LoopNest {
 public:
  LoopNest(const LoopContext& context, int group);

  /// Whether the group only folds the partial sums of a reduction, and whether it is the one that reduces.
  bool folds(int n) const { return c_.groups.fold_of_node[static_cast<size_t>(n)] == index_; }
  bool is_reduce(int n) const { return node(n).op->lowering == Lowering::kReduce && !folds(n); }
  /// One value a row, where others have one an element.
  bool at_row_level(Value v) const { return shape_of(v).num_elements() != group_.elements; }

  Walk walk() const { return walk_; }
  size_t rank() const { return dims_.size(); }
  const std::vector<int64_t>& dims() const { return dims_; }  // outermost first
  int64_t dim(size_t d) const { return dims_[d]; }
  /// Elements of the group from one step along a dim to the next.
  int64_t low(size_t d) const { return lows_[d]; }

  /// Strides along the nest's dims of a window with `shape` and `strides`, whose elements stand for `scale` of the group's each.
  std::vector<int64_t> strides(const Shape& shape, const std::array<int64_t, kMaxRank>& strides, int64_t scale) const;
  /// Elements that a value of one a row stands for.
  int64_t row_scale() const { return inner_ > 1 ? inner_ : group_.inner; }
  /// The dim that runs along an axis of a shape as large as the group.
  size_t dim_of_axis(const Shape& shape, int axis) const;

  /// Whether a dim and the next one may become one, and whether kernels want them to: inner dims of a row kernel, and all dims of a
  /// flat one, have to be one axis.
  bool may_merge(size_t d) const { return !protected_[d]; }
  bool must_merge(size_t d) const;
  void merge(size_t d);
  void push_outer();

 private:
  void choose_walk(const std::vector<int>& nodes);
  void choose_dims(const std::vector<int>& nodes);
  void protect_dims(const std::vector<int>& nodes);
  std::vector<int64_t> cuts_of(const std::vector<int>& nodes) const;
  const Node& node(int n) const { return c_.graph.nodes()[static_cast<size_t>(n)]; }
  const Shape& shape_of(Value v) const { return c_.graph.type_of(v).shape; }
  void push_inner();

  const LoopContext& c_;
  int index_;
  const Group& group_;
  Walk walk_ = Walk::kElements;
  int64_t inner_ = 0, column_rows_ = 0;  // elements of a row, and rows of a sum over rows
  std::vector<int64_t> dims_, lows_;
  std::vector<bool> protected_;
};

}  // namespace ws
