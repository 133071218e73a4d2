// Timeline of compiles, steps and kernels in the JSON event format that Perfetto and chrome://tracing read. Off unless the
// flag TRACE names a file; then the file is written at exit and by flush_trace(). Each rank of a job writes one of its own.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ws {

/// Whether TRACE is set.
bool tracing();
/// The flag's file for rank 0; for rank 1 of "time.json" "time.rank1.json".
std::string trace_file_of(int rank);
/// Nanoseconds of the steady clock, the time base of all events.
int64_t trace_now_ns();
/// One finished event on the calling thread's row. `arguments_json` is "" or the inside of a JSON object: "\"flops\": 12".
void trace_event(std::string_view name, std::string_view category, int64_t begin_ns, int64_t end_ns,
                 std::string arguments_json = {});
/// Writes what there is, if anything; throws ws::Error naming the file where it cannot.
void flush_trace();

/// An event from construction to destruction.
class TraceSpan {
 public:
  TraceSpan(std::string_view name, std::string_view category) : on_(tracing()) {
    if (on_) name_ = name, category_ = category, begin_ns_ = trace_now_ns();
  }
  ~TraceSpan() {
    if (on_) trace_event(name_, category_, begin_ns_, trace_now_ns());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  bool on_;
  std::string name_, category_;
  int64_t begin_ns_ = 0;
};

}  // namespace ws
