#include "schedule/loop_nest.h"

#include <algorithm>

#include "support/error.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }
bool counts(const Node& x) { return x.op->name == "iota"; }
int counted_axis(const Node& x) { return static_cast<int>(x.attrs.integer("axis")); }

}  // namespace

LoopNest::LoopNest(const LoopContext& context, int group) : c_(context), index_(group), group_(context.groups.list[at(group)]) {
  const std::vector<int>& nodes = context.materialized.bodies[at(group)];
  if (nodes.empty()) return;
  choose_walk(nodes);
  choose_dims(nodes);
  protect_dims(nodes);
}

void LoopNest::choose_walk(const std::vector<int>& nodes) {
  bool row = false, column = false, flat = false;
  for (int n : nodes) {
    if (!is_reduce(n)) continue;
    const ReduceShape r = reduce_shape(c_.graph, node(n));
    (r.whole() ? flat : r.along_row() ? row : column) = true;
    if (r.whole()) continue;
    inner_ = r.along_row() ? r.reduced : r.inner;
    if (!r.along_row()) column_rows_ = r.reduced;
  }
  walk_ = flat ? Walk::kFlatBlocks : column ? Walk::kRowBlocks : row ? Walk::kRows : Walk::kElements;
  if (group_.kind == Group::Kind::kGemm) inner_ = group_.inner;
}

/// Where any value of the group begins a new dim, in elements of the group.
std::vector<int64_t> LoopNest::cuts_of(const std::vector<int>& nodes) const {
  std::vector<int64_t> cuts = {1};
  const auto add = [&](const Shape& s, int64_t scale) {
    WS_ASSERT(merge_cuts(cuts, s, scale), "cuts of {} do not nest", s.str());
  };
  if (group_.elements > 1) add(Shape{group_.elements}, 1);
  for (int n : nodes) {
    const Value result = node(n).results[0];
    if (folds(n))
      add(shape_of(result), 1);
    else if (is_reduce(n))
      add(shape_of(node(n).inputs[0]), 1);
    else
      add(shape_of(result), at_row_level(result) ? row_scale() : 1);
  }
  if (inner_ > 1) add(Shape{inner_}, 1);
  if (column_rows_ > 0) add(Shape{column_rows_, inner_}, 1);
  return cuts;
}

void LoopNest::choose_dims(const std::vector<int>& nodes) {
  const std::vector<int64_t> cuts = cuts_of(nodes);
  for (size_t i = cuts.size(); i-- > 1;) {
    dims_.push_back(cuts[i] / cuts[i - 1]);
    lows_.push_back(cuts[i - 1]);
  }
  if (dims_.empty()) push_inner();
  // A row of one element is still a row.
  if ((walk_ == Walk::kRows || walk_ == Walk::kRowBlocks || group_.kind == Group::Kind::kGemm) && inner_ == 1) push_inner();
  // So is a column of one: a sum over an axis of size 1.
  if (walk_ == Walk::kRowBlocks && column_rows_ == 1) {
    const auto first_inner = std::find_if(lows_.begin(), lows_.end(), [&](int64_t low) { return low < inner_; });
    dims_.insert(dims_.begin() + (first_inner - lows_.begin()), 1);
    lows_.insert(first_inner, inner_);
  }
  for (int n : nodes)
    if (counts(node(n)) && shape_of(node(n).results[0])[counted_axis(node(n))] == 1) push_inner();
}

void LoopNest::protect_dims(const std::vector<int>& nodes) {
  protected_.assign(dims_.size(), false);
  for (size_t i = 0; i + 1 < dims_.size(); ++i) {
    const int64_t low = lows_[i];
    if (walk_ == Walk::kRows || group_.kind == Group::Kind::kGemm) protected_[i] = low == inner_;
    if (walk_ == Walk::kRowBlocks) protected_[i] = low == inner_ || low == inner_ * column_rows_;
  }
  for (int n : nodes)
    if (counts(node(n))) std::fill(protected_.begin(), protected_.end(), true);
}

void LoopNest::push_inner() {
  dims_.push_back(1);
  lows_.push_back(1);
}

std::vector<int64_t> LoopNest::strides(const Shape& shape, const std::array<int64_t, kMaxRank>& strides, int64_t scale) const {
  std::vector<int64_t> out(dims_.size(), 0);
  int64_t low = scale;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int64_t high = low * shape[i];
    if (shape[i] != 1)
      for (size_t d = 0; d < dims_.size(); ++d)
        if (lows_[d] >= low && lows_[d] < high && dims_[d] != 1) out[d] = strides[at(i)] * (lows_[d] / low);
    low = high;
  }
  return out;
}

size_t LoopNest::dim_of_axis(const Shape& shape, int axis) const {
  int64_t low = 1;
  for (int i = shape.rank() - 1; i > axis; --i) low *= shape[i];
  size_t found = dims_.size() - 1;  // of an axis of size 1: the dim pushed for it
  for (size_t d = 0; d < dims_.size(); ++d)
    if (shape[axis] != 1 && lows_[d] == low && dims_[d] == shape[axis]) found = d;
  return found;
}

bool LoopNest::must_merge(size_t d) const {
  if (walk_ == Walk::kFlatBlocks) return true;
  if (walk_ == Walk::kRows) return lows_[d] < inner_;
  if (walk_ == Walk::kRowBlocks) return lows_[d] < inner_ || (lows_[d] > inner_ && lows_[d] < inner_ * column_rows_);
  return group_.kind == Group::Kind::kGemm && lows_[d] < inner_;
}

void LoopNest::merge(size_t d) {
  dims_[d + 1] *= dims_[d];
  const auto place = static_cast<std::ptrdiff_t>(d);
  dims_.erase(dims_.begin() + place);
  lows_.erase(lows_.begin() + place);
  protected_.erase(protected_.begin() + place);
}

void LoopNest::push_outer() {
  lows_.insert(lows_.begin(), dims_.front() * lows_.front());
  dims_.insert(dims_.begin(), 1);
  protected_.insert(protected_.begin(), false);
}

}  // namespace ws
