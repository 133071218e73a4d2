#include "support/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "support/log.h"

namespace ws {

std::string human(double value) {
  static constexpr struct {
    double scale;
    const char* suffix;
  } kUnits[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& unit : kUnits)
    if (std::abs(value) >= unit.scale * 0.9995) {
      double scaled = value / unit.scale;
      return fmt::format("{:.{}f}{}", scaled, scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0, unit.suffix);
    }
  return fmt::format("{:.3g}", value);
}

std::string human_time(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  auto s = static_cast<int64_t>(std::llround(seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(std::string title, int64_t total, std::string item, double items_per_step)
    : title_(std::move(title)), item_(std::move(item)), total_(total), items_per_step_(items_per_step),
      loss_(std::numeric_limits<double>::quiet_NaN()), terminal_(::isatty(STDERR_FILENO) == 1), start_(Clock::now()),
      last_draw_(start_) {}

Progress::~Progress() {
  if (open_ && terminal_) write_stderr("\n");
}

bool Progress::due() const {
  return Clock::now() - last_draw_ >= (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000));
}

void Progress::update(int64_t done, double loss, std::string loss_is) {
  done_ = done;
  loss_ = loss;
  loss_is_ = std::move(loss_is);
  if (due()) draw(false);
}

void Progress::finish() {
  draw(true);
  open_ = false;
}

void Progress::message(const std::string& text) {
  write_stderr(fmt::format("{}{}\n", terminal_ && open_ ? "\r\x1b[K" : "", text));
  open_ = false;
}

std::string Progress::line(const std::string& title, int64_t done, int64_t total, double seconds, double loss,
                           const std::string& item, double items_per_step, bool with_bar) {
  double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string out = title;
  if (with_bar) {
    constexpr int kWidth = 24;
    int filled = total > 0 ? static_cast<int>(std::min<int64_t>(done, total) * kWidth / total) : 0;
    out += fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '='),
                       std::string(static_cast<size_t>(kWidth - filled), ' '));
  }
  out += total > 0 ? fmt::format(" {}/{}", done, total) : fmt::format(" {}", done);
  if (rate > 0) out += fmt::format("  {} {}/s", human(rate * items_per_step), item.empty() ? "steps" : item);
  if (rate > 0 && total > done) out += fmt::format("  {} left", human_time(static_cast<double>(total - done) / rate));
  if (std::isfinite(loss)) out += fmt::format("  loss {:.4f}", loss);
  return out;
}

SlowNote::SlowNote(std::string what, std::chrono::milliseconds after)
    : watch_([this, what = std::move(what), after] {
        std::unique_lock lock(mutex_);
        if (!ended_.wait_for(lock, after, [this] { return has_ended_; })) note("{}: this takes a while", what);
      }) {}

SlowNote::~SlowNote() {
  {
    std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_one();
  watch_.join();
}

void Progress::draw(bool last) {
  last_draw_ = Clock::now();
  if (quiet()) return;
  double seconds = std::chrono::duration<double>(last_draw_ - start_).count();
  std::string text = line(title_, done_, total_, seconds, loss_, item_, items_per_step_, terminal_);
  if (std::isfinite(loss_) && !loss_is_.empty()) text += fmt::format(" ({})", loss_is_);
  if (terminal_) {
    write_stderr(fmt::format("\r{}\x1b[K{}", text, last ? "\n" : ""));
    open_ = !last;
  } else {
    write_stderr(text + "\n");
  }
}

}  // namespace ws
