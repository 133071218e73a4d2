#include "passes/rules.h"

#include <algorithm>
#include <numeric>

namespace ws {

const Node* Match::made_by(Value v, std::string_view op_name) const {
  const int producer = graph.producer_of(v);
  if (producer < 0) return nullptr;
  const Node& node = graph.nodes()[static_cast<size_t>(producer)];
  return node.op->name == op_name ? &node : nullptr;
}

Type Match::result_type() const {
  std::vector<Type> types;
  for (Value v : inputs) types.push_back(graph.type_of(v));
  return op.infer(types, attrs).front();
}

namespace {

using Ints = std::vector<int64_t>;
size_t at(int64_t i) { return static_cast<size_t>(i); }

// ---- Any op f with f(f(x)) = x.
Value cancel_pair(const Match& m) {
  const Node* inner = m.made_by(m.x(), m.op.name);
  return inner ? inner->inputs[0] : Value{};
}

Value drop_identity(const Match& m) { return m.x(); }

// ---- Reshape.
Value reshape_to_same(const Match& m) { return m.result_type() == m.graph.type_of(m.x()) ? m.x() : Value{}; }

Value merge_reshapes(const Match& m) {
  const Node* inner = m.made_by(m.x(), "reshape");
  return inner ? m.builder.reshape(inner->inputs[0], m.result_type().shape) : Value{};
}

// ---- Transpose.
Value transpose_identity(const Match& m) {
  const Ints& p = m.attrs.integers("permutation");
  return std::is_sorted(p.begin(), p.end()) ? m.x() : Value{};
}

Value merge_transposes(const Match& m) {
  const Node* inner = m.made_by(m.x(), "transpose");
  if (!inner) return {};
  const Ints &p = inner->attrs.integers("permutation"), &q = m.attrs.integers("permutation");
  Ints composed(q.size());
  for (size_t i = 0; i < q.size(); ++i) composed[i] = p[at(q[i])];
  return m.builder.transpose(inner->inputs[0], std::move(composed));
}

// Dims of 1 may stand anywhere: where the others keep their order, no element moves.
Value transpose_unit_dims(const Match& m) {
  const Shape& shape = m.shape_of(m.x());
  if (transpose_identity(m)) return {};
  int64_t last = -1;
  for (int64_t axis : m.attrs.integers("permutation")) {
    if (shape[static_cast<int>(axis)] == 1) continue;
    if (axis < last) return {};
    last = axis;
  }
  return m.builder.reshape(m.x(), m.result_type().shape);
}

// ---- Broadcast.
Value merge_broadcasts(const Match& m) {
  const Node* inner = m.made_by(m.x(), "broadcast");
  return inner ? m.builder.broadcast_to(inner->inputs[0], m.result_type().shape) : Value{};
}

// Same number of elements: only leading ones were added.
Value broadcast_unit_dims(const Match& m) {
  const Shape shape = m.result_type().shape;
  const int64_t count = shape.num_elements();
  return count > 0 && count == m.shape_of(m.x()).num_elements() && !reshape_to_same(m) ? m.builder.reshape(m.x(), shape)
                                                                                       : Value{};
}

// reshape from [3] to [1, 1, 3]: broadcast does that by itself.
Value broadcast_of_leading_ones(const Match& m) {
  const Node* inner = m.made_by(m.x(), "reshape");
  if (!inner) return {};
  const Shape &before = m.shape_of(inner->inputs[0]), &after = m.shape_of(m.x());
  const int extra = after.rank() - before.rank();
  if (extra <= 0) return {};
  for (int i = 0; i < after.rank(); ++i)
    if (after[i] != (i < extra ? 1 : before[i - extra])) return {};
  return m.builder.broadcast_to(inner->inputs[0], m.result_type().shape);
}

// Every element of a broadcast scalar is the same, so any view of it is that scalar broadcast.
Value view_of_splat(const Match& m) {
  const Node* splat = m.made_by(m.x(), "broadcast");
  if (!splat || m.shape_of(splat->inputs[0]).num_elements() != 1) return {};
  return m.builder.broadcast_to(m.builder.reshape(splat->inputs[0], {}), m.result_type().shape);
}

// ---- Slice, concatenate, pad.
Value slice_everything(const Match& m) {
  const Shape& shape = m.shape_of(m.x());
  const Ints &starts = m.attrs.integers("starts"), &steps = m.attrs.integers("steps");
  for (size_t i = 0; i < starts.size(); ++i)
    if (starts[i] != 0 || steps[i] != 1) return {};
  return m.result_type().shape == shape ? m.x() : Value{};
}

Value merge_slices(const Match& m) {
  const Node* inner = m.made_by(m.x(), "slice");
  const Shape shape = m.result_type().shape;
  if (!inner || shape.num_elements() == 0) return {};
  Ints starts = inner->attrs.integers("starts"), steps = inner->attrs.integers("steps"), stops(starts.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    starts[i] += m.attrs.integers("starts")[i] * steps[i];
    steps[i] *= m.attrs.integers("steps")[i];
    stops[i] = starts[i] + (shape[static_cast<int>(i)] - 1) * steps[i] + 1;
  }
  return m.builder.op("slice", {inner->inputs[0]}, {{"starts", starts}, {"stops", stops}, {"steps", steps}});
}

Value concatenate_one(const Match& m) { return m.inputs.size() == 1 ? m.x() : Value{}; }

Value pad_nothing(const Match& m) {
  for (const char* name : {"low", "high", "interior"})
    for (int64_t n : m.attrs.integers(name))
      if (n != 0) return {};
  return m.x();
}

// ---- Select, cast.
Value select_same(const Match& m) { return m.inputs[1] == m.inputs[2] ? m.inputs[1] : Value{}; }

Value select_not(const Match& m) {
  const Node* inverse = m.made_by(m.x(), "logical_not");
  return inverse ? m.builder.op("select", {inverse->inputs[0], m.inputs[2], m.inputs[1]}) : Value{};
}

Value cast_to_same(const Match& m) { return m.graph.type_of(m.x()).dtype == m.attrs.dtype("dtype") ? m.x() : Value{}; }

// Rounded piece by piece, so that what makes the pieces can write them rounded and no pass over the whole is needed.
Value narrow_pieces(const Match& m) {
  const Node* whole = m.made_by(m.x(), "reshape");
  whole = whole ? m.made_by(whole->inputs[0], "concatenate") : m.made_by(m.x(), "concatenate");
  const DType from = m.graph.type_of(m.x()).dtype, dtype = m.attrs.dtype("dtype");
  if (!whole || !is_floating(from) || !is_floating(dtype) || size_of(dtype) >= size_of(from)) return {};
  const Attrs attrs = whole->attrs;  // building moves the nodes
  std::vector<Value> pieces = whole->inputs;
  for (Value& piece : pieces) piece = m.builder.cast(piece, dtype);
  const Shape shape = m.shape_of(m.x());
  return m.builder.reshape(m.builder.apply(*find_op("concatenate"), pieces, attrs).front(), shape);
}

// Whatever an op computes in bf16 is rounded there, so that a denormal has become zero; one may come from memory, and the cast back would
// be what drops it.
bool is_rounded(const Graph& graph, Value v, int depth = 8) {
  const int producer = graph.producer_of(v);
  if (producer < 0 || depth == 0) return false;
  const Node& node = graph.nodes()[static_cast<size_t>(producer)];
  if (node.op->lowering != Lowering::kElementwise && node.op->lowering != Lowering::kView) return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](Value input) {
    return graph.type_of(input).dtype != DType::bf16 || is_rounded(graph, input, depth - 1);
  });
}

// bf16 to f32 is exact, and so is the way back.
Value cast_back(const Match& m) {
  const Node* inner = m.made_by(m.x(), "cast");
  if (!inner || m.attrs.dtype("dtype") != DType::bf16 || m.graph.type_of(m.x()).dtype != DType::f32) return {};
  const Value x = inner->inputs[0];
  return m.graph.type_of(x).dtype == DType::bf16 && is_rounded(m.graph, x) ? x : Value{};
}

// ---- Matmul: its flags say that an operand's last two dims are stored swapped; the order of its sums does not change.
bool swaps_last_two(const Ints& p) {
  const auto rank = static_cast<int64_t>(p.size());
  if (rank < 2 || p[at(rank - 1)] != rank - 2 || p[at(rank - 2)] != rank - 1) return false;
  for (int64_t i = 0; i < rank - 2; ++i)
    if (p[at(i)] != i) return false;
  return true;
}

Value fold_transpose(const Match& m, size_t side, std::string_view flag) {
  const Node* inner = m.made_by(m.inputs[side], "transpose");
  if (!inner || !swaps_last_two(inner->attrs.integers("permutation"))) return {};
  Attrs attrs = m.attrs;
  attrs.set(flag, !m.attrs.flag(flag));
  std::vector<Value> inputs(m.inputs.begin(), m.inputs.end());
  inputs[side] = inner->inputs[0];
  return m.builder.apply(m.op, inputs, attrs).front();
}

Value fold_transpose_a(const Match& m) { return fold_transpose(m, 0, "transpose_a"); }
Value fold_transpose_b(const Match& m) { return fold_transpose(m, 1, "transpose_b"); }

// Tried in this order for each op.
constexpr Rule kRules[] = {
    {"reshape_to_same", "reshape(x) to the shape of x", "x", "reshape", reshape_to_same},
    {"merge_reshapes", "reshape(reshape(x))", "reshape(x)", "reshape", merge_reshapes},
    {"reshape_of_splat", "reshape(broadcast(scalar))", "broadcast(scalar)", "reshape", view_of_splat},
    {"transpose_identity", "transpose(x) by the identity", "x", "transpose", transpose_identity},
    {"merge_transposes", "transpose(transpose(x))", "transpose(x)", "transpose", merge_transposes},
    {"transpose_unit_dims", "transpose(x) that moves only dims of 1", "reshape(x)", "transpose", transpose_unit_dims},
    {"transpose_of_splat", "transpose(broadcast(scalar))", "broadcast(scalar)", "transpose", view_of_splat},
    {"broadcast_to_same", "broadcast(x) to the shape of x", "x", "broadcast", reshape_to_same},
    {"merge_broadcasts", "broadcast(broadcast(x))", "broadcast(x)", "broadcast", merge_broadcasts},
    {"broadcast_unit_dims", "broadcast(x) that adds only dims of 1", "reshape(x)", "broadcast", broadcast_unit_dims},
    {"broadcast_of_leading_ones", "broadcast(reshape(x) that adds leading dims of 1)", "broadcast(x)", "broadcast",
     broadcast_of_leading_ones},
    {"slice_everything", "slice(x) of all elements", "x", "slice", slice_everything},
    {"merge_slices", "slice(slice(x))", "slice(x)", "slice", merge_slices},
    {"slice_of_splat", "slice(broadcast(scalar))", "broadcast(scalar)", "slice", view_of_splat},
    {"concatenate_one", "concatenate(x)", "x", "concatenate", concatenate_one},
    {"pad_nothing", "pad(x) by nothing", "x", "pad", pad_nothing},
    {"add_neighbouring_pads", "pad(x) + pad(y) on neighbouring ranges", "pad(concatenate(x + 0, y + 0))", "add",
     add_neighbouring_pads},
    {"narrow_pieces", "cast(concatenate(x, y)) to fewer bytes", "concatenate(cast(x), cast(y))", "cast", narrow_pieces},
    {"cast_to_same", "cast(x) to the dtype of x", "x", "cast", cast_to_same},
    {"cast_back", "cast(cast(x) to f32) to bf16, of an x rounded to bf16 in this graph", "x", "cast", cast_back},
    {"cancel_neg", "neg(neg(x))", "x", "neg", cancel_pair},
    {"cancel_not", "logical_not(logical_not(x))", "x", "logical_not", cancel_pair},
    {"cancel_swap_pairs", "swap_pairs(swap_pairs(x))", "x", "swap_pairs", cancel_pair},
    {"select_same", "select(c, x, x)", "x", "select", select_same},
    {"select_not", "select(not c, x, y)", "select(c, y, x)", "select", select_not},
    {"drop_stop_gradient", "stop_gradient(x)", "x", "stop_gradient", drop_identity},
    {"fold_transpose_a", "matmul(transpose(a), b)", "matmul(a, b) with the flag", "matmul", fold_transpose_a},
    {"fold_transpose_b", "matmul(a, transpose(b))", "matmul(a, b) with the flag", "matmul", fold_transpose_b},
};

}  // namespace

std::span<const Rule> all_rules() { return kRules; }

}  // namespace ws
