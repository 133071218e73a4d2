#include "memory/timeline.h"

#include <algorithm>

#include "memory/in_place.h"
#include "memory/lifetimes.h"
#include "memory/plan.h"
#include "schedule/clone_call.h"
#include "schedule/drop_store.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }
bool has(const std::vector<int>& list, int x) { return std::find(list.begin(), list.end(), x) != list.end(); }

// A dead result that was computed again stays for so many calls of the program: what needs it once often needs it twice.
constexpr int kPatience = 16;

bool stops_or_returns(const Program& program, const KernelCall& call) {
  const auto* library = std::get_if<LibraryCall>(&call.what);
  const OpDef* op = library != nullptr ? library->op : nullptr;
  if (op != nullptr && (op->has(kEffect) || op->lowering == Lowering::kCollective)) return true;  // ranks meet once
  return std::any_of(call.writes.begin(), call.writes.end(),
                     [&](int b) { return program.buffers[at(b)].role != ProgramBuffer::Role::kTemporary; });
}

}  // namespace

Timeline::Timeline(const Program& program, std::vector<double> seconds) : program_(program), seconds_(std::move(seconds)) {
  const size_t num_buffers = program.buffers.size();
  const int num_calls = static_cast<int>(program.calls.size());
  writer_.assign(num_buffers, -1);
  first_gap_.assign(num_buffers, -1);
  num_touches_.assign(num_buffers, 0);
  overwritten_by_.assign(num_buffers, -1);
  shared_.assign(num_buffers, 0);
  reads_.resize(at(num_calls));
  writes_.resize(at(num_calls));
  outside_reads_.resize(at(num_calls));
  pairs_.resize(at(num_calls));
  droppable_.resize(at(num_calls));
  overwrites_.resize(at(num_calls));
  readers_.resize(num_buffers);
  repeatable_.resize(at(num_calls));
  std::vector<std::vector<int>> touches(num_buffers);
  const auto lives_here = [&](int b) {
    return lives_in_arena(program.buffers[at(b)], true) && program.buffers[at(b)].num_elements > 0;
  };
  for (const ProgramBuffer& b : program.buffers) bytes_.push_back(aligned_bytes(b));
  for (int c = 0; c < num_calls; ++c) {
    const KernelCall& call = program.calls[at(c)];
    repeatable_[at(c)] = !stops_or_returns(program, call);
    for (int b : call.writes) {
      if (writer_[at(b)] >= 0) shared_[at(b)] = 1;
      writer_[at(b)] = c;
      if (const int input = program.buffers[at(b)].alias_of; input >= 0) {
        overwritten_by_[at(input)] = c;
        overwrites_[at(c)].push_back(input);
      }
      if (lives_here(b)) writes_[at(c)].push_back(b), touches[at(b)].push_back(c);
    }
    for (int b : call.reads) {
      if (has(call.writes, b)) continue;  // scratch of its own
      readers_[at(b)].push_back(c);
      if (!lives_here(b)) {
        outside_reads_[at(c)].push_back(b);
      } else {
        reads_[at(c)].push_back(b);
        touches[at(b)].push_back(c);
      }
    }
    for (const auto& [write, read] : call.in_place)
      if (lives_here(write) && lives_here(read) && could_take_over(program, c, write, read))
        pairs_[at(c)].push_back({write, read});
  }
  for (size_t b = 0; b < num_buffers; ++b) {
    if (touches[b].empty()) continue;
    first_gap_[b] = static_cast<int>(gaps_.size());
    num_touches_[b] = static_cast<int>(touches[b].size());
    for (size_t t = 0; t < touches[b].size(); ++t) {
      const bool last = t + 1 == touches[b].size();
      gaps_.push_back({static_cast<int>(b), touches[b][t], last ? num_calls : touches[b][t + 1], last});
    }
    if (shared_[b])
      for (int c = 0; c < num_calls; ++c)
        if (has(program.calls[at(c)].writes, static_cast<int>(b))) repeatable_[at(c)] = 0;
  }
  for (int c = 0; c < num_calls; ++c) {
    if (!repeatable_[at(c)] || writes_[at(c)].size() < 2) continue;
    for (int b : writes_[at(c)])
      if (KernelCall copy = program.calls[at(c)]; drop_store(copy, b)) droppable_[at(c)].push_back(b);
  }
}

bool Timeline::can_drop(int gap) const {
  const int b = gaps_[at(gap)].buffer;
  return !shared_[at(b)] && writer_[at(b)] >= 0 && repeatable_[at(writer_[at(b)])];
}

Drops Timeline::nothing_extended() const {
  Drops drops(gaps_.size(), 0);
  for (size_t g = 0; g < gaps_.size(); ++g) drops[g] = gaps_[g].last && can_drop(static_cast<int>(g));
  return drops;
}

Timeline::Outcome Timeline::run(const Drops& drops, std::vector<Step>* steps) {
  drops_ = &drops;
  steps_ = steps;
  current_.assign(program_.buffers.size(), -1);
  touched_.assign(program_.buffers.size(), 0);
  last_use_.assign(program_.buffers.size(), 0);
  visited_.assign(program_.calls.size(), -1);
  place_.assign(program_.calls.size(), 0);
  waiting_.clear();
  instances_.clear();
  takeovers_.clear();
  revived_.clear();
  outcome_ = {};
  places_ = 0;
  for (int c = 0; c < static_cast<int>(program_.calls.size()); ++c) {
    for (int b : reads_[at(c)])
      if (current_[at(b)] < 0 && !restore(b, c)) return {};
    for (int input : overwrites_[at(c)])
      for (int reader : readers_[at(input)])
        if (reader < c && !rescue(reader, c)) return {};
    place_[at(c)] = places_;
    emit(c, false);
    for (const auto* list : {&reads_[at(c)], &writes_[at(c)]})
      for (int b : *list) {
        last_use_[at(b)] = c;
        if (drops[at(gap_after(b, touched_[at(b)]++))]) current_[at(b)] = -1;
      }
    if (!waiting_.empty()) expire(c);
  }
  measure();
  outcome_.possible = true;
  return outcome_;
}

bool Timeline::restore(int buffer, int now) {
  const int call = writer_[at(buffer)];
  if (call < 0 || !repeatable_[at(call)]) return false;
  for (int b : outside_reads_[at(call)])
    if (overwritten_by_[at(b)] >= 0 && overwritten_by_[at(b)] < now) return false;
  for (int b : reads_[at(call)]) {
    if (current_[at(b)] < 0 && !restore(b, now)) return false;
    last_use_[at(b)] = now;
  }
  emit(call, true);
  outcome_.extra_seconds += seconds_[at(call)];
  ++outcome_.num_repeated;
  return true;
}

/// State that `call` reads is about to be written over: what must be computed from it again is, now.
bool Timeline::rescue(int call, int now) {
  if (visited_[at(call)] == now) return true;
  visited_[at(call)] = now;
  for (int b : writes_[at(call)]) {
    if (current_[at(b)] >= 0 || touched_[at(b)] == 0) continue;
    if (touched_[at(b)] < num_touches_[at(b)]) {
      if (!restore(b, now)) return false;
    } else {  // dead, but what was made from it may have to be made again
      for (int reader : readers_[at(b)])
        if (reader < now && !rescue(reader, now)) return false;
    }
  }
  return true;
}

void Timeline::emit(int call, bool repeated) {
  const int place = places_++;
  Step step{call, repeated, {}};
  for (int b : reads_[at(call)]) {
    instances_[at(current_[at(b)])].last = place;
    if (steps_) step.instances.push_back({b, current_[at(b)]});
  }
  const auto first_new = static_cast<int>(instances_.size());
  for (int b : writes_[at(call)]) {
    int instance = static_cast<int>(instances_.size());
    if (shared_[at(b)] && current_[at(b)] >= 0) {
      instance = current_[at(b)];
      instances_[at(instance)].last = place;
    } else {
      instances_.push_back({b, place, place, instance, place, false, repeated && has(droppable_[at(call)], b)});
    }
    if (steps_) step.instances.push_back({b, instance});
    if (repeated && current_[at(b)] >= 0) continue;  // this copy is of no use
    current_[at(b)] = instance;
    if (!repeated || touched_[at(b)] < num_touches_[at(b)]) continue;
    waiting_.push_back(b);
    revived_.push_back(gap_after(b, num_touches_[at(b)] - 1));
  }
  for (const auto& [write, read] : pairs_[at(call)])
    for (int i = first_new; i < static_cast<int>(instances_.size()); ++i)
      if (instances_[at(i)].buffer == write) takeovers_.push_back({place, i, current_[at(read)]});
  if (steps_) steps_->push_back(std::move(step));
}

void Timeline::expire(int now) {
  std::erase_if(waiting_, [&](int b) {
    if (now - last_use_[at(b)] < kPatience) return false;
    current_[at(b)] = -1;
    return true;
  });
}

void Timeline::measure() {
  for (Instance& i : instances_) i.root_last = i.last;
  const auto is_dropped = [](const Instance& i) { return i.droppable && i.last == i.first; };
  for (const Takeover& t : takeovers_) {
    Instance &write = instances_[at(t.write)], &read = instances_[at(t.read)];
    if (is_dropped(write) || read.taken || read.last != t.place || read.first == t.place || write.root != t.write) continue;
    read.taken = true;
    write.root = read.root;
    Instance& root = instances_[at(read.root)];
    root.root_last = std::max(root.root_last, write.last);
  }
  live_.assign(at(places_) + 1, 0);
  for (size_t i = 0; i < instances_.size(); ++i) {
    const Instance& instance = instances_[i];
    if (instance.root != static_cast<int>(i) || is_dropped(instance)) continue;
    live_[at(instance.first)] += bytes_[at(instance.buffer)];
    live_[at(instance.root_last) + 1] -= bytes_[at(instance.buffer)];
  }
  int64_t live = 0;
  for (int64_t& l : live_) l = live += l, outcome_.peak_bytes = std::max(outcome_.peak_bytes, live);
  live_.pop_back();
}

Program with_steps(const Program& program, const std::vector<Timeline::Step>& steps) {
  Program result;
  result.name = program.name;
  result.buffers = program.buffers;
  result.input_buffers = program.input_buffers;
  result.outputs = program.outputs;
  result.output_types = program.output_types;
  std::vector<int> of_instance;  // -1: not met yet
  std::vector<char> met(program.buffers.size(), 0);
  for (const Timeline::Step& step : steps) {
    for (const auto& [buffer, instance] : step.instances) {
      if (at(instance) >= of_instance.size()) of_instance.resize(at(instance) + 1, -1);
      int& b = of_instance[at(instance)];
      if (b >= 0) continue;
      b = buffer;
      if (met[at(buffer)]) {
        b = static_cast<int>(result.buffers.size());
        result.buffers.push_back(program.buffers[at(buffer)]);
        result.buffers.back().name += " again";
      }
      met[at(buffer)] = 1;
    }
    result.calls.push_back(clone_call(program.calls[at(step.call)], [&](int b) {
      for (const auto& [buffer, instance] : step.instances)
        if (buffer == b) return of_instance[at(instance)];
      return b;
    }));
    result.calls.back().recomputed = step.repeated;
  }
  std::vector<char> is_read(result.buffers.size(), 0);
  for (const KernelCall& call : result.calls)
    for (int b : call.reads) is_read[at(b)] = 1;
  for (KernelCall& call : result.calls) {
    if (!call.recomputed) continue;
    const std::vector<int> writes = call.writes;
    for (int b : writes)
      if (!is_read[at(b)]) drop_store(call, b);
  }
  return result;
}

}  // namespace ws
