#include "schedule/split_buckets.h"

#include <algorithm>
#include <map>

namespace ws {
namespace {

constexpr int kAtTheEnd = 1 << 29;  // a priority behind all nodes of a graph

struct Bucket {
  KernelCall begin, finish;
  int priority = 0;  // of the last member
};

const LibraryCall* bucketed(const KernelCall& call) {
  const auto* library = std::get_if<LibraryCall>(&call.what);
  const bool reduces = library != nullptr && library->op != nullptr && library->op->name == "all_reduce";
  return reduces && library->attrs.integer("bucket") > 0 ? library : nullptr;
}

void add_member(Bucket& bucket, const KernelCall& call, const LibraryCall& library) {
  if (bucket.begin.name.empty()) {
    bucket.begin = bucket.finish = call;
    bucket.begin.name = "begin_all_reduce";
    bucket.begin.reason = "gradients travel while the backward pass goes on";
    bucket.finish.name = "finish_all_reduce";
    bucket.finish.reason = "the sum of a bucket is needed from here on";
    for (KernelCall* half : {&bucket.begin, &bucket.finish}) {
      half->reads.clear(), half->writes.clear(), half->nodes.clear(), half->in_place.clear(), half->cost = {};
      std::get<LibraryCall>(half->what).views.clear();
    }
    std::get<LibraryCall>(bucket.begin.what).phase = LibraryCall::Phase::begin;
    std::get<LibraryCall>(bucket.finish.what).phase = LibraryCall::Phase::finish;
  }
  auto& begin = std::get<LibraryCall>(bucket.begin.what);
  begin.attrs = library.attrs;  // the channel of the last one: when the bucket is full
  begin.views.insert(begin.views.end(), library.views.begin(), library.views.end());
  std::get<LibraryCall>(bucket.finish.what).views.push_back(library.views.back());
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(bucket.begin.nodes, call.nodes);
  append(bucket.begin.in_place, call.in_place);
  append(bucket.begin.writes, call.writes);
  append(bucket.finish.reads, call.writes);  // completes what the other half began
  append(bucket.finish.writes, call.writes);
  for (int b : call.reads)
    if (std::find(bucket.begin.reads.begin(), bucket.begin.reads.end(), b) == bucket.begin.reads.end())
      bucket.begin.reads.push_back(b);
  bucket.begin.cost.flops += call.cost.flops;
  bucket.begin.cost.bytes += call.cost.bytes;
}

}  // namespace

void split_buckets(Program& program, std::vector<int>& priority) {
  if (std::none_of(program.calls.begin(), program.calls.end(), bucketed)) return;
  std::map<int64_t, Bucket> buckets;
  std::vector<KernelCall> others;
  std::vector<int> their_priority;
  for (size_t c = 0; c < program.calls.size(); ++c) {
    KernelCall& call = program.calls[c];
    if (const LibraryCall* library = bucketed(call)) {
      Bucket& bucket = buckets[library->attrs.integer("bucket")];
      add_member(bucket, call, *library);
      bucket.priority = std::max(bucket.priority, priority[c]);
    } else {
      others.push_back(std::move(call));
      their_priority.push_back(priority[c]);
    }
  }
  program.calls = std::move(others);
  priority = std::move(their_priority);
  for (auto bucket = buckets.begin(); bucket != buckets.end(); ++bucket) {
    auto later = std::next(bucket);
    if (later != buckets.end()) ++later;
    ProgramBuffer begun;  // holds nothing: it says that finishing comes after beginning
    begun.name = "bucket";
    program.buffers.push_back(begun);
    const int b = static_cast<int>(program.buffers.size()) - 1;
    bucket->second.begin.writes.push_back(b);
    bucket->second.finish.reads.push_back(b);
    program.calls.push_back(std::move(bucket->second.begin));
    priority.push_back(bucket->second.priority);
    program.calls.push_back(std::move(bucket->second.finish));
    priority.push_back(later == buckets.end() ? kAtTheEnd : later->second.priority);
  }
}

}  // namespace ws
