// Ctrl-C as a flag: long work asks between steps whether it should end, saves what it has, and returns.
#pragma once
#include <csignal>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ws {

/// While it lives, `handler` takes these signals, but for a SIGHUP that is ignored, as under nohup; then what took them before.
class SignalScope {
 public:
  SignalScope(std::span<const int> signals, void (*handler)(int), int flags = 0);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> before_;
};

/// While it lives, the first SIGINT, SIGTERM, SIGHUP (unless it is ignored, as under nohup) or SIGUSR1 only sets a flag; a second one
/// ends the process as usual. In a job of several ranks it says so: a file "ready" in the folder that WHOLESTEP_JOB_FOLDER names.
class InterruptGuard {
 public:
  InterruptGuard();

 private:
  std::optional<SignalScope> signals_;
};

/// Whether a guarded signal arrived.
bool interrupted();
/// Which one came last; 0 where none did.
int interrupt_signal();

}  // namespace ws
