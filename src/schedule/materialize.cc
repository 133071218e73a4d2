#include "schedule/materialize.h"

#include <algorithm>
#include <set>

#include "support/error.h"

namespace ws {
namespace {

constexpr size_t kMaxRepeated = 10;       // nodes repeated in one group for one value
constexpr size_t kMaxRepeatedInAll = 60;  // and for all of them
constexpr int kMaxExpensive = 2;

class Materializer {
 public:
  Materializer(const Graph& graph, const ViewMap& views, const Groups& groups) : graph_(graph), views_(views), groups_(groups) {
    result_.stored.assign(static_cast<size_t>(graph.num_values()), false);
    readers_.resize(static_cast<size_t>(graph.num_values()));
    is_output_.assign(static_cast<size_t>(graph.num_values()), false);
    repeated_.resize(groups.list.size());
    cuts_.reserve(groups.list.size());
    for (const Group& g : groups.list) cuts_.push_back(g.cuts);
  }

  Materialized run(bool repeat_cheap) {
    find_stored();
    if (repeat_cheap) {
      // In order, since what a kernel keeps depends on what others keep already.
      for (int g = 0; g < static_cast<int>(groups_.list.size()); ++g) {
        while (choose_base(g)) {
        }
        for (int n : groups_.list[static_cast<size_t>(g)].nodes)
          if (groups_.of_node[static_cast<size_t>(n)] == g) try_repeat(n);
      }
    }
    collect_bodies();
    return std::move(result_);
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[static_cast<size_t>(n)]; }
  Value base(Value v) const { return views_.of(v).base; }
  int home(Value v) const { return groups_.available_in(graph_, views_, v); }
  std::vector<bool>::reference stored(Value v) { return result_.stored[static_cast<size_t>(v.id)]; }
  int first_node(int g) const { return groups_.list[static_cast<size_t>(g)].opener; }
  bool is_fold_in(int n, int g) const { return groups_.is_fold_in(n, g); }

  void find_stored() {
    for (int g = 0; g < static_cast<int>(groups_.list.size()); ++g) {
      const Group& group = groups_.list[static_cast<size_t>(g)];
      for (int n : group.nodes) {
        if (is_fold_in(n, g)) continue;
        for (Value v : node(n).inputs) {
          if (takes_scalars(node(n)) && is_scalar_constant(graph_, views_, v)) continue;
          readers_[static_cast<size_t>(base(v).id)].insert(g);
          if (home(v) != g || group.kind == Group::Kind::kLibrary) stored(base(v)) = true;
        }
      }
      if (group.kind == Group::Kind::kLibrary)
        for (Value r : node(group.nodes[0]).results) stored(r) = true;
    }
    for (const GraphOutput& o : graph_.outputs()) {
      stored(base(o.value)) = true;
      is_output_[static_cast<size_t>(base(o.value).id)] = true;
    }
  }

  static bool takes_scalars(const Node& n) {
    return n.op->lowering == Lowering::kElementwise || n.op->lowering == Lowering::kReduce;
  }

  bool repeatable(const Node& n) const {
    return n.op->lowering == Lowering::kElementwise && !n.op->has(kRandom) && !n.op->has(kEffect) && !n.op->has(kSwapsPairs) &&
           !n.op->has(kIndexed);
  }

  /// Adds to `chain` what group g must compute to have v itself; false where that is too much or a leaf is not in memory.
  bool expand(Value v, int g, std::set<int>& chain, size_t limit, int& expensive, std::set<int>& longer_lives) {
    const int p = graph_.producer_of(v);
    const Node& n = node(p);
    if (chain.count(p) != 0) return true;
    if (!repeatable(n) || chain.size() >= limit) return false;
    const Group& group = groups_.list[static_cast<size_t>(g)];
    if (graph_.type_of(v).shape.num_elements() != group.elements) return false;
    if (n.op->has(kExpensive) && ++expensive > kMaxExpensive) return false;
    chain.insert(p);
    for (Value o : n.inputs) {
      const Value b = base(o);
      if (is_scalar_constant(graph_, views_, o)) continue;
      if (graph_.producer_of(b) < 0) continue;
      if (home(b) == g) {
        const bool late = node(graph_.producer_of(b)).op->lowering == Lowering::kReduce;
        if (late || !views_.is_whole(o) || graph_.type_of(b).shape.num_elements() != group.elements) return false;
        continue;
      }
      if (stored(b)) {
        if (graph_.type_of(b).shape.num_elements() == group.elements && last_reader(b) < first_node(g)) longer_lives.insert(b.id);
        continue;
      }
      if (!views_.is_whole(o) || !expand(b, g, chain, limit, expensive, longer_lives)) return false;
    }
    return true;
  }
  int last_reader(Value b) const {
    int last = -1;
    for (int g : readers_[static_cast<size_t>(b.id)]) last = std::max(last, first_node(g));
    return last;
  }

  /// What each reader would have to compute for the value of node n not to be stored; nothing where it has to be.
  struct Plan {
    int group;
    std::set<int> nodes;
    std::vector<int64_t> cuts;
    std::set<int> longer_lives;  // values that would have to stay in memory for it: one for one is fair
  };
  std::vector<Plan> plan_repeat(int n) {
    if (groups_.of_node[static_cast<size_t>(n)] < 0 || !repeatable(node(n))) return {};
    const Value v = node(n).results[0];
    const int own = home(v);
    if (!stored(v) || is_output_[static_cast<size_t>(v.id)]) return {};
    std::vector<Plan> plans;
    for (int g : readers_[static_cast<size_t>(v.id)]) {
      if (g == own) continue;
      const Group& group = groups_.list[static_cast<size_t>(g)];
      if (group.kind == Group::Kind::kLibrary || !read_whole_by(v, g)) return {};
      Plan plan{g, repeated_[static_cast<size_t>(g)], cuts_[static_cast<size_t>(g)], {}};
      int expensive = 0;
      if (plan.nodes.size() > kMaxRepeatedInAll) return {};
      if (!expand(v, g, plan.nodes, plan.nodes.size() + kMaxRepeated, expensive, plan.longer_lives) ||
          plan.longer_lives.size() > 1)
        return {};
      for (int c : plan.nodes)
        if (!merge_cuts(plan.cuts, graph_.type_of(node(c).results[0]).shape, 1)) return {};
      const bool splits_columns =
          std::any_of(plan.cuts.begin(), plan.cuts.end(), [&](int64_t c) { return c > 1 && c < group.inner; });
      if (group.kind == Group::Kind::kGemm && splits_columns) return {};
      plans.push_back(std::move(plan));
    }
    return plans;
  }
  void try_repeat(int n) {
    std::vector<Plan> plans = plan_repeat(n);
    if (plans.empty()) return;
    for (Plan& plan : plans) {
      for (int c : plan.nodes)
        for (Value o : node(c).inputs) readers_[static_cast<size_t>(base(o).id)].insert(plan.group);
      repeated_[static_cast<size_t>(plan.group)] = std::move(plan.nodes);
      cuts_[static_cast<size_t>(plan.group)] = std::move(plan.cuts);
    }
    stored(node(n).results[0]) = false;
  }

  int64_t bytes_of(Value v) const { return graph_.type_of(v).num_bytes(); }
  int64_t bytes_of(const std::set<int>& values) const {
    int64_t bytes = 0;
    for (int id : values) bytes += bytes_of(Value{id});
    return bytes;
  }
  /// An elementwise value, of an element or (in a loop over rows) of a row.
  bool may_be_base(int n, int g) const {
    const Group& group = groups_.list[static_cast<size_t>(g)];
    const int64_t elements = graph_.type_of(node(n).results[0]).shape.num_elements();
    if (node(n).op->lowering == Lowering::kReduce) return false;
    return elements == group.elements || (group.has_row_reduce && group.inner > 1 && elements * group.inner == group.elements);
  }
  /// Where a kernel would store values that its readers can make from one of its inner values, that one is stored instead if it is less
  /// to keep: one for several, a rounded value for the same one widened again, the mean of a row for its differences from it.
  bool choose_base(int g) {
    const Group& group = groups_.list[static_cast<size_t>(g)];
    std::vector<int> needed;  // nodes whose values have to be stored as things are
    for (int n : group.nodes)
      if (stored(node(n).results[0]) && repeatable(node(n)) && plan_repeat(n).empty()) needed.push_back(n);
    int best = -1;
    int64_t best_gain = 1;
    for (int candidate : group.nodes) {
      if (needed.empty() || candidate > needed.back()) break;
      const Value b = node(candidate).results[0];
      if (stored(b) || !may_be_base(candidate, g)) continue;
      stored(b) = true;
      int64_t gain = -bytes_of(b);
      std::set<int> longer_lives;
      for (int n : needed) {
        if (n <= candidate) continue;
        const std::vector<Plan> plans = plan_repeat(n);
        if (plans.empty()) continue;
        gain += bytes_of(node(n).results[0]);
        for (const Plan& plan : plans) longer_lives.insert(plan.longer_lives.begin(), plan.longer_lives.end());
      }
      longer_lives.erase(b.id);
      gain -= bytes_of(longer_lives);
      stored(b) = false;
      if (gain >= best_gain) best = candidate, best_gain = gain;
    }
    if (best >= 0) stored(node(best).results[0]) = true;
    return best >= 0;
  }

  /// Every node of g, own or repeated, that reads v reads it element for element, and none is a matrix product.
  bool read_whole_by(Value v, int g) const {
    auto fine = [&](int n) {
      for (Value o : node(n).inputs)
        if (base(o) == v && (!views_.is_whole(o) || node(n).op->lowering == Lowering::kMatmul || node(n).op->has(kSwapsPairs)))
          return false;
      return true;
    };
    const auto& own = groups_.list[static_cast<size_t>(g)].nodes;
    const auto& extra = repeated_[static_cast<size_t>(g)];
    return std::all_of(own.begin(), own.end(), fine) && std::all_of(extra.begin(), extra.end(), fine);
  }

  void collect_bodies() {
    result_.bodies.resize(groups_.list.size());
    for (int g = 0; g < static_cast<int>(groups_.list.size()); ++g) {
      std::set<int> all(groups_.list[static_cast<size_t>(g)].nodes.begin(), groups_.list[static_cast<size_t>(g)].nodes.end());
      all.insert(repeated_[static_cast<size_t>(g)].begin(), repeated_[static_cast<size_t>(g)].end());
      result_.bodies[static_cast<size_t>(g)].assign(all.begin(), all.end());
      if (groups_.list[static_cast<size_t>(g)].kind != Group::Kind::kLibrary) drop_dead(graph_, views_, groups_, result_, g);
    }
  }

  const Graph& graph_;
  const ViewMap& views_;
  const Groups& groups_;
  Materialized result_;
  std::vector<std::set<int>> readers_;  // by value: groups that read it
  std::vector<bool> is_output_;
  std::vector<std::set<int>> repeated_;     // by group
  std::vector<std::vector<int64_t>> cuts_;  // by group, with those of repeated nodes
};

}  // namespace

void drop_dead(const Graph& graph, const ViewMap& views, const Groups& groups, Materialized& materialized, int g) {
  const auto copies = materialized.copies.find(g);
  std::vector<int>& body = materialized.bodies[static_cast<size_t>(g)];
  std::set<int> needed;  // value ids
  std::vector<int> live;
  for (size_t i = body.size(); i-- > 0;) {
    const int n = body[i];
    const Node& node = graph.nodes()[static_cast<size_t>(n)];
    const int id = node.results[0].id;
    const bool first_phase = groups.fold_of_node[static_cast<size_t>(n)] >= 0 && !groups.is_fold_in(n, g);
    const bool own = groups.of_node[static_cast<size_t>(n)] == g || groups.is_fold_in(n, g);
    const bool copied = copies != materialized.copies.end() && copies->second.count(id) != 0;
    const bool writes = (own && materialized.stored[static_cast<size_t>(id)]) || first_phase || copied;
    if (!writes && needed.count(id) == 0) continue;
    live.push_back(n);
    if (!groups.is_fold_in(n, g))
      for (Value o : node.inputs) needed.insert(views.of(o).base.id);
  }
  body.assign(live.rbegin(), live.rend());
}

Materialized materialize(const Graph& graph, const ViewMap& views, const Groups& groups, bool repeat_cheap) {
  return Materializer(graph, views, groups).run(repeat_cheap);
}

}  // namespace ws
