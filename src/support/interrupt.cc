#include "support/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iterator>
#include <string>

namespace ws {
namespace {
volatile std::sig_atomic_t signal_seen = 0;
constexpr int kGuarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};  // the last: what mpirun passes on to its ranks
struct sigaction previous[std::size(kGuarded)];

void remember(int signal) { signal_seen = signal; }

void tell_the_job() {
  const char* folder = std::getenv("WHOLESTEP_JOB_FOLDER");
  if (folder == nullptr) return;
  if (const int file = open((std::string(folder) + "/ready").c_str(), O_CREAT | O_WRONLY, 0600); file >= 0) close(file);
}
}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal does what it did before
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kGuarded); ++i) {
    sigaction(kGuarded[i], &action, &previous[i]);
    if (kGuarded[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &previous[i], nullptr);
  }
  tell_the_job();
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < std::size(kGuarded); ++i) sigaction(kGuarded[i], &previous[i], nullptr);
}

bool interrupted() { return signal_seen != 0; }
int interrupt_signal() { return signal_seen; }

}  // namespace ws
