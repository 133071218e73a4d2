// The gradient of a value that was cut into slices is a sum of pads, each zero outside its own range. Where the ranges are neighbours the
// sum is a concatenation; only `+ 0` remains of the addition, which keeps its bits (-0 + 0 is +0, a denormal is flushed).
#include <algorithm>
#include <cmath>
#include <optional>

#include "passes/rules.h"

namespace ws {

namespace {

struct Padded {
  Value x;
  int axis;
  int64_t low, high, size;  // zeros before and after, and the range between them
};

// A pad along one axis, with nothing between elements.
std::optional<Padded> as_padded(const Match& m, Value v) {
  const Node* pad = m.made_by(v, "pad");
  if (!pad) return std::nullopt;
  const auto &low = pad->attrs.integers("low"), &high = pad->attrs.integers("high"), &interior = pad->attrs.integers("interior");
  int axis = -1;
  for (size_t i = 0; i < low.size(); ++i) {
    if (interior[i] != 0 || low[i] < 0 || high[i] < 0) return std::nullopt;
    if (low[i] == 0 && high[i] == 0) continue;
    if (axis >= 0) return std::nullopt;
    axis = static_cast<int>(i);
  }
  if (axis < 0) return std::nullopt;
  const Value x = pad->inputs[0];
  return Padded{x, axis, low[static_cast<size_t>(axis)], high[static_cast<size_t>(axis)], m.shape_of(x)[axis]};
}

bool is_zero(const Match& m, Value v) {
  const Node* splat = m.made_by(v, "broadcast");
  const Node* zero = m.made_by(splat ? splat->inputs[0] : v, "constant");
  return zero && zero->attrs.number("value") == 0 && !std::signbit(zero->attrs.number("value"));
}

bool is_plus_zero(const Match& m, Value v) {
  const Node* sum = m.made_by(v, "add");
  return sum && (is_zero(m, sum->inputs[0]) || is_zero(m, sum->inputs[1]));
}

// x + 0, in pieces where x is what this rule made of earlier terms.
void append_pieces(const Match& m, const Padded& padded, std::vector<Value>& pieces) {
  const Node* made = m.made_by(padded.x, "concatenate");
  if (made && made->attrs.integer("axis") == padded.axis &&
      std::all_of(made->inputs.begin(), made->inputs.end(), [&](Value v) { return is_plus_zero(m, v); })) {
    const std::vector<Value> inputs = made->inputs;  // building moves the nodes
    pieces.insert(pieces.end(), inputs.begin(), inputs.end());
    return;
  }
  pieces.push_back(m.builder.add(padded.x, m.builder.filled(m.graph.type_of(padded.x), 0)));
}

}  // namespace

Value add_neighbouring_pads(const Match& m) {
  auto first = as_padded(m, m.inputs[0]), second = as_padded(m, m.inputs[1]);
  if (!first || !second || first->axis != second->axis) return {};
  if (second->low + second->size == first->low) std::swap(first, second);
  if (first->low + first->size != second->low) return {};
  const Shape shape = m.shape_of(m.x());
  std::vector<Value> pieces;
  append_pieces(m, *first, pieces);
  append_pieces(m, *second, pieces);
  const Value joined = m.builder.apply(*find_op("concatenate"), pieces, {{"axis", int64_t{first->axis}}}).front();
  std::vector<int64_t> low(static_cast<size_t>(shape.rank())), high = low;
  low[static_cast<size_t>(first->axis)] = first->low;
  high[static_cast<size_t>(first->axis)] = second->high;
  return m.builder.op("pad", {joined}, {{"low", low}, {"high", high}, {"interior", std::vector<int64_t>(low.size())}});
}

}  // namespace ws
