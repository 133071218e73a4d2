// Ctrl-C as a flag: long work asks between steps whether it should end, saves what it has, and returns.
#pragma once

namespace ws {

/// While it lives, the first SIGINT, SIGTERM, SIGHUP (unless it is ignored, as under nohup) or SIGUSR1 only sets a flag; a second one
/// ends the process as usual. In a job of several ranks it says so: a file "ready" in the folder that WHOLESTEP_JOB_FOLDER names.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// Whether a guarded signal arrived.
bool interrupted();
/// Which one came last; 0 where none did.
int interrupt_signal();

}  // namespace ws
