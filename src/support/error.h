// Throwing helpers with fmt-style messages. The error classes themselves are public (wholestep/error.h).
#pragma once
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "wholestep/error.h"

namespace ws {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_at_run(fmt::format_string<Args...> format, Args&&... args) {
  throw RuntimeError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void internal_failure(const char* file, int line, const char* condition, const std::string& message);

}  // namespace ws

/// Invariants of ours, checked in every build.
#define WS_ASSERT(condition, ...)                                                            \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::ws::internal_failure(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
