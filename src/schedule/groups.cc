#include "schedule/groups.h"

#include <algorithm>
#include <functional>
#include <map>

#include "support/error.h"

namespace ws {

ReduceShape reduce_shape(const Graph& graph, const Node& node) {
  const Shape& shape = graph.type_of(node.inputs[0]).shape;
  const auto first = static_cast<int>(node.attrs.integer("first_axis"));
  const auto last = first + static_cast<int>(node.attrs.integer("num_axes"));
  ReduceShape r;
  for (int i = 0; i < shape.rank(); ++i) (i < first ? r.outer : i < last ? r.reduced : r.inner) *= shape[i];
  r.is_max = node.op->name == "reduce_max";
  return r;
}

bool is_scalar_constant(const Graph& graph, const ViewMap& views, Value v) {
  const int p = graph.producer_of(views.of(v).base);
  return p >= 0 && graph.nodes()[static_cast<size_t>(p)].op->name == "constant";
}

bool merge_cuts(std::vector<int64_t>& cuts, const Shape& shape, int64_t scale) {
  std::vector<int64_t> merged = cuts;
  int64_t below = scale;
  merged.push_back(below);
  for (int i = shape.rank() - 1; i >= 0; --i) merged.push_back(below *= shape[i]);
  std::sort(merged.begin(), merged.end());
  merged.erase(std::unique(merged.begin(), merged.end()), merged.end());
  for (size_t i = 1; i < merged.size(); ++i)
    if (merged[i - 1] == 0 || merged[i] % merged[i - 1] != 0) return false;
  if (merged.size() > kMaxRank) return false;
  cuts = std::move(merged);
  return true;
}

int Groups::available_in(const Graph& graph, const ViewMap& views, Value v) const {
  const int p = graph.producer_of(views.of(v).base);
  if (p < 0) return -1;
  const int fold = fold_of_node[static_cast<size_t>(p)];
  return fold >= 0 ? fold : of_node[static_cast<size_t>(p)];
}

namespace {

constexpr size_t kMaxNodes = 160;     // of one kernel: compile time grows with it
constexpr size_t kRecentGroups = 24;  // siblings looked at

class Grouper {
 public:
  Grouper(const Graph& graph, const ViewMap& views, bool fuse) : graph_(graph), views_(views), fuse_(fuse) {
    groups_.of_node.assign(graph.nodes().size(), -1);
    groups_.fold_of_node.assign(graph.nodes().size(), -1);
    count_uses();
  }

  Groups run() {
    floating_.assign(graph_.nodes().size(), false);
    for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n) place(n);
    for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n) settle_alone(n);
    return std::move(groups_);
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[static_cast<size_t>(n)]; }
  Group& group(int g) { return groups_.list[static_cast<size_t>(g)]; }
  int64_t count(Value v) const { return graph_.type_of(v).shape.num_elements(); }
  int home(Value v) const { return groups_.available_in(graph_, views_, v); }

  void count_uses() {
    uses_.resize(static_cast<size_t>(graph_.num_values()));
    for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n)
      for (Value v : node(n).inputs) {
        if (node(n).op->lowering != Lowering::kView) uses_[static_cast<size_t>(views_.of(v).base.id)].push_back(n);
      }
    for (const GraphOutput& o : graph_.outputs()) uses_[static_cast<size_t>(views_.of(o.value).base.id)].push_back(-1);
  }

  // --- dependencies between groups -----------------------------------------------------------------------------------------
  using Bits = std::vector<uint64_t>;
  static bool test(const Bits& b, int g) {
    return static_cast<size_t>(g / 64) < b.size() && (b[static_cast<size_t>(g / 64)] >> (g % 64) & 1);
  }
  static void set(Bits& b, int g) {
    if (b.size() <= static_cast<size_t>(g / 64)) b.resize(static_cast<size_t>(g / 64) + 1);
    b[static_cast<size_t>(g / 64)] |= uint64_t{1} << (g % 64);
  }
  static void merge(Bits& into, const Bits& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) into[i] |= from[i];
  }
  void depend(int g, int on) {
    if (on < 0 || on == g) return;
    Bits add = ancestors_[static_cast<size_t>(on)];
    set(add, on);
    merge(ancestors_[static_cast<size_t>(g)], add);
    for (size_t d = 0; d < ancestors_.size(); ++d)
      if (test(ancestors_[d], g)) merge(ancestors_[d], add);
  }
  /// Node n may enter g: none of its inputs comes from g by way of another group.
  bool keeps_order(int n, int g) const {
    for (Value v : node(n).inputs) {
      const int h = home(v);
      if (h >= 0 && h != g && test(ancestors_[static_cast<size_t>(h)], g)) return false;
    }
    return true;
  }

  // --- opening and joining ------------------------------------------------------------------------------------------------
  int open(int n, Group::Kind kind, int64_t elements, std::string reason) {
    Group g;
    g.opener = n;
    g.kind = kind;
    g.elements = elements;
    g.reason = std::move(reason);
    groups_.list.push_back(std::move(g));
    ancestors_.emplace_back();
    sources_.emplace_back();
    return static_cast<int>(groups_.list.size()) - 1;
  }
  void add(int n, int g) {
    settle_inputs(n, g);
    enter(n, g);
  }
  void enter(int n, int g) {
    auto& nodes = group(g).nodes;
    nodes.insert(std::upper_bound(nodes.begin(), nodes.end(), n), n);
    groups_.of_node[static_cast<size_t>(n)] = g;
    for (Value v : node(n).inputs) {
      depend(g, home(v));
      if (home(v) >= 0 && home(v) != g) sources_[static_cast<size_t>(g)].push_back(home(v));
    }
  }

  // --- floating nodes: made from graph inputs (or checks and counts of them) alone, they wait and go where they are first read ---
  bool is_floating(Value v) const {
    const int p = graph_.producer_of(views_.of(v).base);
    return p >= 0 && floating_[static_cast<size_t>(p)];
  }
  /// A kernel that no other joins and that waits for nothing: labels after their check, an iota.
  bool is_ready_early(int g) const {
    const Group& made = groups_.list[static_cast<size_t>(g)];
    const Bits& waits_for = ancestors_[static_cast<size_t>(g)];
    return (made.closed || made.kind == Group::Kind::kLibrary) &&
           std::all_of(waits_for.begin(), waits_for.end(), [](uint64_t bits) { return bits == 0; });
  }
  bool may_float(const Node& e) const {
    return std::all_of(e.inputs.begin(), e.inputs.end(), [&](Value v) { return home(v) < 0 || is_ready_early(home(v)); });
  }
  /// What floats and node n waits for, readers before what they read: whether it goes into the group that n enters.
  using Company = std::map<int, bool, std::greater<>>;
  /// `target`: group g, whose loop nest becomes one for those that go there, too.
  Company company_of(int n, int g, Group& target) const {
    Company company;
    const auto reads = [&](int reader, bool inside) {
      for (Value v : node(reader).inputs) {
        if (!is_floating(v)) continue;
        // Only element for element, and by none that has to run before g.
        bool& fits = company.try_emplace(graph_.producer_of(views_.of(v).base), true).first->second;
        fits = fits && inside && views_.is_whole(v) && !node(reader).op->has(kSwapsPairs);
      }
    };
    reads(n, true);
    size_t num_inside = 0;
    for (auto& [maker, fits] : company) {
      fits = fits && widen_for(maker, g, target, num_inside);
      num_inside += fits;
      reads(maker, fits);
    }
    return company;
  }
  /// Whether a floating node may enter g, beside `num_more` others.
  bool widen_for(int n, int g, Group& target, size_t num_more) const {
    const Node& e = node(n);
    const Value result = e.results[0];
    std::vector<int64_t> cuts = target.cuts;
    const bool fits = target.kind != Group::Kind::kLibrary && !target.closed && !target.has_flat_reduce &&
                      count(result) == target.elements && !e.op->has(kIndexed) && !e.op->has(kSwapsPairs) &&
                      target.nodes.size() + num_more < kMaxNodes &&
                      std::all_of(e.inputs.begin(), e.inputs.end(), [&](Value v) { return reads_in_place(v, target, g, 1); }) &&
                      merge_cuts(cuts, graph_.type_of(result).shape, 1) &&
                      (target.kind != Group::Kind::kGemm || columns_stay_whole(cuts, target)) &&
                      !(target.kind == Group::Kind::kGemm && target.nodes.empty());
    if (fits) target.cuts = std::move(cuts);
    return fits;
  }
  /// What floated when n's inputs were made may read what has entered g since: then it cannot run before g.
  bool company_keeps_order(int n, int g, Group& target) const {
    for (const auto& [maker, inside] : company_of(n, g, target))
      for (Value v : node(maker).inputs) {
        const int h = home(v);
        if (h >= 0 && (h == g ? !inside : test(ancestors_[static_cast<size_t>(h)], g))) return false;
      }
    return true;
  }
  /// n is about to enter group g: what it reads that still floats goes there too where it fits, else into groups of its own.
  void settle_inputs(int n, int g) {
    const Company company = company_of(n, g, group(g));
    waiting_.push_back(g);
    for (const auto& [maker, inside] : company)
      if (!inside) settle_alone(maker);
    waiting_.pop_back();
    for (auto at = company.rbegin(); at != company.rend(); ++at)
      if (at->second) floating_[static_cast<size_t>(at->first)] = false, enter(at->first, g);
  }
  void settle_alone(int n) {
    if (!floating_[static_cast<size_t>(n)]) return;
    floating_[static_cast<size_t>(n)] = false;
    join_or_open(n);
  }
  /// A group that waits for what is being placed, or for one that does.
  bool waits(int g) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [&](int w) { return w == g || test(ancestors_[static_cast<size_t>(g)], w); });
  }

  /// Elements of the loop nest that one result element of n stands for: 1 at element level, `inner` at row level; 0: does not fit.
  static int64_t level_scale(const Group& g, int64_t elements) {
    if (elements == g.elements) return 1;
    if (g.inner > 1 && elements * g.inner == g.elements && g.kind == Group::Kind::kLoop) return g.inner;
    return 0;
  }

  /// An input made inside g must be read element for element (or row value over its row).
  bool reads_in_place(Value v, const Group& g, int index, int64_t scale) const {
    if (home(v) != index) return true;
    const Value base = views_.of(v).base;
    const Node& maker = node(graph_.producer_of(base));
    if (maker.op->lowering == Lowering::kReduce && !reduce_shape(graph_, maker).along_row())
      return false;  // known only after all rows
    const int64_t base_scale = level_scale(g, count(base));
    if (base_scale == 0) return false;
    if (base_scale == scale) return views_.is_whole(v);
    if (base_scale < scale) return false;
    return is_row_broadcast(v, g.inner);
  }
  bool is_row_broadcast(Value v, int64_t inner) const {
    const Strided& s = views_.of(v);
    const Shape& dims = graph_.type_of(v).shape;
    int64_t below = 1, expected = 1;
    if (s.offset != 0) return false;
    for (int i = dims.rank() - 1; i >= 0; --i) {
      const int64_t stride = s.strides[static_cast<size_t>(i)];
      if (below < inner) {
        if (dims[i] != 1 && stride != 0) return false;
        below *= dims[i];
        if (below > inner) return false;
      } else if (dims[i] != 1) {
        if (stride != expected) return false;
        expected *= dims[i];
      }
    }
    return below == inner && expected == count(s.base);
  }

  bool can_join_elementwise(int n, int g) {
    Group target = group(g);
    const Node& e = node(n);
    const int64_t elements = count(e.results[0]);
    const int64_t scale = level_scale(target, elements);
    if (scale == 0 || target.nodes.size() >= kMaxNodes || !keeps_order(n, g)) return false;
    if (target.has_flat_reduce && scale != 1) return false;
    for (Value v : e.inputs)
      if (!reads_in_place(v, target, g, scale)) return false;
    if (e.op->has(kSwapsPairs) && home(e.inputs[0]) == g) return false;
    if (e.op->has(kIndexed) && (target.kind == Group::Kind::kGemm || scale != 1)) return false;
    if (target.kind == Group::Kind::kGemm && !worth_storing_from_gemm(n, g)) return false;
    std::vector<int64_t> cuts = target.cuts;
    if (!merge_cuts(cuts, graph_.type_of(e.results[0]).shape, scale)) return false;
    if (target.kind == Group::Kind::kGemm && !columns_stay_whole(cuts, target)) return false;
    target.cuts = std::move(cuts);
    return widen(n, g, std::move(target));
  }
  /// Makes group g what n needs it to be.
  bool widen(int n, int g, Group target) {
    if (!company_keeps_order(n, g, target)) return false;
    group(g) = std::move(target);
    return true;
  }
  /// A hole walks [rows, columns]: no cut strictly inside the columns.
  static bool columns_stay_whole(const std::vector<int64_t>& cuts, const Group& g) {
    return std::none_of(cuts.begin(), cuts.end(), [&](int64_t c) { return c > 1 && c < g.inner; });
  }
  /// Entering a hole pays where it reads what the hole holds (else it would only widen the tile's traffic).
  bool worth_storing_from_gemm(int n, int g) const {
    return std::any_of(node(n).inputs.begin(), node(n).inputs.end(), [&](Value v) { return home(v) == g; });
  }

  bool can_join_reduce(int n, int g) {
    Group target = group(g);
    const Node& r = node(n);
    const ReduceShape shape = reduce_shape(graph_, r);
    const Value x = r.inputs[0];
    if (target.kind != Group::Kind::kLoop || target.elements != count(x) || target.nodes.size() >= kMaxNodes ||
        !keeps_order(n, g))
      return false;
    if (!reads_in_place(x, target, g, 1)) return false;
    std::vector<int64_t> cuts = target.cuts;
    if (!merge_cuts(cuts, graph_.type_of(x).shape, 1)) return false;
    if (shape.whole()) {
      if (target.inner != 0 || target.column_rows != 0) return false;
      target.has_flat_reduce = true;
    } else {
      if (target.has_flat_reduce) return false;
      const int64_t inner = shape.along_row() ? shape.reduced : shape.inner;
      if (inner <= 1 || (target.inner != 0 && target.inner != inner)) return false;
      if (!merge_cuts(cuts, Shape{inner}, 1)) return false;
      if (!shape.along_row()) {
        if (target.column_rows != 0 && target.column_rows != shape.reduced) return false;
        if (!merge_cuts(cuts, Shape{shape.reduced, inner}, 1)) return false;
        target.column_rows = shape.reduced;
      } else {
        target.has_row_reduce = true;
      }
      target.inner = inner;
    }
    target.cuts = std::move(cuts);
    return widen(n, g, std::move(target));
  }

  /// Groups to try, best first: those that make an input, then recent ones that read the same values.
  std::vector<int> candidates(int n) const {
    std::vector<int> list;
    auto push = [&](int g) {
      if (g >= 0 && groups_.list[static_cast<size_t>(g)].kind != Group::Kind::kLibrary &&
          !groups_.list[static_cast<size_t>(g)].closed && std::find(list.begin(), list.end(), g) == list.end())
        list.push_back(g);
    };
    for (Value v : node(n).inputs) push(home(v));
    std::sort(list.begin(), list.end(), std::greater<>());
    const size_t total = groups_.list.size();
    for (size_t i = 0; i < std::min(total, kRecentGroups); ++i) {
      const int g = static_cast<int>(total - 1 - i);
      if (groups_.list[static_cast<size_t>(g)].kind == Group::Kind::kLoop && shares_input(n, g)) push(g);
    }
    return list;
  }
  bool shares_input(int n, int g) const {
    const auto& sources = sources_[static_cast<size_t>(g)];
    for (Value v : node(n).inputs) {
      const Value base = views_.of(v).base;
      if (home(v) >= 0 && std::find(sources.begin(), sources.end(), home(v)) != sources.end()) return true;
      if (is_scalar_constant(graph_, views_, v)) continue;
      for (int user : uses_[static_cast<size_t>(base.id)])
        if (user >= 0 && user < n && groups_.of_node[static_cast<size_t>(user)] == g) return true;
    }
    return false;
  }

  void place(int n) {
    const Node& x = node(n);
    switch (x.op->lowering) {
      case Lowering::kView:
        if (views_.is_base(x.results[0]))
          add(n, open(n, Group::Kind::kLibrary, count(x.results[0]), "no strides can express this reshape"));
        return;
      case Lowering::kElementwise:
        if (x.op->arity == 0 && x.op->name == "constant") return;
        place_elementwise(n);
        return;
      case Lowering::kReduce: place_reduce(n); return;
      case Lowering::kMatmul: place_matmul(n); return;
      default: add(n, open(n, Group::Kind::kLibrary, count(x.results[0]), "a library kernel")); return;
    }
  }

  void place_elementwise(int n) {
    if (fuse_ && node(n).op->arity != 0 && may_float(node(n)))
      floating_[static_cast<size_t>(n)] = true;
    else
      join_or_open(n);
  }
  void join_or_open(int n) {
    const bool counts = node(n).op->arity == 0;  // iota keeps its dims apart: made once, read by others
    if (fuse_ && !counts)
      for (int g : candidates(n))
        if (!waits(g) && can_join_elementwise(n, g)) return add(n, g);
    const Type& type = graph_.type_of(node(n).results[0]);
    const int g = open(n, Group::Kind::kLoop, type.shape.num_elements(), fuse_ ? "no producer's loop fits" : "fusion is off");
    merge_cuts(group(g).cuts, type.shape, 1);
    group(g).closed = counts;
    add(n, g);
  }

  void place_reduce(int n) {
    const Node& r = node(n);
    const ReduceShape shape = reduce_shape(graph_, r);
    int g = -1;
    if (fuse_ && shape.reduced > 0)
      for (int c : candidates(n))
        if (can_join_reduce(n, c)) {
          g = c;
          break;
        }
    if (g < 0) {
      g = open(n, Group::Kind::kLoop, count(r.inputs[0]), fuse_ ? "no loop with these rows makes its input" : "fusion is off");
      merge_cuts(group(g).cuts, graph_.type_of(r.inputs[0]).shape, 1);
      group(g).inner = shape.along_row() ? shape.reduced : shape.inner;
      group(g).has_flat_reduce = shape.whole();
      if (shape.whole()) group(g).inner = 0;
      group(g).has_row_reduce = shape.along_row() && !shape.whole();
      if (!shape.along_row()) group(g).column_rows = shape.reduced;
      merge_cuts(group(g).cuts, shape.along_row() ? Shape{shape.reduced} : Shape{shape.reduced, shape.inner}, 1);
    }
    add(n, g);
    if (shape.two_phase()) {
      const int64_t elements = count(r.results[0]);
      const int fold = open(n, Group::Kind::kLoop, elements, "second phase of a sum over blocks");
      merge_cuts(group(fold).cuts, graph_.type_of(r.results[0]).shape, 1);
      group(fold).nodes.push_back(n);
      groups_.fold_of_node[static_cast<size_t>(n)] = fold;
      depend(fold, g);
    }
  }

  void place_matmul(int n) {
    const Type& out = graph_.type_of(node(n).results[0]);
    const int g = open(n, Group::Kind::kGemm, out.shape.num_elements(), "a matrix product");
    group(g).inner = out.shape.back();
    merge_cuts(group(g).cuts, out.shape, 1);
    add(n, g);
  }

  const Graph& graph_;
  const ViewMap& views_;
  bool fuse_;
  Groups groups_;
  std::vector<Bits> ancestors_;
  std::vector<std::vector<int>> sources_;  // by group: groups it reads from
  std::vector<bool> floating_;             // by node
  std::vector<int> waiting_;               // groups that nodes enter as soon as what they read is placed
  std::vector<std::vector<int>> uses_;     // by base value: nodes that read it (-1: a graph output)
};

}  // namespace

Groups make_groups(const Graph& graph, const ViewMap& views, bool fuse) { return Grouper(graph, views, fuse).run(); }

}  // namespace ws
