// wholestep: trains models whose whole step is one compiled call. This file finds the command and turns errors into one line
// and an exit code: 1 bad input or a run that failed, 2 wrong usage, 3 a fault of ours, 130, 143 or 129 ended by Ctrl-C, SIGTERM or
// SIGHUP with what was done saved.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>

#include "command.h"
#include "flag_options.h"
#include "ranks.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/printable.h"
#include "support/spelling.h"
#include "support/trace.h"
#include "wholestep/distributed.h"

namespace {

std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return ws::printable(text, text.size());  // names and words of files may hold what steers a terminal
}

// CLI11's own message lists them from last to first.
std::string unexpected(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App* command = given.empty() ? &app : given[0];
  std::vector<std::string> commands, options, words = app.remaining(true);
  if (given.empty())
    for (const CLI::App* each : app.get_subcommands({})) commands.push_back(each->get_name());
  for (const CLI::App* of : {&app, command})
    for (const CLI::Option* option : of->get_options())
      options.insert(options.end(), option->get_lnames().begin(), option->get_lnames().end());
  for (std::string& word : words) {
    std::string_view name = std::string_view(word).substr(0, word.find('='));
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    word += word.starts_with('-') ? ws::spelling_hint(name, options, "--") : ws::spelling_hint(name, commands);
  }
  return fmt::format("{} does not take: {}", command->get_name(), fmt::join(words, " "));
}

int end_of_wrong_usage(const CLI::App& app, const std::string& problem) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  const std::string own = commands.empty() ? "" : fmt::format("wholestep {} --help and ", commands[0]->get_name());
  ws::note("{} ({}wholestep --help list{} what there is)", problem, own, own.empty() ? "s" : "");  // the latter the flags
  return ws::cli::kUsageError;
}

int run(int argc, char** argv) {
  CLI::App app{"wholestep: trains models in C++ with the whole step compiled into one call", "wholestep"};
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", WS_VERSION);
  app.get_formatter()->column_width(36);
  ws::cli::Action action;
  ws::cli::add_ladder(app, action);
  ws::cli::add_compare(app, action);
  ws::cli::add_train(app, action);
  ws::cli::add_generate(app, action);
  ws::cli::add_bench(app, action);
  ws::cli::add_bench_trainer(app, action);
  ws::cli::add_parity(app, action);
  ws::cli::add_reference(app, action);
  ws::cli::add_eval(app, action);
  ws::cli::add_roofs(app, action);
  ws::cli::add_scaling(app, action);
  ws::cli::add_inspect(app, action);
  ws::cli::add_flag_options(app);
  try {
    ws::flags();  // a bad environment variable is an error of every command
    ws::cli::warn_of_unknown_variables();
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ExtrasError&) {
    return end_of_wrong_usage(app, unexpected(app));
  } catch (const CLI::ParseError& e) {
    return end_of_wrong_usage(app, one_line(e.what()));
  }
  ws::cli::check_flag_names();
  if (!action) {
    fmt::print("{}", app.help());
    return 0;
  }
  ws::cli::check_flag_places();
  return action();
}

/// One line, and the end of every rank of the job.
int end_with(const std::string& message, int exit_code) {
  if (ws::distributed::size() > 1) ws::distributed::abort(message, exit_code);
  ws::note("{}", message);
  return exit_code;
}

bool stdout_is_a_closed_pipe() {
  pollfd stream = {STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&stream, 1, 0) == 1 && (stream.revents & POLLERR) != 0;
}

/// The results could not be printed, for the reason `error` (0: it is not known any more). A signal may have come because the terminal is
/// gone, and who closes a pipe early knows.
int end_unwritten(int error) {
  if (ws::interrupted()) return ws::cli::exit_code_of(ws::interrupt_signal());
  if (stdout_is_a_closed_pipe()) return ws::cli::exit_code_of(SIGPIPE);
  return end_with(fmt::format("cannot write the output{}{}", error == 0 ? "" : ": ", error == 0 ? "" : std::strerror(error)),
                  ws::cli::kUserError);
}

/// Files that are opened later must not become what a closed stdout or stderr was.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", O_RDWR));  // the lowest that is free
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the file size limit then fails as one to a full disk does
  std::signal(SIGPIPE, SIG_IGN);  // and one to a pipe that nobody reads: training goes on, or is saved
  // Until a rank guards itself, a wish to end that another rank already heeds must not kill it.
  if (std::getenv("WHOLESTEP_JOB_FOLDER") != nullptr) std::signal(SIGUSR1, SIG_IGN);
  ws::cli::program_arguments().assign(argv + 1, argv + argc);
  std::optional<ws::distributed::Job> job;  // outlives what is thrown: the message comes first
  try {
    job.emplace();
    const int exit_code = run(argc, argv);
    ws::flush_trace();  // at exit it would be too late for an exit code
    errno = 0;
    std::cout.flush();
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout;
    return written || exit_code > ws::cli::kInternalError ? exit_code : end_unwritten(errno);
  } catch (const ws::Error& e) {
    return end_with(one_line(e.what()), ws::cli::kUserError);
  } catch (const ws::cli::Stopped& e) {
    return end_with(e.what(), ws::cli::exit_code_of(ws::interrupt_signal()));
  } catch (const std::system_error& e) {
    const bool of_printing = std::string_view(e.what()).starts_with("cannot write to file");  // in fmt's words
    return of_printing ? end_unwritten(e.code().value()) : end_with(e.what(), ws::cli::kInternalError);
  } catch (const std::bad_alloc&) {
    return end_with("out of memory: use a smaller batch, model or data set", ws::cli::kUserError);
  } catch (const std::exception& e) {
    return end_with(e.what(), ws::cli::kInternalError);
  }
}
