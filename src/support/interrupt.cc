#include "support/interrupt.h"

#include <csignal>

namespace ws {
namespace {
volatile std::sig_atomic_t signal_seen = 0;
struct sigaction previous_int, previous_term, previous_usr1;

void remember(int) { signal_seen = 1; }
}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal does what it did before
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
  sigaction(SIGUSR1, &action, &previous_usr1);  // what mpirun passes on to its ranks
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGUSR1, &previous_usr1, nullptr);
}

bool interrupted() { return signal_seen != 0; }

}  // namespace ws
