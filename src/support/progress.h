// Progress of long work: one line redrawn on a terminal (bar, rate, remaining time, loss), plain lines now and then elsewhere.
// Writes to stderr, so that stdout stays for results.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace ws {

class Progress {
 public:
  /// `total` steps of `unit` ("steps"); each step is worth `items_per_step` of `item` ("tokens") in the rate. Empty item: steps.
  Progress(std::string title, int64_t total, std::string item = {}, double items_per_step = 1);
  /// Ends the terminal line if finish() was not called.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps are done; a loss or NaN, and what it is, said behind it ("mean of the last 20 steps"). Draws at most ten times a second
  /// (every ten seconds off a terminal).
  void update(int64_t done, double loss, std::string loss_is = {});
  /// Draws the last state and ends the line.
  void finish();
  /// A line of its own that stays above.
  void message(const std::string& text);
  /// Whether a new redraw is due: ask before reading a loss back, which waits for the step.
  bool due() const;

  /// The line as drawn, without the carriage return; a pure function for tests.
  static std::string line(const std::string& title, int64_t done, int64_t total, double seconds, double loss,
                          const std::string& item, double items_per_step, bool with_bar);

 private:
  void draw(bool last);
  using Clock = std::chrono::steady_clock;
  std::string title_, item_, loss_is_;
  int64_t total_, done_ = 0;
  double items_per_step_, loss_;
  bool terminal_, open_ = false;
  Clock::time_point start_, last_draw_;
};

/// Work without steps to count: where it takes longer than `after`, one note says what goes on.
class SlowNote {
 public:
  explicit SlowNote(std::string what, std::chrono::milliseconds after = std::chrono::seconds(3));
  ~SlowNote();
  SlowNote(const SlowNote&) = delete;
  SlowNote& operator=(const SlowNote&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread watch_;  // last: it uses the others
};

/// 1234567.0 -> "1.23 M", for rates and sizes in tables.
std::string human(double value);
/// 75.2 -> "1:15", 8000 -> "2:13:20".
std::string human_time(double seconds);

}  // namespace ws
