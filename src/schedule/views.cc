#include "schedule/views.h"

#include "support/error.h"

namespace ws {
namespace {

using Strides = std::array<int64_t, kMaxRank>;
size_t at(int i) { return static_cast<size_t>(i); }

Strided through_broadcast(const Strided& x, const Shape& from, const Shape& to) {
  Strided r{x.base, x.offset, {}};
  const int pad = to.rank() - from.rank();
  for (int i = 0; i < from.rank(); ++i) r.strides[at(i + pad)] = from[i] == to[i + pad] ? x.strides[at(i)] : 0;
  return r;
}

Strided through_transpose(const Strided& x, const std::vector<int64_t>& permutation) {
  Strided r{x.base, x.offset, {}};
  for (size_t i = 0; i < permutation.size(); ++i) r.strides[i] = x.strides[static_cast<size_t>(permutation[i])];
  return r;
}

Strided through_slice(const Strided& x, const Attrs& attrs, int rank) {
  Strided r = x;
  for (int i = 0; i < rank; ++i) {
    r.offset += attrs.integers("starts")[at(i)] * x.strides[at(i)];
    r.strides[at(i)] = x.strides[at(i)] * attrs.integers("steps")[at(i)];
  }
  return r;
}

}  // namespace

bool is_dense(const Shape& dims, const Strides& strides) {
  int64_t expected = 1;
  for (int i = dims.rank() - 1; i >= 0; --i) {
    if (dims[i] == 1) continue;
    if (strides[at(i)] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

std::optional<Strides> reshape_strides(const Shape& from, const Strides& strides, const Shape& to) {
  if (from.num_elements() == 0) return dense_strides(to);
  // Merge source dims that step as one, then cut the merged runs by the target's dims, innermost first.
  struct Run {
    int64_t size, stride;
  };
  std::vector<Run> runs;
  for (int i = from.rank() - 1; i >= 0; --i) {
    if (from[i] == 1) continue;
    if (!runs.empty() && strides[at(i)] == runs.back().stride * runs.back().size)
      runs.back().size *= from[i];
    else
      runs.push_back({from[i], strides[at(i)]});
  }
  Strides out{};
  size_t run = 0;
  int64_t used = 1;
  for (int i = to.rank() - 1; i >= 0; --i) {
    if (to[i] == 1) continue;
    if (run >= runs.size()) return std::nullopt;
    out[at(i)] = runs[run].stride * used;
    used *= to[i];
    if (runs[run].size % used != 0) return std::nullopt;
    if (used == runs[run].size) {
      ++run;
      used = 1;
    }
  }
  return out;
}

ViewMap::ViewMap(const Graph& graph, const std::vector<InputLayout>& layouts)
    : graph_(graph), strided_(static_cast<size_t>(graph.num_values())),
      dense_base_(static_cast<size_t>(graph.num_values()), true) {
  auto own = [&](Value v) { strided_[at(v.id)] = {v, 0, dense_strides(graph.type_of(v).shape)}; };
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value v = graph.inputs()[i].value;
    own(v);
    if (layouts.empty()) continue;
    strided_[at(v.id)].offset = layouts[i].offset;
    strided_[at(v.id)].strides = layouts[i].strides;
    dense_base_[at(v.id)] = layouts[i].offset == 0 && is_dense(graph.type_of(v).shape, layouts[i].strides);
  }
  for (const Node& node : graph.nodes()) {
    for (Value r : node.results) own(r);
    if (node.op->lowering != Lowering::kView) continue;
    const Value in = node.inputs[0], out = node.results[0];
    const Shape &from = graph.type_of(in).shape, &to = graph.type_of(out).shape;
    const Strided& x = strided_[at(in.id)];
    if (node.op->name == "broadcast")
      strided_[at(out.id)] = through_broadcast(x, from, to);
    else if (node.op->name == "transpose")
      strided_[at(out.id)] = through_transpose(x, node.attrs.integers("permutation"));
    else if (node.op->name == "slice")
      strided_[at(out.id)] = through_slice(x, node.attrs, from.rank());
    else if (node.op->name == "reshape") {
      if (auto strides = reshape_strides(from, x.strides, to)) strided_[at(out.id)] = {x.base, x.offset, *strides};
    } else {
      WS_ASSERT(false, "the schedule does not know the view {}", node.op->name);
    }
  }
}

bool ViewMap::is_whole(Value v) const {
  const Strided& s = of(v);
  const Shape &dims = graph_.type_of(v).shape, &base = graph_.type_of(s.base).shape;
  return dense_base_[at(s.base.id)] && s.offset == 0 && dims.num_elements() == base.num_elements() && is_dense(dims, s.strides);
}

}  // namespace ws
