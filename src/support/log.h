// One-line notes on stderr. `note` always prints (warnings, recompiles); WS_LOG prints from a DEBUG level on and formats
// nothing below it.
#pragma once
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <functional>
#include <string>
#include <string_view>

#include "support/flags.h"

namespace ws {

/// To stderr, as one write. That nobody reads it (a terminal that closed, a full disk) is no error: work goes on and is saved.
void write_stderr(std::string_view text);

/// Prints "wholestep: TEXT" as one write, so that lines of several threads or ranks do not mix.
void write_note(std::string_view text);

template <class... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  write_note(fmt::format(format, std::forward<Args>(args)...));
}

/// A quiet process prints neither notes nor progress nor results: of the ranks of a job all but one.
void set_quiet(bool quiet);
bool quiet();

/// Receives notes in place of stderr; an empty function restores it. For tests and embedding programs.
void set_note_sink(std::function<void(std::string_view)> sink);

/// Writes `text` to DUMP/name where the flag DUMP is set; the folder is made. Failing to write is noted, not an error.
void dump(std::string_view name, std::string_view text);

}  // namespace ws

#define WS_LOG(level, ...)                                       \
  do {                                                           \
    if (::ws::flags().debug >= (level)) ::ws::note(__VA_ARGS__); \
  } while (0)
