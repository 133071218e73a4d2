// Timeline: the calls of a program when some results are let go after a use and computed again before the next one. Says in which
// order calls then run, how much of the arena is live at most, and what the repeated calls cost. It is asked thousands of times by the
// search, so it works on numbers alone; a Program is made of the answer once.
#pragma once
#include <vector>

#include "schedule/program.h"

namespace ws {

/// What is let go, by gap. A gap is the time after one touch of a buffer (its write or a read) and before the next; the last gap of a
/// buffer follows its last read: if it is kept there, a repeated call may still read it, else it is computed again for that.
using Drops = std::vector<char>;

class Timeline {
 public:
  /// `seconds` by call. The program is ordered and has its workspaces.
  Timeline(const Program& program, std::vector<double> seconds);

  struct Gap {
    int buffer = -1;
    int from = 0, to = 0;  // calls; `to` is one past the last call for a last gap
    bool last = false;
  };
  const std::vector<Gap>& gaps() const { return gaps_; }
  /// Whether a gap may be dropped at all: its buffer lives in the arena and the call that writes it can run twice.
  bool can_drop(int gap) const;
  int num_calls() const { return static_cast<int>(reads_.size()); }
  int64_t bytes(int buffer) const { return bytes_[static_cast<size_t>(buffer)]; }
  /// Of dead results nothing is kept.
  Drops nothing_extended() const;

  struct Outcome {
    bool possible = false;   // false: a call would have to read state that was written over
    int64_t peak_bytes = 0;  // live at once
    double extra_seconds = 0;
    int num_repeated = 0;
  };
  struct Step {
    int call = 0;
    bool repeated = false;
    std::vector<std::array<int, 2>> instances;  // buffer, instance
  };
  Outcome run(const Drops& drops, std::vector<Step>* steps = nullptr);
  // Of the last run:
  const std::vector<int64_t>& live_bytes() const { return live_; }  // by place in the new order
  int place_of(int call) const { return place_[static_cast<size_t>(call)]; }
  /// Dead results that were computed again for the sake of others: their last gaps.
  const std::vector<int>& revived() const { return revived_; }

 private:
  struct Instance {
    int buffer, first, last, root, root_last;
    bool taken, droppable;
  };
  struct Takeover {
    int place, write, read;  // instances
  };
  int gap_after(int buffer, int touch) const { return first_gap_[static_cast<size_t>(buffer)] + touch; }
  bool in_arena(int b) const { return first_gap_[static_cast<size_t>(b)] >= 0; }
  bool restore(int buffer, int now);
  bool rescue(int call, int now);
  void emit(int call, bool repeated);
  void expire(int now);
  void measure();

  const Program& program_;
  std::vector<double> seconds_;
  std::vector<int64_t> bytes_;                          // by buffer, aligned
  std::vector<int> writer_, first_gap_, num_touches_;   // by buffer; first_gap_ -1: outside the arena
  std::vector<int> overwritten_by_;                     // by buffer: the call that writes donated state over it, or -1
  std::vector<char> shared_;                            // by buffer: several calls write it
  std::vector<std::vector<int>> reads_, writes_;        // by call, arena only
  std::vector<std::vector<int>> outside_reads_;         // by call
  std::vector<std::vector<std::array<int, 2>>> pairs_;  // by call: what may be taken over
  std::vector<std::vector<int>> droppable_;             // by call: results that it need not write when it runs again
  std::vector<std::vector<int>> readers_;               // by buffer
  std::vector<std::vector<int>> overwrites_;            // by call: inputs
  std::vector<char> repeatable_;                        // by call
  std::vector<Gap> gaps_;

  const Drops* drops_ = nullptr;
  std::vector<Step>* steps_ = nullptr;
  std::vector<int> current_, touched_;  // by buffer: instance or -1; touches so far
  std::vector<int> waiting_;            // revived buffers that no call of the program reads any more
  std::vector<int> visited_;            // by call: the call of the program for which rescue() came by
  std::vector<int> last_use_;           // by buffer: call of the program during which it was used
  std::vector<Instance> instances_;
  std::vector<Takeover> takeovers_;
  std::vector<int64_t> live_;
  std::vector<int> place_, revived_;
  Outcome outcome_;
  int places_ = 0;
};

/// The program with the calls in that order, repeated ones on buffers of their own; what nobody reads they do not write.
Program with_steps(const Program& program, const std::vector<Timeline::Step>& steps);

}  // namespace ws
