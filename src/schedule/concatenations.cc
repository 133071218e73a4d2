#include "schedule/concatenations.h"

#include <vector>

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

class PartFinder {
 public:
  PartFinder(const Graph& graph, const ViewMap& views, const Groups& groups, const Materialized& materialized)
      : graph_(graph), views_(views), groups_(groups), materialized_(materialized), uses_(at(graph.num_values()), 0) {
    for (const Node& n : graph.nodes())
      if (n.op->lowering != Lowering::kView)
        for (Value v : n.inputs) ++uses_[at(views.of(v).base.id)];
    // An output's own buffer is a caller's, and what is kept for another reader is dense.
    for (const GraphOutput& o : graph.outputs())
      uses_[at(views.of(o.value).base.id)] += 2, is_output_.insert(views.of(o.value).base.id);
    for (const auto& [group, values] : materialized.copies)
      for (int v : values) uses_[at(v)] += 2;
  }

  std::map<int, PartWindow> run() {
    for (const Node& n : graph_.nodes())
      if (n.op->lowering == Lowering::kConcatenate) place_parts(n);
    return std::move(parts_);
  }

 private:
  void place_parts(const Node& n) {
    const Value whole = n.results[0];
    const Shape& shape = graph_.type_of(whole).shape;
    // A checkpoint drops what can be computed again by one call.
    if (n.checkpoint != 0 || is_output_.count(whole.id) != 0 || shape.num_elements() == 0) return;
    const auto strides = dense_strides(shape);
    const auto axis = static_cast<int>(n.attrs.integer("axis"));
    int64_t offset = 0;
    for (Value part : n.inputs) {
      const Shape& dims = graph_.type_of(part).shape;
      if (can_write(part, dims, axis, strides)) parts_[part.id] = {whole, offset, strides};
      offset += dims[axis] * strides[at(axis)];
    }
  }

  bool can_write(Value part, const Shape& dims, int axis, const std::array<int64_t, kMaxRank>& strides) const {
    const int maker = graph_.producer_of(part);
    if (maker < 0 || dims.num_elements() == 0 || uses_[at(part.id)] != 1 || !views_.is_base(part) ||
        graph_.nodes()[at(maker)].op->lowering != Lowering::kElementwise || !materialized_.stored[at(part.id)])
      return false;
    const int home = groups_.of_node[at(maker)];
    if (home < 0) return false;  // a constant
    const Group& group = groups_.list[at(home)];
    if (group.elements != dims.num_elements() || group.has_row_reduce || group.has_flat_reduce || group.column_rows != 0)
      return false;
    int64_t run = 1;  // elements that stay adjacent
    for (int i = axis; i < dims.rank(); ++i) run *= dims[i];
    if (group.kind == Group::Kind::kGemm) return run % group.inner == 0;
    int last = dims.rank() - 1;
    while (last > 0 && dims[last] == 1) --last;
    return group.kind == Group::Kind::kLoop && strides[at(last)] == 1;
  }

  const Graph& graph_;
  const ViewMap& views_;
  const Groups& groups_;
  const Materialized& materialized_;
  std::vector<int> uses_;  // by value id
  std::set<int> is_output_;
  std::map<int, PartWindow> parts_;
};

}  // namespace

std::map<int, PartWindow> find_parts(const Graph& graph, const ViewMap& views, const Groups& groups,
                                     const Materialized& materialized) {
  return PartFinder(graph, views, groups, materialized).run();
}

}  // namespace ws
