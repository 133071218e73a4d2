#include "support/interrupt.h"

#include <csignal>

namespace ws {
namespace {
volatile std::sig_atomic_t signal_seen = 0;
struct sigaction previous_int, previous_term;

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
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

bool interrupted() { return signal_seen != 0; }

}  // namespace ws
