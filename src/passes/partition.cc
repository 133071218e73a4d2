#include "passes/partition.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "passes/pass.h"
#include "support/communicator.h"
#include "support/error.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

/// Where the elements of a value are. Split: the dim of `axis` is rows * unit, and rank r holds rows_of_rank(rows, ranks, r), `unit` each.
struct Placement {
  enum class Kind : uint8_t { whole, split, partial };
  Kind kind = Kind::whole;
  int axis = -1;
  int64_t rows = 0, unit = 1;

  bool split() const { return kind == Kind::split; }
  bool partial() const { return kind == Kind::partial; }
  Placement on(int other_axis, int64_t other_unit) const { return {Kind::split, other_axis, rows, other_unit}; }
  Placement on(int other_axis) const { return on(other_axis, unit); }
  bool operator==(const Placement&) const = default;
};

std::vector<int64_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

int64_t product_before(const Shape& shape, int axis) {
  int64_t n = 1;
  for (int i = 0; i < axis; ++i) n *= shape[i];
  return n;
}

class Partitioner {
 public:
  Partitioner(const Graph& from, const PartitionOptions& options)
      : from_(from), options_(options), build_(to_), places_(at(from.num_values())), here_(at(from.num_values())),
        whole_(at(from.num_values())), uses_(at(from.num_values())) {
    to_.name = from.name;
    for (const Node& node : from.nodes())
      for (Value v : node.inputs) uses_[at(v.id)].push_back(&node);
  }

  Graph run() {
    for (size_t i = 0; i < from_.inputs().size(); ++i) {
      const GraphInput& input = from_.inputs()[i];
      const Type& type = from_.type_of(input.value);
      const Placement p = is_marked(options_.sharded_inputs, i) ? rows_of(type.shape) : Placement{};
      set(input.value, to_.add_input(input.name, {type.dtype, my_shape(type.shape, p)}), p);
    }
    for (size_t i = 0; i < from_.inputs().size(); ++i)
      if (options_.batches[i]) take_rows(from_.inputs()[i].value);
    for (const Node& node : from_.nodes()) {
      build_.path = node.path;
      build_.checkpoint = node.checkpoint;
      place(node);
      settle(node);
    }
    build_.path.clear(), build_.checkpoint = 0;
    for (size_t i = 0; i < from_.outputs().size(); ++i) {
      const GraphOutput& output = from_.outputs()[i];
      const bool in_part = is_marked(options_.sharded_outputs, i);
      const Value value = in_part ? part(output.value, rows_of(shape_of(output.value))) : whole(output.value);
      to_.add_output(value, output.name, output.donates_input);
    }
    std::set<std::string> none;
    PassContext context{none, {}};
    std::optional<Graph> smaller = eliminate_dead_code(to_, context);  // whole forms of what was only needed in part
    return smaller ? std::move(*smaller) : std::move(to_);
  }

 private:
  static bool is_marked(const std::vector<bool>& marks, size_t i) { return !marks.empty() && marks[i]; }
  static Placement rows_of(const Shape& shape) { return {Placement::Kind::split, 0, shape[0], 1}; }
  const Shape& shape_of(Value v) const { return from_.type_of(v).shape; }
  const Placement& place_of(Value v) const { return places_[at(v.id)]; }
  std::pair<int64_t, int64_t> my_range(const Placement& p) const {
    const auto [begin, end] = rows_of_rank(p.rows, options_.num_ranks, options_.rank);
    return {begin * p.unit, end * p.unit};
  }
  Shape my_shape(Shape whole, const Placement& p) const {
    if (!p.split()) return whole;
    std::vector<int64_t> dims = dims_of(whole);
    const auto [begin, end] = my_range(p);
    dims[at(p.axis)] = end - begin;
    return Shape(dims);
  }
  void set(Value v, Value here, const Placement& p) {
    here_[at(v.id)] = here;
    places_[at(v.id)] = p;
  }

  // --- moving values -----------------------------------------------------------------------------------------------------------

  /// A batch: its rows of this rank. The whole form stays what the caller gave.
  void take_rows(Value batch) {
    const Shape& shape = shape_of(batch);
    if (shape.rank() == 0) return;
    const Placement p = rows_of(shape);
    whole_[at(batch.id)] = here_[at(batch.id)];
    set(batch, slice(here_[at(batch.id)], p), p);
  }

  Value slice(Value v, const Placement& p) {
    const Shape shape = to_.type_of(v).shape;
    std::vector<int64_t> starts(at(shape.rank()), 0), stops = dims_of(shape), steps(at(shape.rank()), 1);
    std::tie(starts[at(p.axis)], stops[at(p.axis)]) = my_range(p);
    return build_.op("slice", {v}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
  }

  Value gather(Value here, const Placement& p) {
    const int rank = to_.type_of(here).shape.rank();
    std::vector<int64_t> swap(at(rank));
    for (int i = 0; i < rank; ++i) swap[at(i)] = i;
    std::swap(swap[0], swap[at(p.axis)]);
    if (p.axis != 0) here = build_.transpose(here, swap);
    here = build_.op("all_gather", {here}, {{"channel", next_channel_++}, {"rows", p.rows}, {"unit", p.unit}});
    return p.axis != 0 ? build_.transpose(here, swap) : here;
  }

  Value reduce(Value here, bool maximum) {
    if (to_.type_of(here).dtype == DType::bf16)  // added in f32, rounded once after
      return build_.cast(reduce(build_.cast(here, DType::f32), maximum), DType::bf16);
    return build_.op("all_reduce", {here}, {{"bucket", int64_t{0}}, {"channel", next_channel_++}, {"maximum", maximum}});
  }

  /// v on every rank.
  Value whole(Value v) {
    const Placement p = place_of(v);
    if (p.kind == Placement::Kind::whole) return here_[at(v.id)];
    Value& known = whole_[at(v.id)];
    if (!known) known = p.split() ? gather(here_[at(v.id)], p) : reduce(here_[at(v.id)], false);
    return known;
  }

  /// This rank's part of v in that split.
  Value part(Value v, const Placement& p) {
    if (place_of(v) == p) return here_[at(v.id)];
    if (place_of(v).kind == Placement::Kind::whole) return part_of_whole(v, p);
    return slice(whole(v), p);
  }

  /// Computed for this rank's rows alone where that is possible, so that the whole value need not be made.
  Value part_of_whole(Value v, const Placement& p) {
    const auto key = std::make_tuple(v.id, p.axis, p.rows, p.unit);
    if (auto found = parts_.find(key); found != parts_.end()) return found->second;
    const int producer = from_.producer_of(v);
    Value result = producer >= 0 ? computed_part(from_.nodes()[at(producer)], v, p) : Value{};
    if (!result) result = slice(whole(v), p);
    return parts_[key] = result;
  }

  Value computed_part(const Node& node, Value v, const Placement& p) {
    const Shape mine = my_shape(shape_of(v), p);
    if (node.op->lowering == Lowering::kView && node.op->name == "broadcast") {
      const Shape& source = shape_of(node.inputs[0]);
      const int axis = p.axis - (shape_of(v).rank() - source.rank());
      const bool grows = axis < 0 || source[axis] == 1;
      const Value x = grows ? whole(node.inputs[0]) : part(node.inputs[0], p.on(axis));
      return build_.broadcast_to(x, mine);
    }
    if (node.op->lowering != Lowering::kElementwise || node.op->arity == 0) return {};
    Attrs attrs = node.attrs;
    if (node.op->has(kIndexed)) {
      if (node.op->name != "random_bits" || product_before(shape_of(v), p.axis) != 1) return {};
      const int64_t row = shape_of(v)[p.axis] == 0 ? 0 : shape_of(v).num_elements() / shape_of(v)[p.axis];
      attrs.set("offset", attrs.integer("offset") + my_range(p).first * row);
    }
    if (node.op->has(kSwapsPairs) && p.axis == shape_of(v).rank() - 1) return {};
    for (Value in : node.inputs)
      if (place_of(in).partial()) return {};  // summands of ranks were added before they travelled: the sum has those bits
    std::vector<Value> inputs;
    for (Value in : node.inputs) inputs.push_back(part(in, p));
    return build_.apply(*node.op, inputs, attrs)[0];
  }

  /// A partial sum is made whole at once, so that it travels while the rest of the backward pass is computed; unless its only
  /// reader can add to it first.
  void settle(const Node& node) {
    for (Value r : node.results) {
      if (!place_of(r).partial()) continue;
      const auto& uses = uses_[at(r.id)];
      if (uses.size() == 1 && keeps_partial(*uses[0])) continue;
      set(r, whole(r), {});
    }
  }
  static bool keeps_partial(const Node& reader) {
    return reader.op->name == "add" || reader.op->name == "reshape" || reader.op->name == "transpose";
  }

  // --- ops ---------------------------------------------------------------------------------------------------------------------

  void place(const Node& node) {
    const bool all_whole =
        std::all_of(node.inputs.begin(), node.inputs.end(), [&](Value v) { return place_of(v).kind == Placement::Kind::whole; });
    if (all_whole) return place_whole(node);
    switch (node.op->lowering) {
      case Lowering::kElementwise: return place_elementwise(node);
      case Lowering::kCheck: return place_elementwise(node);
      case Lowering::kView: return place_view(node);
      case Lowering::kReduce: return place_reduce(node);
      case Lowering::kMatmul: return place_matmul(node);
      case Lowering::kConcatenate: return place_along(node, [&](int axis) { return axis != node.attrs.integer("axis"); });
      case Lowering::kPad:
        return place_along(node, [&](int axis) {
          return node.attrs.integers("low")[at(axis)] == 0 && node.attrs.integers("high")[at(axis)] == 0 &&
                 node.attrs.integers("interior")[at(axis)] == 0;
        });
      case Lowering::kAttention:
      case Lowering::kAttentionGrad: return place_rows_apart(node);
      case Lowering::kGather: return place_gather(node);
      case Lowering::kScatterAdd: return place_scatter_add(node);
      case Lowering::kCollective: WS_ASSERT(false, "graph {} is split already", from_.name);
    }
    place_whole(node);
  }

  void apply(const Node& node, const std::vector<Value>& inputs, const Attrs& attrs, const Placement& p) {
    const std::vector<Value> results = build_.apply(*node.op, inputs, attrs);
    for (size_t i = 0; i < results.size(); ++i) set(node.results[i], results[i], p);
  }

  void place_whole(const Node& node) {
    std::vector<Value> inputs;
    for (Value v : node.inputs) inputs.push_back(whole(v));
    apply(node, inputs, node.attrs, {});
  }

  /// The split of the first input that has one; Kind::whole where there is none.
  Placement split_of(const Node& node) const {
    for (Value v : node.inputs)
      if (place_of(v).split()) return place_of(v);
    return {};
  }

  /// Inputs and results are split alike, along an axis that the op does not mix.
  template <class Keeps>
  void place_along(const Node& node, const Keeps& keeps) {
    const Placement p = split_of(node);
    if (!p.split() || !keeps(p.axis)) return place_whole(node);
    std::vector<Value> inputs;
    for (Value v : node.inputs) inputs.push_back(part(v, p));
    apply(node, inputs, node.attrs, p);
  }

  /// Ops that compute the rows of the first axis apart from each other, and know which is their first.
  void place_rows_apart(const Node& node) {
    const Placement p = split_of(node);
    if (!node.op->has(kRowsApart) || !p.split() || p.axis != 0) return place_whole(node);
    std::vector<Value> inputs;
    for (Value v : node.inputs) inputs.push_back(shape_of(v).rank() == 0 ? whole(v) : part(v, p));
    Attrs attrs = node.attrs;
    if (attrs.find("first_row") != nullptr) attrs.set("first_row", attrs.integer("first_row") + my_range(p).first);
    apply(node, inputs, attrs, p);
  }

  void place_elementwise(const Node& node) {
    if (node.op->name == "add" && place_of(node.inputs[0]).partial() && place_of(node.inputs[1]).partial())
      return apply(node, {here_[at(node.inputs[0].id)], here_[at(node.inputs[1].id)]}, node.attrs, place_of(node.inputs[0]));
    place_along(node, [&](int axis) {
      const int rank = shape_of(node.results[0]).rank();
      return !node.op->has(kIndexed) && !(node.op->has(kSwapsPairs) && axis == rank - 1);
    });
  }

  void place_view(const Node& node) {
    const Value x = node.inputs[0], r = node.results[0];
    const Placement p = place_of(x);
    if (p.partial()) {
      if (keeps_partial(node)) return apply(node, {here_[at(x.id)]}, node.attrs, p);
      return place_whole(node);
    }
    const Shape &from = shape_of(x), &to = shape_of(r);
    Attrs attrs = node.attrs;
    Placement q;
    if (node.op->name == "transpose") {
      const auto& permutation = attrs.integers("permutation");
      const auto found = std::find(permutation.begin(), permutation.end(), static_cast<int64_t>(p.axis));
      q = p.on(static_cast<int>(found - permutation.begin()));
    } else if (node.op->name == "broadcast") {
      q = p.on(p.axis + to.rank() - from.rank());
      if (to[q.axis] != from[p.axis]) return place_whole(node);
      attrs.set("shape", dims_of(my_shape(to, q)));
    } else if (node.op->name == "slice") {
      const auto axis = at(p.axis);
      if (attrs.integers("starts")[axis] != 0 || attrs.integers("stops")[axis] != from[p.axis] ||
          attrs.integers("steps")[axis] != 1)
        return place_whole(node);
      q = p;
      std::vector<int64_t> stops = attrs.integers("stops");
      stops[axis] = my_shape(from, p)[p.axis];
      attrs.set("stops", stops);
    } else {
      q = reshaped(from, to, p);
      if (!q.split()) return place_whole(node);
      attrs.set("shape", dims_of(my_shape(to, q)));
    }
    apply(node, {here_[at(x.id)]}, attrs, q);
  }

  /// A reshape keeps each rank's rows together where they are all that the new axis counts.
  Placement reshaped(const Shape& from, const Shape& to, const Placement& p) const {
    const int64_t before = product_before(from, p.axis);
    for (int axis = to.rank() - 1; axis >= 0; --axis)  // the last such axis: those before it count one
      if (product_before(to, axis) == before && p.rows > 0 && to[axis] % p.rows == 0 && to[axis] > 0)
        return p.on(axis, to[axis] / p.rows);
    return {};
  }

  void place_reduce(const Node& node) {
    const Placement p = split_of(node);
    const int64_t first = node.attrs.integer("first_axis"), last = first + node.attrs.integer("num_axes");
    const bool maximum = node.op->name == "reduce_max";
    if (!p.split()) return place_whole(node);
    const Value x = here_[at(node.inputs[0].id)];
    if (p.axis < first || p.axis >= last)
      return apply(node, {x}, node.attrs, p.axis < first ? p : p.on(p.axis - static_cast<int>(last - first)));
    if (!maximum) return apply(node, {x}, node.attrs, {.kind = Placement::Kind::partial});
    if (p.rows < options_.num_ranks) return place_whole(node);  // a rank without rows has no maximum
    set(node.results[0], reduce(build_.apply(*node.op, std::vector{x}, node.attrs)[0], true), {});
  }

  void place_matmul(const Node& node) {
    const Value a = node.inputs[0], b = node.inputs[1];
    const Placement pa = place_of(a), pb = place_of(b);
    const int rank_a = shape_of(a).rank(), rank_b = shape_of(b).rank();
    const bool ta = node.attrs.flag("transpose_a"), tb = node.attrs.flag("transpose_b");
    const int m_of_a = ta ? rank_a - 1 : rank_a - 2, k_of_a = ta ? rank_a - 2 : rank_a - 1;
    const int k_of_b = tb ? rank_b - 1 : rank_b - 2, n_of_b = tb ? rank_b - 2 : rank_b - 1;
    const int batch_axes = rank_a - 2;
    const bool b_is_shared = rank_b < rank_a;
    if (pa.split()) {
      if (pa.axis == k_of_a) return multiply_partial(node, here_[at(a.id)], part(b, pa.on(k_of_b)));
      if (pa.axis == m_of_a) return apply(node, {here_[at(a.id)], whole(b)}, node.attrs, pa.on(batch_axes));
      return apply(node, {here_[at(a.id)], b_is_shared ? whole(b) : part(b, pa)}, node.attrs, pa);
    }
    if (pb.split()) {
      if (pb.axis == k_of_b) return multiply_partial(node, part(a, pb.on(k_of_a)), here_[at(b.id)]);
      if (pb.axis == n_of_b) return apply(node, {whole(a), here_[at(b.id)]}, node.attrs, pb.on(batch_axes + 1));
      return apply(node, {part(a, pb), here_[at(b.id)]}, node.attrs, pb);
    }
    place_whole(node);
  }

  /// Summands are added in f32, rounded once after.
  void multiply_partial(const Node& node, Value a, Value b) {
    const DType dtype = node.attrs.dtype("out_dtype");
    if (dtype != DType::bf16) return apply(node, {a, b}, node.attrs, {.kind = Placement::Kind::partial});
    Attrs attrs = node.attrs;
    attrs.set("out_dtype", DType::f32);
    const Value product = build_.apply(*node.op, std::vector{a, b}, attrs)[0];
    set(node.results[0], build_.cast(reduce(product, false), dtype), {});
  }

  void place_gather(const Node& node) {
    const Value table = node.inputs[0], indices = node.inputs[1];
    const Placement p = place_of(indices);
    if (!p.split()) return place_whole(node);
    apply(node, {whole(table), here_[at(indices.id)]}, node.attrs, p);
  }

  void place_scatter_add(const Node& node) {
    const Value indices = node.inputs[0], updates = node.inputs[1];
    const Placement p = split_of(node);
    if (!p.split() || p.axis >= shape_of(indices).rank()) return place_whole(node);
    apply(node, {part(indices, p), part(updates, p)}, node.attrs, {.kind = Placement::Kind::partial});
  }

  const Graph& from_;
  const PartitionOptions& options_;
  Graph to_;
  GraphBuilder build_;
  // By old value.
  std::vector<Placement> places_;
  std::vector<Value> here_;   // as placed
  std::vector<Value> whole_;  // of a split or partial one, where someone asked
  std::vector<std::vector<const Node*>> uses_;
  std::map<std::tuple<int, int, int64_t, int64_t>, Value> parts_;  // of whole values
  int64_t next_channel_ = 0;
};

}  // namespace

Graph partition(const Graph& graph, const PartitionOptions& options) {
  WS_ASSERT(options.batches.size() == graph.inputs().size(), "{} batch marks for {} inputs", options.batches.size(),
            graph.inputs().size());
  return Partitioner(graph, options).run();
}

}  // namespace ws
