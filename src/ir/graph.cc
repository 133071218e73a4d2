#include "ir/graph.h"

#include "ir/op_check.h"
#include "support/error.h"

namespace ws {

std::string_view name_of(AttrSpec::Kind kind) {
  switch (kind) {
    case AttrSpec::Kind::flag: return "flag";
    case AttrSpec::Kind::integer: return "integer";
    case AttrSpec::Kind::number: return "number";
    case AttrSpec::Kind::text: return "text";
    case AttrSpec::Kind::integers: return "list of integers";
    case AttrSpec::Kind::dtype: return "dtype";
  }
  return "?";
}

namespace {

AttrSpec::Kind kind_of(const AttrValue& value) {
  constexpr AttrSpec::Kind kKinds[] = {AttrSpec::Kind::flag, AttrSpec::Kind::integer,  AttrSpec::Kind::number,
                                       AttrSpec::Kind::text, AttrSpec::Kind::integers, AttrSpec::Kind::dtype};
  return kKinds[value.index()];  // in the order of the variant
}

// Sizes in bytes must fit 64 bits with room for sums of them.
void check_size(const Type& type, std::string_view who) {
  constexpr int64_t kMaxBytes = int64_t{1} << 56;
  if (type.shape.num_elements() > kMaxBytes / static_cast<int64_t>(size_of(type.dtype)))
    fail("{}: a value of type {} is larger than 2^56 bytes", who, type.str());
}

}  // namespace

std::string find_mistake(const OpDef& op, size_t num_inputs, const Attrs& attrs) {
  if (op.arity >= 0 && num_inputs != static_cast<size_t>(op.arity))
    return fmt::format("{} takes {} input{}, {} given", op.name, op.arity, op.arity == 1 ? "" : "s", num_inputs);
  if (op.arity < 0 && num_inputs == 0) return fmt::format("{} takes at least one input, none given", op.name);
  size_t num_attrs = 0;
  for (const AttrSpec& spec : op.attrs) {
    const AttrValue* value = attrs.find(spec.name);
    if (!value && spec.optional) continue;
    if (!value) return fmt::format("{} needs the attribute '{}' ({})", op.name, spec.name, name_of(spec.kind));
    if (kind_of(*value) != spec.kind)
      return fmt::format("attribute '{}' of {} is a {}, not a {}", spec.name, op.name, name_of(spec.kind),
                         name_of(kind_of(*value)));
    ++num_attrs;
  }
  for (const auto& [name, value] : attrs) {
    if (num_attrs == static_cast<size_t>(std::distance(attrs.begin(), attrs.end()))) break;
    bool known = false;
    for (const AttrSpec& spec : op.attrs) known |= spec.name == name;
    if (!known) return fmt::format("{} has no attribute '{}'", op.name, name);
  }
  return "";
}

Value Graph::add_input(std::string input_name, Type type) {
  check_size(type, "input '" + input_name + "'");
  const Value v{num_values()};
  types_.push_back(type);
  producers_.push_back(-1);
  inputs_.push_back({v, std::move(input_name)});
  return v;
}

std::vector<Value> Graph::add_node(const OpDef& op, std::vector<Value> inputs, Attrs attrs, std::string path, int checkpoint) {
  const std::string mistake = find_mistake(op, inputs.size(), attrs);
  WS_ASSERT(mistake.empty(), "{}", mistake);
  std::vector<Type> input_types;
  input_types.reserve(inputs.size());
  for (Value v : inputs) {
    WS_ASSERT(v.id >= 0 && v.id < num_values(), "{} reads value {} of {}", op.name, v.id, num_values());
    input_types.push_back(type_of(v));
  }
  std::vector<Type> result_types = op.infer(input_types, attrs);
  WS_ASSERT(result_types.size() == static_cast<size_t>(op.num_results), "{} inferred {} types", op.name, result_types.size());
  std::vector<Value> results;
  results.reserve(result_types.size());
  for (const Type& t : result_types) check_size(t, op.name);
  for (const Type& t : result_types) {
    results.push_back(Value{num_values()});
    types_.push_back(t);
    producers_.push_back(static_cast<int>(nodes_.size()));
  }
  nodes_.push_back({&op, std::move(attrs), std::move(inputs), results, std::move(path), checkpoint});
  return results;
}

void Graph::add_output(Value v, std::string output_name, int donates_input) {
  outputs_.push_back({v, std::move(output_name), donates_input});
}

std::vector<Value> GraphBuilder::apply(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  return graph_.add_node(op, {inputs.begin(), inputs.end()}, attrs, path, checkpoint);
}

}  // namespace ws
