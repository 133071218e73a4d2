// Greedy steps towards ever lower peaks, each followed by repairs: what a later step made needless is taken back, and single exchanges
// that save time are made. The number of timelines tried is bounded, so that a large program compiles in about a second.
#include "memory/recompute_search.h"

#include <algorithm>
#include <cmath>

namespace ws {
namespace {

constexpr double kStep = 0.97;           // one target is so much of the peak before it
constexpr int64_t kSmall = 2000;         // a buffer below the peak over this is not worth the search
constexpr double kWorkPerProgram = 3e6;  // calls walked through in all

size_t at(int i) { return static_cast<size_t>(i); }

class Search {
 public:
  Search(Timeline& timeline, const Drops& base, size_t num_calls) : timeline_(timeline), base_(base) {
    evaluations_left_ = static_cast<int64_t>(kWorkPerProgram / static_cast<double>(num_calls + 10));
    const int64_t worth = timeline.run(base).peak_bytes / kSmall;
    for (size_t g = 0; g < timeline.gaps().size(); ++g) {
      const Timeline::Gap& gap = timeline.gaps()[g];
      if (timeline.bytes(gap.buffer) < worth) continue;
      if (!gap.last && gap.to - gap.from > 1 && base[g] == 0 && timeline.can_drop(static_cast<int>(g)))
        candidates_.push_back(static_cast<int>(g));
    }
  }

  std::vector<RecomputePlan> run() {
    RecomputePlan plan = evaluate(base_);
    keep(plan);
    const int64_t first_peak = plan.peak_bytes;
    bool stuck = false;
    while (!stuck && evaluations_left_ > 0 && plan.peak_bytes > 0) {
      const auto target = static_cast<int64_t>(static_cast<double>(plan.peak_bytes) * kStep);
      stuck = !descend(plan, target);
      improve(plan, stuck ? plan.peak_bytes : target);
      keep(plan);
      if (stuck) break;
      // The same target from the start: what was right for a larger budget need not be for this one.
      if (evaluations_left_ > static_cast<int64_t>(candidates_.size() * candidates_.size())) {
        RecomputePlan fresh = evaluate(base_);
        if (fresh.peak_bytes <= first_peak && descend(fresh, target)) {
          improve(fresh, target);
          keep(fresh);
          if (fresh.extra_seconds < plan.extra_seconds) plan = fresh;
        }
      }
    }
    return frontier();
  }

 private:
  RecomputePlan evaluate(const Drops& drops) {
    --evaluations_left_;
    const Timeline::Outcome outcome = timeline_.run(drops);
    if (!outcome.possible) return {{}, INT64_MAX, HUGE_VAL, 0};
    return {drops, outcome.peak_bytes, outcome.extra_seconds, outcome.num_repeated};
  }
  /// What of the last timeline lies above the target, summed over its places.
  double excess(int64_t target) const {
    double sum = 0;
    for (int64_t live : timeline_.live_bytes()) sum += static_cast<double>(std::max<int64_t>(live - target, 0));
    return sum;
  }

  /// Drops one gap after the other, each time that which lowers the excess most for its time, until the peak is at most `target`.
  bool descend(RecomputePlan& plan, int64_t target) {
    while (plan.peak_bytes > target) {
      if (evaluations_left_ <= 0) return false;
      Drops drops = plan.drops;
      plan = evaluate(drops);
      const double before = excess(target);
      const std::vector<int> near = spanning(target, drops);
      RecomputePlan best;
      double best_score = 0;
      for (int g : near) {
        drops[at(g)] = 1;
        RecomputePlan next = evaluate(drops);
        drops[at(g)] = 0;
        if (next.drops.empty() || next.peak_bytes > plan.peak_bytes) continue;
        const double gain = before - excess(target);
        if (gain <= 0) continue;
        const double score = gain / (std::max(next.extra_seconds - plan.extra_seconds, 0.0) + 1e-9);
        if (score > best_score) best_score = score, best = std::move(next);
      }
      if (best.drops.empty()) return false;
      plan = std::move(best);
      keep(plan);
    }
    return true;
  }
  /// Candidates not yet dropped during which the last timeline was above the target.
  std::vector<int> spanning(int64_t target, const Drops& drops) const {
    const std::vector<int64_t>& live = timeline_.live_bytes();
    std::vector<int> above(live.size() + 1, 0);  // places above the target before this one
    for (size_t p = 0; p < live.size(); ++p) above[p + 1] = above[p] + (live[p] > target);
    std::vector<int> result;
    for (int g : candidates_) {
      const Timeline::Gap& gap = timeline_.gaps()[at(g)];
      if (drops[at(g)] == 0 && above[at(timeline_.place_of(gap.to))] > above[at(timeline_.place_of(gap.from)) + 1])
        result.push_back(g);
    }
    return result;
  }

  /// Saves time within the target.
  void improve(RecomputePlan& plan, int64_t target) {
    for (bool better = true; better && evaluations_left_ > 0;) {
      better = take_back(plan, target);
      if (!better) better = exchange(plan, target);
    }
  }
  /// Keeps what need not be dropped, dead results that repeated calls read included; the dearest first.
  bool take_back(RecomputePlan& plan, int64_t target) {
    RecomputePlan best = plan;
    evaluate(plan.drops);
    for (int g : droppable(plan)) {
      if (evaluations_left_ <= 0) break;
      RecomputePlan next = without(plan, g);
      if (next.peak_bytes <= target && next.extra_seconds < best.extra_seconds) best = std::move(next);
    }
    if (best.extra_seconds >= plan.extra_seconds) return false;
    plan = std::move(best);
    return true;
  }
  /// Another gap in the place of a dropped one.
  bool exchange(RecomputePlan& plan, int64_t target) {
    if (evaluations_left_ < static_cast<int64_t>(candidates_.size() * candidates_.size() * 4)) return false;
    RecomputePlan best = plan;
    for (int out : droppable(plan)) {
      if (timeline_.gaps()[at(out)].last) continue;
      Drops drops = plan.drops;
      drops[at(out)] = 0;
      for (int in : candidates_) {
        if (drops[at(in)] != 0 || in == out) continue;
        drops[at(in)] = 1;
        RecomputePlan next = evaluate(drops);
        drops[at(in)] = 0;
        if (next.peak_bytes <= target && next.extra_seconds < best.extra_seconds) best = std::move(next);
      }
    }
    if (best.extra_seconds >= plan.extra_seconds) return false;
    plan = std::move(best);
    return true;
  }
  /// Gaps dropped beyond what is asked for; of the last gaps those that the last timeline revived.
  std::vector<int> droppable(const RecomputePlan& plan) const {
    std::vector<int> result;
    for (int g : candidates_)
      if (plan.drops[at(g)] != 0) result.push_back(g);
    for (int g : timeline_.revived())
      if (plan.drops[at(g)] != 0) result.push_back(g);
    return result;
  }
  RecomputePlan without(const RecomputePlan& plan, int gap) {
    Drops drops = plan.drops;
    drops[at(gap)] = 0;
    return evaluate(drops);
  }

  void keep(const RecomputePlan& plan) {
    if (!plan.drops.empty()) pool_.push_back(plan);
  }
  std::vector<RecomputePlan> frontier() {
    std::stable_sort(pool_.begin(), pool_.end(), [](const RecomputePlan& a, const RecomputePlan& b) {
      return a.extra_seconds != b.extra_seconds ? a.extra_seconds < b.extra_seconds : a.peak_bytes < b.peak_bytes;
    });
    std::vector<RecomputePlan> result;
    for (RecomputePlan& plan : pool_)
      if (result.empty() || plan.peak_bytes < result.back().peak_bytes) result.push_back(std::move(plan));
    return result;
  }

  Timeline& timeline_;
  const Drops& base_;
  std::vector<int> candidates_;
  std::vector<RecomputePlan> pool_;
  int64_t evaluations_left_ = 0;
};

}  // namespace

std::vector<RecomputePlan> find_recompute_plans(Timeline& timeline, const Drops& base) {
  return Search(timeline, base, static_cast<size_t>(timeline.num_calls())).run();
}

}  // namespace ws
