#include "support/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace ws {
namespace {
volatile std::sig_atomic_t signal_seen = 0;
constexpr int kGuarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};  // the last: what mpirun passes on to its ranks

void remember(int signal) { signal_seen = signal; }

void tell_the_job() {
  const char* folder = std::getenv("WHOLESTEP_JOB_FOLDER");
  if (folder == nullptr) return;
  if (const int file = open((std::string(folder) + "/ready").c_str(), O_CREAT | O_WRONLY, 0600); file >= 0) close(file);
}
}  // namespace

SignalScope::SignalScope(std::span<const int> signals, void (*handler)(int), int flags) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) {
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
    before_.emplace_back(signal, before);
  }
}

SignalScope::~SignalScope() {
  for (const auto& [signal, before] : before_) sigaction(signal, &before, nullptr);
}

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  signals_.emplace(kGuarded, remember, static_cast<int>(SA_RESETHAND));  // the second signal does what it did before
  tell_the_job();
}

bool interrupted() { return signal_seen != 0; }
int interrupt_signal() { return signal_seen; }

}  // namespace ws
