#include "schedule/repeat_late.h"

#include <algorithm>
#include <optional>
#include <set>

#include "support/error.h"

namespace ws {
namespace {

constexpr int64_t kMinBytes = 256 << 10;  // smaller values are not worth a second write
constexpr int kMinGap = 16;               // kernels between an early and a late reader
constexpr int kSearched = 8;              // kernels before and after the first late reader that may take up the chain
constexpr size_t kMaxChain = 10;
constexpr size_t kMaxNodes = 160;  // of one kernel
constexpr int kMaxLeaves = 2;      // as large as the value, that a kernel of its own may read

size_t at(int i) { return static_cast<size_t>(i); }

class LateRepeater {
 public:
  LateRepeater(const Graph& graph, const ViewMap& views, Groups& groups, Materialized& materialized)
      : graph_(graph), views_(views), groups_(groups), materialized_(materialized) {}

  void run() {
    rank_groups();
    find_readers();
    for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n) try_node(n);
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[at(n)]; }
  Group& group(int g) { return groups_.list[at(g)]; }
  const Group& group(int g) const { return groups_.list[at(g)]; }
  std::vector<int>& body(int g) { return materialized_.bodies[at(g)]; }
  const std::vector<int>& body(int g) const { return materialized_.bodies[at(g)]; }
  Value base(Value v) const { return views_.of(v).base; }
  int64_t count(Value v) const { return graph_.type_of(v).shape.num_elements(); }
  bool stored(Value v) const { return materialized_.stored[at(v.id)]; }
  bool has_node(int g, int n) const {
    const auto& nodes = materialized_.bodies[at(g)];
    return std::binary_search(nodes.begin(), nodes.end(), n);
  }

  // --- who runs when, and reads what -----------------------------------------------------------------------------------------
  void rank_groups() {
    for (int g = 0; g < static_cast<int>(groups_.list.size()); ++g)
      if (!body(g).empty()) in_order_.push_back(g);
    std::sort(in_order_.begin(), in_order_.end(),
              [&](int a, int b) { return std::pair(group(a).opener, a) < std::pair(group(b).opener, b); });
    rank_.assign(groups_.list.size(), -1);
    for (size_t i = 0; i < in_order_.size(); ++i) rank_[at(in_order_[i])] = static_cast<int>(i);
  }
  void find_readers() {
    readers_.resize(at(graph_.num_values()));
    before_.resize(groups_.list.size());
    for (int g : in_order_)
      for (int n : body(g))
        for (Value v : node(n).inputs) note_reader(base(v), n, g);
    for (const GraphOutput& o : graph_.outputs()) outputs_.insert(base(o.value).id);
  }
  void note_reader(Value b, int n, int g) {
    const int p = graph_.producer_of(b);
    const bool folds = groups_.fold_of_node[at(n)] == g;
    const bool made_here = p >= 0 && has_node(g, p) && !folds;
    if (made_here || is_scalar_constant(graph_, views_, b)) return;
    const int maker = folds ? groups_.of_node[at(n)] : groups_.available_in(graph_, views_, b);
    if (!folds) readers_[at(b.id)].insert(g);
    if (maker >= 0 && maker != g) before_[at(g)].insert(maker);
  }
  /// Whether g runs after `other` because it needs what that makes.
  bool depends(int g, int other) const {
    std::vector<int> stack = {g};
    std::set<int> seen;
    while (!stack.empty()) {
      const int next = stack.back();
      stack.pop_back();
      if (next == other) return true;
      if (!seen.insert(next).second) continue;
      stack.insert(stack.end(), before_[at(next)].begin(), before_[at(next)].end());
    }
    return false;
  }

  // --- one value --------------------------------------------------------------------------------------------------------------
  static bool repeatable(const Node& n) {
    return n.op->lowering == Lowering::kElementwise && n.op->arity != 0 && !n.op->has(kRandom) && !n.op->has(kEffect) &&
           !n.op->has(kIndexed);
  }
  void try_node(int n) {
    if (!repeatable(node(n)) || groups_.of_node[at(n)] < 0) return;
    const Value v = node(n).results[0];
    const Type& type = graph_.type_of(v);
    const int64_t bytes = type.shape.num_elements() * static_cast<int64_t>(size_of(type.dtype));
    if (!stored(v) || outputs_.count(v.id) != 0 || bytes < kMinBytes) return;
    const std::vector<int> late = late_readers(v);
    if (late.empty()) return try_later(v);
    const int first = rank_[at(late[0])], end = std::min(first + kSearched, static_cast<int>(in_order_.size()));
    for (int r = std::max(0, first - kSearched); r < end; ++r)
      if (try_group(v, in_order_[at(r)], late)) return;
    try_own_group(v, late);
  }
  /// Readers after the widest gap, in order; none where that is narrow.
  std::vector<int> late_readers(Value v) const {
    std::vector<int> ranks = {rank_[at(groups_.available_in(graph_, views_, v))]};
    for (int g : readers_[at(v.id)]) ranks.push_back(rank_[at(g)]);
    std::sort(ranks.begin(), ranks.end());
    int widest = kMinGap - 1;
    size_t split = ranks.size();
    for (size_t i = 1; i < ranks.size(); ++i)
      if (ranks[i] - ranks[i - 1] > widest) widest = ranks[i] - ranks[i - 1], split = i;
    std::vector<int> late;
    for (size_t i = split; i < ranks.size(); ++i) late.push_back(in_order_[at(ranks[i])]);
    return late;
  }

  /// A kernel before all readers, or the first of them, that has the chain's inputs at hand stores the value instead of its maker.
  void try_later(Value v) {
    if (is_part(v)) return;
    const std::vector<int> readers(readers_[at(v.id)].begin(), readers_[at(v.id)].end());
    const int maker = groups_.available_in(graph_, views_, v), num_groups = static_cast<int>(in_order_.size());
    int first = num_groups;
    for (int g : readers) first = std::min(first, rank_[at(g)]);
    for (int r = std::min(first, num_groups - 1); r > std::max(rank_[at(maker)], first - kSearched); --r) {
      if (!reads_whole(v, in_order_[at(r)]) || !try_group(v, in_order_[at(r)], readers)) continue;
      materialized_.stored[at(v.id)] = false;
      return drop_dead(graph_, views_, groups_, materialized_, maker);
    }
  }
  /// Its maker may write it right into the concatenation.
  bool is_part(Value v) const {
    const auto& readers = readers_[at(v.id)];
    return std::any_of(readers.begin(), readers.end(), [&](int g) {
      return std::any_of(body(g).begin(), body(g).end(), [&](int n) { return node(n).op->lowering == Lowering::kConcatenate; });
    });
  }
  bool reads_whole(Value v, int g) const {
    return std::all_of(body(g).begin(), body(g).end(), [&](int n) {
      const auto& in = node(n).inputs;
      return std::all_of(in.begin(), in.end(),
                         [&](Value o) { return base(o) != v || (views_.is_whole(o) && !node(n).op->has(kSwapsPairs)); });
    });
  }

  /// A kernel that has the chain's inputs at hand stores the value too.
  bool try_group(Value v, int g, const std::vector<int>& late) {
    const Group& target = group(g);
    if (target.kind == Group::Kind::kLibrary || target.closed || target.has_flat_reduce || target.elements != count(v))
      return false;
    if (g == groups_.available_in(graph_, views_, v)) return false;
    std::set<int> chain;
    if (!at_hand(v, g, chain) || !fits(g, chain)) return false;
    if (std::any_of(late.begin(), late.end(), [&](int reader) { return reader != g && depends(g, reader); })) return false;
    add(v, g, chain, late);
    return true;
  }
  /// Extends `chain` by what g must compute for v from what it reads or computes already.
  bool at_hand(Value v, int g, std::set<int>& chain) const {
    const int p = graph_.producer_of(v);
    if (p < 0 || !repeatable(node(p)) || node(p).op->has(kSwapsPairs) || count(v) != group(g).elements) return false;
    if (has_node(g, p) || chain.count(p) != 0) return true;
    if (chain.size() >= kMaxChain) return false;
    chain.insert(p);
    return std::all_of(node(p).inputs.begin(), node(p).inputs.end(), [&](Value o) {
      const Value b = base(o);
      if (is_scalar_constant(graph_, views_, o)) return true;
      if (readers_[at(b.id)].count(g) != 0 && stored_or_input(b)) return true;
      if (graph_.producer_of(b) < 0) return count(b) < group(g).elements;  // an input is there at any time; a small one is cheap
      return views_.is_whole(o) && at_hand(b, g, chain);
    });
  }
  bool stored_or_input(Value b) const { return graph_.producer_of(b) < 0 || stored(b); }

  bool fits(int g, const std::set<int>& chain) {
    std::vector<int64_t> cuts = group(g).cuts;
    std::set<int> all(body(g).begin(), body(g).end());
    all.insert(chain.begin(), chain.end());
    if (all.size() > kMaxNodes) return false;
    for (int n : all) {
      const Value r = node(n).results[0];
      if (count(r) == group(g).elements && !merge_cuts(cuts, graph_.type_of(r).shape, 1)) return false;
    }
    return group(g).kind != Group::Kind::kGemm ||
           std::none_of(cuts.begin(), cuts.end(), [&](int64_t c) { return c > 1 && c < group(g).inner; });
  }

  /// A kernel of its own just before the first late reader, where it reads only what lives until then anyway.
  void try_own_group(Value v, const std::vector<int>& late) {
    std::set<int> chain, leaves;
    if (!alive(v, rank_[at(late[0])], chain, leaves) || leaves.size() > kMaxLeaves) return;
    std::vector<int64_t> cuts;
    for (int n : chain)
      if (!merge_cuts(cuts, graph_.type_of(node(n).results[0]).shape, 1)) return;
    for (int g : own_groups_)  // one for several values
      if (group(g).opener == group(late[0]).opener && group(g).elements == count(v) && fits(g, chain) &&
          std::none_of(late.begin(), late.end(), [&](int reader) { return depends(g, reader); }))
        return add(v, g, chain, late);
    Group own;
    own.opener = group(late[0]).opener;
    own.elements = count(v);
    own.cuts = std::move(cuts);
    own.reason = "made again for a late reader, so that the first copy need not stay in memory";
    groups_.list.push_back(std::move(own));
    materialized_.bodies.emplace_back();
    before_.emplace_back();
    rank_.push_back(rank_[at(late[0])]);
    own_groups_.push_back(static_cast<int>(groups_.list.size()) - 1);
    add(v, own_groups_.back(), chain, late);
  }
  bool alive(Value v, int rank, std::set<int>& chain, std::set<int>& leaves) const {
    const int p = graph_.producer_of(v);
    if (!repeatable(node(p)) || chain.size() >= kMaxChain) return false;
    chain.insert(p);
    return std::all_of(node(p).inputs.begin(), node(p).inputs.end(), [&](Value o) {
      const Value b = base(o);
      if (is_scalar_constant(graph_, views_, o)) return true;
      if (graph_.producer_of(b) < 0 || (stored(b) && last_rank(b) >= rank)) {
        if (count(b) >= count(v)) leaves.insert(b.id);
        return true;
      }
      return !node(p).op->has(kSwapsPairs) && views_.is_whole(o) && count(b) == count(v) && alive(b, rank, chain, leaves);
    });
  }
  int last_rank(Value b) const {
    int last = -1;
    for (int g : readers_[at(b.id)]) last = std::max(last, rank_[at(g)]);
    return last;
  }

  void add(Value v, int g, const std::set<int>& chain, const std::vector<int>& late) {
    std::vector<int> merged;
    std::set_union(body(g).begin(), body(g).end(), chain.begin(), chain.end(), std::back_inserter(merged));
    body(g) = std::move(merged);
    for (int n : chain)
      for (Value o : node(n).inputs) note_reader(base(o), n, g);
    readers_[at(v.id)].erase(g);
    materialized_.copies[g].insert(v.id);
    for (int reader : late) {
      if (reader == g) continue;
      materialized_.reads_copy.insert({v.id, reader});
      before_[at(reader)].insert(g);
    }
  }

  const Graph& graph_;
  const ViewMap& views_;
  Groups& groups_;
  Materialized& materialized_;
  std::vector<int> in_order_, rank_;    // groups by the place of their openers, and the place of each
  std::vector<std::set<int>> readers_;  // by value: groups that load it
  std::vector<std::set<int>> before_;   // by group: groups whose results it needs
  std::set<int> outputs_;               // value ids
  std::vector<int> own_groups_;
};

}  // namespace

void repeat_late(const Graph& graph, const ViewMap& views, Groups& groups, Materialized& materialized) {
  LateRepeater(graph, views, groups, materialized).run();
}

}  // namespace ws
