#include "analysis/dtype_report.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "support/error.h"
#include "support/json.h"

namespace ws {
namespace {

bool is_product(const Node& n) {
  return n.op->lowering == Lowering::kMatmul || n.op->lowering == Lowering::kAttention ||
         n.op->lowering == Lowering::kAttentionGrad;
}

bool moves_data(const Node& n) {
  switch (n.op->lowering) {
    case Lowering::kView:
    case Lowering::kConcatenate:
    case Lowering::kPad:
    case Lowering::kGather:
    case Lowering::kCheck: return true;
    default: return n.op->name == "cast" || n.op->name == "constant" || n.op->name == "iota" || n.op->name == "swap_pairs";
  }
}

class LeakFinder {
 public:
  LeakFinder(const Graph& graph, const TracedDTypes& what)
      : graph_(graph), what_(what), origin_(static_cast<size_t>(graph.num_values()), -1),
        leads_to_bf16_(static_cast<size_t>(graph.num_values()), false), keeps_(static_cast<size_t>(graph.num_values()), false) {}

  std::vector<DTypeReport::Leak> run() {
    find_what_leads_to_bf16();
    for (int n = 0; n < what_.num_forward_nodes; ++n) visit(n);
    return std::move(leaks_);
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[static_cast<size_t>(n)]; }
  DType dtype(Value v) const { return graph_.type_of(v).dtype; }
  int& origin(Value v) { return origin_[static_cast<size_t>(v.id)]; }
  bool keeps(Value v) const { return keeps_[static_cast<size_t>(v.id)]; }
  bool leads_to_bf16(Value v) const { return leads_to_bf16_[static_cast<size_t>(v.id)]; }
  static bool holds(std::span<const int> sorted, int n) { return std::binary_search(sorted.begin(), sorted.end(), n); }

  void find_what_leads_to_bf16() {
    for (int n = what_.num_forward_nodes; n-- > 0;) {
      const Node& x = node(n);
      const bool leads =
          std::any_of(x.results.begin(), x.results.end(), [&](Value r) { return dtype(r) == DType::bf16 || leads_to_bf16(r); });
      for (Value v : x.inputs)
        if (leads) leads_to_bf16_[static_cast<size_t>(v.id)] = true;
    }
  }

  // Follows f32 values from the node that made them of bf16 (their origin).
  void visit(int n) {
    const Node& x = node(n);
    int from = -1;
    Value carrier;
    for (Value v : x.inputs)
      if (dtype(v) == DType::f32 && origin(v) >= 0 && from < 0) from = origin(v), carrier = v;
    const bool takes_bf16 = std::any_of(x.inputs.begin(), x.inputs.end(), [&](Value v) { return dtype(v) == DType::bf16; });
    if (holds(what_.promoted, n)) {
      if (leads_to_bf16(x.results[0])) add_meeting(x);
      from = n;
    } else if (is_product(x) && from >= 0 && dtype(x.inputs[0]) == DType::f32) {
      if (!is_product(node(from)) || leads_to_bf16(x.results[0])) add_from(x, from);
    } else if (holds(what_.rounded, n) && from >= 0 && !holds(what_.promoted, from)) {
      const int maker = graph_.producer_of(behind_views(carrier));
      if (maker != from && (!is_product(node(from)) || keeps(carrier))) add_from(node(maker), from);
    }
    if (from < 0 && takes_bf16) from = n;  // a widening cast, or a product that gives f32
    const bool keeps_here = !moves_data(x) && !is_product(x) && x.op->name != "add" && x.op->name != "sub" && x.op->name != "neg";
    for (Value r : x.results) {
      if (dtype(r) == DType::f32) origin(r) = from;
      keeps_[static_cast<size_t>(r.id)] = from >= 0 && from != n && (keeps_here || (carrier && keeps(carrier)));
    }
  }

  // Elementwise ops of both dtypes: the operand that does not come from bf16 is the cause.
  void add_meeting(const Node& x) {
    for (Value v : x.inputs) {
      if (dtype(v) != DType::f32 || origin(v) >= 0) continue;
      const Value source = behind_views(v);
      const int maker = graph_.producer_of(source);
      if (maker >= 0) return add(x, std::string(node(maker).op->name), node(maker).path, "gives it f32");
      for (const GraphInput& input : graph_.inputs())
        if (input.value == source) return add(x, input.name, "", "is f32");
    }
    add(x, "an f32 value", x.path, "met bf16");
  }
  Value behind_views(Value v) const {
    for (int p = graph_.producer_of(v); p >= 0 && node(p).op->lowering == Lowering::kView; p = graph_.producer_of(v))
      v = node(p).inputs[0];
    return v;
  }
  void add_from(const Node& x, int from) {
    const Node& cause = node(from);
    const bool widens = cause.op->name == "cast";
    add(x, std::string(cause.op->name), cause.path, widens ? "widens bf16 to f32" : "gives f32, which nothing rounds");
  }

  void add(const Node& x, const std::string& cause, const std::string& cause_path, const std::string& verb) {
    for (DTypeReport::Leak& known : leaks_)
      if (std::tie(known.op, known.path, known.cause, known.cause_path) ==
          std::tuple<std::string_view, const std::string&, const std::string&, const std::string&>(x.op->name, x.path, cause,
                                                                                                   cause_path)) {
        ++known.count;
        return;
      }
    auto at = [](const std::string& path) { return path.empty() ? "" : " in " + path; };
    std::string message = fmt::format("{}{} computes in f32: {}{} {}", x.op->name, at(x.path), cause, at(cause_path), verb);
    leaks_.push_back({std::string(x.op->name), x.path, cause, cause_path, std::move(message), 1});
  }

  const Graph& graph_;
  const TracedDTypes& what_;
  std::vector<int> origin_;  // by value: the node that made it, or what it comes from, f32 of bf16; -1: none
  std::vector<bool> leads_to_bf16_;
  std::vector<bool> keeps_;  // on the way from its origin there is an op that keeps f32 values for its gradient (no mere sum)
  std::vector<DTypeReport::Leak> leaks_;
};

}  // namespace

std::vector<DTypeReport::Op> count_dtypes(const Graph& graph) {
  std::map<std::tuple<std::string_view, std::vector<DType>, DType, std::string>, DTypeReport::Op> kinds;
  for (const Node& n : graph.nodes()) {
    std::vector<DType> inputs;
    for (Value v : n.inputs) inputs.push_back(graph.type_of(v).dtype);
    const DType result = graph.type_of(n.results[0]).dtype;
    // Products of fp32 tensors in bf16 parts (matmul_precision).
    const AttrValue* parts = n.op->lowering == Lowering::kMatmul ? n.attrs.find("precision") : nullptr;
    const std::string precision = parts == nullptr ? "" : std::get<std::string>(*parts);
    auto [at, fresh] = kinds.try_emplace({n.op->name, inputs, result, precision});
    DTypeReport::Op& kind = at->second;
    ++kind.count;
    if (!fresh) continue;
    const DType given = inputs.empty() ? result : inputs[0] == DType::boolean && inputs.size() > 1 ? inputs[1] : inputs[0];
    kind.name = precision.empty() ? std::string(n.op->name) : fmt::format("{} of precision {}", n.op->name, precision);
    kind.inputs = std::move(inputs);
    kind.result = result;
    kind.moves_data = moves_data(n);
    kind.compute = !precision.empty()                       ? DType::bf16
                   : given == DType::bf16 && !is_product(n) ? DType::f32
                                                            : given;  // elementwise bf16 computes in f32 and rounds
  }
  std::vector<DTypeReport::Op> list;
  for (auto& [key, kind] : kinds) list.push_back(std::move(kind));
  return list;
}

std::vector<DTypeReport::Leak> find_dtype_leaks(const Graph& trace, const TracedDTypes& what) {
  return LeakFinder(trace, what).run();
}

std::string DTypeReport::text() const {
  std::string text;
  for (const Op& op : ops) {
    std::vector<std::string_view> inputs;
    for (DType d : op.inputs) inputs.push_back(name_of(d));
    text += fmt::format("{}({}) -> {}: {}{}\n", op.name, fmt::join(inputs, ", "), name_of(op.result), op.count,
                        op.moves_data ? "" : fmt::format(", computed in {}", name_of(op.compute)));
  }
  for (const Leak& leak : leaks)
    text += fmt::format("fp32 leak: {}{}\n", leak.message, leak.count > 1 ? fmt::format(" ({} times)", leak.count) : "");
  return leaks.empty() ? text + "no fp32 leak\n" : text;
}

std::string DTypeReport::json() const {
  Json list = Json::array(), found = Json::array();
  for (const Op& op : ops) {
    Json inputs = Json::array();
    for (DType d : op.inputs) inputs.push_back(name_of(d));
    list.push_back({{"op", op.name},
                    {"inputs", inputs},
                    {"result", name_of(op.result)},
                    {"compute", op.moves_data ? Json(nullptr) : Json(name_of(op.compute))},
                    {"count", op.count}});
  }
  for (const Leak& leak : leaks)
    found.push_back({{"op", leak.op},
                     {"path", leak.path},
                     {"cause", leak.cause},
                     {"cause_path", leak.cause_path},
                     {"message", leak.message},
                     {"count", leak.count}});
  return Json{{"ops", list}, {"leaks", found}}.dump();
}

}  // namespace ws
