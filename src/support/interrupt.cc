#include "support/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace ws {
namespace {
volatile std::sig_atomic_t signal_seen = 0;
struct sigaction previous_int, previous_term, previous_usr1;

void remember(int) { signal_seen = 1; }

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
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
  sigaction(SIGUSR1, &action, &previous_usr1);  // what mpirun passes on to its ranks
  tell_the_job();
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
  sigaction(SIGUSR1, &previous_usr1, nullptr);
}

bool interrupted() { return signal_seen != 0; }

}  // namespace ws
