#include "ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <thread>

#include "command.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "wholestep/distributed.h"

namespace ws::cli {
namespace {

constexpr int kNotFound = 127;
constexpr int kWishesToEnd[] = {SIGINT, SIGTERM, SIGHUP};
constexpr auto kReady = "ready";  // a file of the job's folder: ranks end at a step when they are asked to (InterruptGuard)
volatile std::sig_atomic_t mpirun_process = 0, signals_seen = 0, first_signal = 0, ended_early = 0;
std::string ready_file;

// The first is passed to the ranks, which end at a step; the next, or one that comes before they can do that, ends mpirun and them.
void pass_on(int signal) {
  if (signals_seen == 0) first_signal = signal;
  signals_seen = signals_seen + 1;
  if (signals_seen == 1 && access(ready_file.c_str(), F_OK) == 0) {
    kill(mpirun_process, SIGUSR1);
    return;
  }
  if (signals_seen == 1) ended_early = 1;
  kill(mpirun_process, SIGTERM);
}

/// Wishes to end wait while it lives.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : kWishesToEnd) sigaddset(&held, signal);
    sigprocmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

/// A folder that the ranks share, for the time of the job.
class JobFolder {
 public:
  JobFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "wholestep-job-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) fail("cannot make a folder {}: {}", pattern, std::strerror(errno));
    path_ = pattern;
  }
  ~JobFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;
  const std::string& path() const { return path_; }
  bool has(const char* file) const { return std::filesystem::exists(path_ + "/" + file); }

 private:
  std::string path_;
};

/// In the child: becomes mpirun.
[[noreturn]] void become_mpirun(int64_t ranks, const std::vector<std::string>& arguments, const std::string& folder,
                                int threads) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);  // Ctrl-C reaches the parent only
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  setenv("OMPI_MCA_btl", "self,vader", 0);         // shared memory: no network is looked for
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // a rank that waits leaves its core to others
  setenv("OMPI_MCA_opal_signal", "", 0);           // no stack traces of MPI's own
  setenv("WHOLESTEP_JOB_FOLDER", folder.c_str(), 1);
  setenv("WHOLESTEP_THREADS", std::to_string(threads).c_str(), 1);
  std::vector<std::string> words = {"mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)};
  // What MPI says in a rank whose neighbour died goes to the system's log: the reason is one line of ours.
  if (std::getenv("OPAL_OUTPUT_REDIRECT") == nullptr) words.insert(words.end(), {"-x", "OPAL_OUTPUT_REDIRECT=syslog"});
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(kNotFound);
}

/// mpirun's status when it has ended. Asked to end while it starts its ranks it may hang: then it gets some seconds.
int wait_for(pid_t mpirun) {
  constexpr int kTurns = 100;
  constexpr auto kTurn = std::chrono::milliseconds(50);
  int status = 0;
  do {
    for (int i = 0; ended_early && i < kTurns; ++i) {
      if (waitpid(mpirun, &status, WNOHANG) == mpirun) return status;
      std::this_thread::sleep_for(kTurn);
    }
    if (ended_early) kill(mpirun, SIGKILL);
  } while (waitpid(mpirun, &status, 0) < 0 && errno == EINTR);
  return status;
}

std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(file, buffer, sizeof buffer);
    if (n > 0)
      text.append(buffer, static_cast<size_t>(n));
    else if (n == 0 || errno != EINTR)
      return text;
  }
}

}  // namespace

std::vector<std::string>& program_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

Mesh MeshOptions::mesh() const {
  constexpr double kMostMb = 1e6;
  if (!(bucket_mb >= 0 && bucket_mb <= kMostMb)) fail("--bucket-mb must be from 0 to {:.0f}, not {}", kMostMb, bucket_mb);
  if (overlap != "auto" && overlap != "on" && overlap != "off") fail("--overlap must be auto, on or off, not '{}'", overlap);
  const Overlap how = overlap == "auto" ? Overlap::automatic : overlap == "on" ? Overlap::on : Overlap::off;
  return {.data = distributed::size(), .overlap = how, .bucket_bytes = static_cast<int64_t>(bucket_mb * 1e6)};
}

void MeshOptions::note_idle() const {
  if (distributed::size() > 1) return;
  std::vector<std::string> idle;
  if (overlap != "auto") idle.push_back("--overlap " + overlap);
  if (bucket_mb > 0) idle.emplace_back("--bucket-mb");
  if (shard_optimizer) idle.emplace_back("--shard-optimizer");
  if (!idle.empty())
    note("{} {} nothing with one rank: --ranks starts several", fmt::join(idle, " and "), idle.size() > 1 ? "do" : "does");
}

void add_mesh(CLI::App* command, MeshOptions& options) {
  add_number(command, "--ranks", options.ranks, 1, 1024, "processes that share each batch; mpirun is started for you");
  command->add_option("--overlap", options.overlap, "gradients travel while the backward pass goes on: auto, on or off");
  command->add_option("--bucket-mb", options.bucket_mb, "gradients that travel together, in megabytes; 0: as measured");
  command->add_flag("--shard-optimizer", options.shard_optimizer, "each rank keeps its rows of the optimizer's state (ZeRO-1)");
}

int on_ranks(int64_t ranks, const std::function<int()>& action) {
  const bool among_several = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  if (among_several && ranks > 1 && ranks != distributed::size())
    fail("--ranks {}, but mpirun has started {}: leave --ranks out", ranks, distributed::size());
  if (ranks == 1 || among_several) return action();
  constexpr int64_t kMostACore = 16;  // each holds a model and threads of its own
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency()), most = kMostACore * cores;
  if (ranks > most)
    fail("--ranks {}: this machine has {} cores, for at most {} ranks; for several machines start mpirun yourself", ranks, cores,
         most);
  return run_ranks(ranks, program_arguments()).exit_code;
}

RanksResult run_ranks(int64_t ranks, const std::vector<std::string>& arguments, bool capture_output) {
  const int cores = configured_threads();
  const int threads = flags().threads > 0 ? flags().threads : std::max(1, cores / static_cast<int>(ranks));
  std::optional<SignalsHeld> held(std::in_place);  // until they are passed on: the folder is removed whatever comes
  const JobFolder folder;
  int pipe_ends[2] = {-1, -1};
  if (capture_output && pipe2(pipe_ends, O_CLOEXEC) != 0) fail("no pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) fail("mpirun cannot be started: {}", std::strerror(errno));
  if (child == 0) {
    held.reset();
    if (capture_output) dup2(pipe_ends[1], STDOUT_FILENO);
    become_mpirun(ranks, arguments, folder.path(), threads);
  }
  RanksResult result;
  mpirun_process = child;
  signals_seen = 0;
  first_signal = 0;
  ended_early = 0;
  ready_file = folder.path() + "/" + kReady;
  const SignalScope signals(kWishesToEnd, pass_on);
  held.reset();
  if (capture_output) {
    close(pipe_ends[1]);
    result.output = read_all(pipe_ends[0]);
    close(pipe_ends[0]);
  }
  const int status = wait_for(child);
  result.signal = first_signal;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (ended_early) {
    if (!folder.has(kReady))
      note("interrupted while the ranks were starting, or at work that has no steps to end at: all were ended");
    result.exit_code = exit_code_of(result.signal);
    return result;
  }
  if (result.exit_code == kNotFound) fail("--ranks {}: there is no mpirun; install Debian's openmpi-bin", ranks);
  if (result.signal != 0 && result.exit_code == exit_code_of(SIGUSR1)) {  // what the ranks were told by
    result.exit_code = exit_code_of(result.signal);
    return result;
  }
  const bool by_signal = std::ranges::find(kWishesToEnd, result.exit_code, exit_code_of) != std::end(kWishesToEnd);
  const bool stopped = by_signal && folder.has(kReady);  // one that came to a rank itself
  if (result.exit_code != 0 && !stopped && !folder.has("error_reported")) {
    const int signal = result.exit_code > 128 ? result.exit_code - 128 : 0;
    note("a rank was ended by {}, and the job with it; what was saved before is whole",
         signal > 0 ? fmt::format("signal {} ({})", signal, strsignal(signal)) : fmt::format("exit code {}", result.exit_code));
    result.exit_code = kUserError;
  }
  return result;
}

}  // namespace ws::cli
