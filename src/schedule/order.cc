#include "schedule/order.h"

#include <algorithm>
#include <queue>
#include <set>

#include "support/error.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

class Orderer {
 public:
  Orderer(Program& program, std::vector<int> priority) : program_(program), priority_(std::move(priority)) {
    const size_t n = program.calls.size();
    after_.resize(n);
    writer_.assign(program.buffers.size(), -1);
    readers_.resize(program.buffers.size());
    std::vector<std::vector<int>> writers(program.buffers.size());
    for (int c = 0; c < static_cast<int>(n); ++c) {
      for (int b : program.calls[at(c)].writes) writers[at(b)].push_back(c);
      for (int b : program.calls[at(c)].reads) readers_[at(b)].insert(c);
    }
    for (size_t b = 0; b < program.buffers.size(); ++b) settle_writer(static_cast<int>(b), writers[b]);
    for (size_t b = 0; b < program.buffers.size(); ++b)
      for (int r : readers_[b])
        if (writer_[b] >= 0 && writer_[b] != r) edge(writer_[b], r);
    keep_order_of_collectives();
  }

  void donate(int output, int input) {
    const int w = writer_[at(output)];
    WS_ASSERT(w >= 0, "a donated output that no call writes");
    if (can_write_over(w, output, input)) {
      alias(w, output, input);
      return;
    }
    // The new value waits in a temporary until the old one has been read for the last time.
    ProgramBuffer waiting = program_.buffers[at(output)];
    waiting.role = ProgramBuffer::Role::kTemporary;
    waiting.name += ".new";
    program_.buffers[at(output)].value = {};
    const int temporary = add_buffer(waiting);
    redirect(output, temporary);
    KernelCall copy;
    copy.what = LibraryCall{};
    auto& call = std::get<LibraryCall>(copy.what);
    View from, to;
    from.buffer = temporary;
    to.buffer = output;
    from.dims = to.dims = Shape{program_.buffers[at(output)].num_elements};
    from.strides[0] = to.strides[0] = 1;
    call.views = {from, to};
    copy.name = "copy";
    copy.reason = "the old state is still read while the new one is computed";
    copy.reads = {temporary};
    copy.writes = {output};
    copy.cost.bytes = 2.0 * static_cast<double>(program_.buffers[at(output)].num_bytes());
    program_.calls.push_back(std::move(copy));
    const int c = static_cast<int>(program_.calls.size()) - 1;
    priority_.push_back(1 << 30);
    after_.emplace_back();
    writer_[at(output)] = c;
    readers_[at(temporary)].insert(c);
    edge(writer_[at(temporary)], c);
    alias(c, output, input);
  }

  void finish() {
    for (int c = 0; c < static_cast<int>(program_.calls.size()); ++c) {
      const auto* library = std::get_if<LibraryCall>(&program_.calls[at(c)].what);
      if (library == nullptr || library->op == nullptr || library->op->lowering != Lowering::kCheck) continue;
      for (size_t b = 0; b < program_.buffers.size(); ++b)
        if (program_.buffers[b].alias_of >= 0 && writer_[b] >= 0) edge(c, writer_[b]);  // empty state has no writer
    }
    sort();
  }

 private:
  /// A buffer that several calls write into is ready after the one that reads it too (a concatenation).
  void settle_writer(int buffer, const std::vector<int>& writers) {
    for (int w : writers)
      if (writers.size() == 1 || readers_[at(buffer)].count(w) != 0) writer_[at(buffer)] = w;
    WS_ASSERT(writers.empty() || writer_[at(buffer)] >= 0, "several calls write '{}' and none completes it",
              program_.buffers[at(buffer)].name);
    for (int w : writers) edge(w, writer_[at(buffer)]);
  }
  /// All ranks must meet in one order, whatever the sizes of their parts make of the rest; and where a check stops the step, all of them
  /// must have begun the same. Finishing a bucket concerns this rank alone.
  void keep_order_of_collectives() {
    std::vector<std::pair<int, int>> found;  // node, call
    bool any_collective = false;
    for (int c = 0; c < static_cast<int>(program_.calls.size()); ++c) {
      const auto* library = std::get_if<LibraryCall>(&program_.calls[at(c)].what);
      if (library == nullptr || library->op == nullptr || library->phase == LibraryCall::Phase::finish) continue;
      const bool meets = library->op->lowering == Lowering::kCollective;
      const auto& nodes = program_.calls[at(c)].nodes;
      if (meets || library->op->lowering == Lowering::kCheck)
        found.emplace_back(*std::max_element(nodes.begin(), nodes.end()), c);
      any_collective |= meets;
    }
    if (!any_collective) return;
    std::sort(found.begin(), found.end());
    for (size_t i = 1; i < found.size(); ++i) edge(found[i - 1].second, found[i].second);
  }

  void edge(int before, int after) {
    if (before != after) after_[at(before)].insert(after);
  }
  int add_buffer(ProgramBuffer b) {
    program_.buffers.push_back(std::move(b));
    writer_.push_back(-1);
    readers_.emplace_back();
    return static_cast<int>(program_.buffers.size()) - 1;
  }
  bool reaches(int from, int to) const {
    std::vector<bool> seen(after_.size(), false);
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int c = stack.back();
      stack.pop_back();
      if (c == to) return true;
      if (seen[at(c)]) continue;
      seen[at(c)] = true;
      stack.insert(stack.end(), after_[at(c)].begin(), after_[at(c)].end());
    }
    return false;
  }
  bool can_write_over(int w, int output, int input) const {
    const KernelCall& call = program_.calls[at(w)];
    if (readers_[at(input)].count(w) != 0) {
      const std::array<int, 2> pair = {output, input};
      if (std::find(call.in_place.begin(), call.in_place.end(), pair) == call.in_place.end()) return false;
    }
    for (int r : readers_[at(input)])
      if (r != w && reaches(w, r)) return false;
    // A check fed by this very value would come too late.
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const auto* library = std::get_if<LibraryCall>(&program_.calls[c].what);
      if (library != nullptr && library->op != nullptr && library->op->lowering == Lowering::kCheck &&
          reaches(w, static_cast<int>(c)))
        return false;
    }
    return true;
  }
  void alias(int w, int output, int input) {
    program_.buffers[at(output)].alias_of = input;
    for (int r : readers_[at(input)]) edge(r, w);
  }
  void redirect(int from, int to) {
    auto swap = [&](int& b) {
      if (b == from) b = to;
    };
    auto swap_views = [&](std::vector<View>& views) {
      for (View& v : views) swap(v.buffer);
    };
    for (KernelCall& call : program_.calls) {
      if (auto* loop = std::get_if<LoopCall>(&call.what)) swap_views(loop->accesses);
      if (auto* gemm = std::get_if<GemmCall>(&call.what)) {
        swap(gemm->a.buffer), swap(gemm->b.buffer), swap(gemm->c.buffer);
        if (gemm->store) swap_views(gemm->store->accesses);
      }
      if (auto* library = std::get_if<LibraryCall>(&call.what)) swap_views(library->views);
      for (int& b : call.reads) swap(b);
      for (int& b : call.writes) swap(b);
      for (auto& pair : call.in_place) swap(pair[0]), swap(pair[1]);
    }
    std::swap(writer_[at(from)], writer_[at(to)]);
    std::swap(readers_[at(from)], readers_[at(to)]);
  }

  /// Calls in an order that their edges allow, of those free to run the one with the lowest priority first.
  std::vector<int> topological() const {
    std::vector<int> waiting(after_.size(), 0), order;
    for (const auto& out : after_)
      for (int c : out) ++waiting[at(c)];
    using Entry = std::pair<int, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    for (size_t c = 0; c < after_.size(); ++c)
      if (waiting[c] == 0) ready.emplace(priority_[c], static_cast<int>(c));
    while (!ready.empty()) {
      const int c = ready.top().second;
      ready.pop();
      for (int next : after_[at(c)])
        if (--waiting[at(next)] == 0) ready.emplace(priority_[at(next)], next);
      order.push_back(c);
    }
    WS_ASSERT(order.size() == after_.size(), "kernel calls depend on each other in a circle");
    return order;
  }
  /// Made from graph inputs alone, at any time (step counters, decay factors).
  std::vector<bool> find_flexible(const std::vector<int>& order) const {
    std::vector<bool> flexible(after_.size(), true);
    for (int c : order)
      for (int b : program_.calls[at(c)].reads)
        if (writer_[at(b)] >= 0 && writer_[at(b)] != c && !flexible[at(writer_[at(b)])]) flexible[at(c)] = false;
    for (int c : order)  // an input that is large enough to compute on is not a scalar's matter
      if (program_.calls[at(c)].cost.bytes > 4096) flexible[at(c)] = false;
    return flexible;
  }
  /// The place of a call: where the program made it, but not before what it needs; flexible ones just before their first reader.
  /// So gradients are consumed where they appear, and a product that ends late in the backward pass pulls nothing forward.
  void settle_priorities() {
    const std::vector<int> order = topological();
    const std::vector<bool> flexible = find_flexible(order);
    for (int c : order)
      if (!flexible[at(c)])
        for (int next : after_[at(c)]) priority_[at(next)] = std::max(priority_[at(next)], priority_[at(c)]);
    for (size_t i = order.size(); i-- > 0;)
      if (flexible[at(order[i])])
        for (int next : after_[at(order[i])]) priority_[at(order[i])] = std::min(priority_[at(order[i])], priority_[at(next)]);
  }

  void sort() {
    settle_priorities();
    std::vector<KernelCall> sorted;
    for (int c : topological()) sorted.push_back(std::move(program_.calls[at(c)]));
    program_.calls = std::move(sorted);
  }

  Program& program_;
  std::vector<int> priority_;
  std::vector<std::set<int>> after_;    // edges by call
  std::vector<int> writer_;             // by buffer
  std::vector<std::set<int>> readers_;  // by buffer
};

}  // namespace

void order_calls(Program& program, std::vector<int> priority, const std::vector<std::array<int, 2>>& donations) {
  Orderer orderer(program, std::move(priority));
  for (const auto& [output, input] : donations) orderer.donate(output, input);
  orderer.finish();
}

}  // namespace ws
