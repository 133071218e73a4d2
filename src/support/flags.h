// Debug flags: each is defined once, here. The same line gives the environment variable WHOLESTEP_NAME, the command line's
// --name and the help text. Read once, at first use; a bad value is a ws::Error that names the variable.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ws {

// INTEGER(name, default, lowest, highest, help)  TOGGLE(name, default, help)  TEXT(name, help)  LIST(name, help): separated by commas
#define WS_FLAGS(INTEGER, TOGGLE, TEXT, LIST)                                                                                  \
  INTEGER(debug, 0, 0, 6,                                                                                                      \
          "notes on stderr: 1 compiles, 2 size, cost and memory of each, 3 passes and rule hits, 4 kernels and plans, 5 time " \
          "of each kernel at each run, 6 generated code")                                                                      \
  TEXT(dump, "folder that receives graphs, programs and plans of each function's last compile")                                \
  LIST(disable, "passes and rewrite rules to leave out")                                                                       \
  INTEGER(verify, 0, 0, 3, "checks: 1 graphs and memory plans, 2 after every pass, 3 each kernel against the reference")       \
  TOGGLE(poison, false, "fill freed arena memory with NaN and guard the ends of buffers")                                      \
  TOGGLE(nan_check, false, "stop at the first kernel whose result holds a NaN or infinity, and name it")                       \
  TOGGLE(check_trace, false, "trace compiled functions twice and name what differs")                                           \
  TEXT(explain, "'fusion': why each kernel ends where it does")                                                                \
  TEXT(trace, "FILE.json for a timeline of compiles and kernels (open it in Perfetto); rank 1 writes FILE.rank1.json")         \
  TEXT(memory_limit, "memory that a step may plan for, as 2GiB; default what the machine or container has")                    \
  TEXT(isa, "instruction set to use: avx2, avx512, avx512_bf16, amx; default: the best here")                                  \
  INTEGER(threads, 0, 0, 1024, "threads of a step; 0: one a core that this process may use")                                   \
  TOGGLE(cache, true, "keep machine code on disk between runs")                                                                \
  TEXT(cache_dir, "folder of that cache and of staged corpora; default $XDG_CACHE_HOME/wholestep or ~/.cache/wholestep")       \
  TOGGLE(time_passes, false, "print the time of each pass and of code generation")

struct Flags {
#define WS_INTEGER(name, default_value, low, high, help) int name = default_value;
#define WS_TOGGLE(name, default_value, help) bool name = default_value;
#define WS_TEXT(name, help) std::string name;
#define WS_LIST(name, help) std::vector<std::string> name;
  WS_FLAGS(WS_INTEGER, WS_TOGGLE, WS_TEXT, WS_LIST)
#undef WS_INTEGER
#undef WS_TOGGLE
#undef WS_TEXT
#undef WS_LIST
  /// Whether DISABLE names this pass or rule.
  bool disabled(std::string_view pass_or_rule) const;
};

/// The process's flags: the environment's, with what set_flag changed since.
const Flags& flags();

struct FlagSpec {
  std::string name;  // "nan_check"; the environment's is WHOLESTEP_NAN_CHECK, the option's --nan-check
  std::string environment, option;
  std::string value_hint;  // "0..6", "0 or 1", "TEXT", "A,B,.."
  std::string default_text;
  std::string help;
  std::function<void(Flags&, std::string_view value, std::string_view source)> set;
};
std::span<const FlagSpec> flag_specs();

/// Sets one flag from text. `source` is named in the Error ("--threads"). Not for use while steps run on other threads.
void set_flag(std::string_view name, std::string_view value, std::string_view source);

/// Changes flags within a scope: for tests.
class FlagScope {
 public:
  FlagScope(std::string_view name, std::string_view value);
  ~FlagScope();
  FlagScope(const FlagScope&) = delete;
  FlagScope& operator=(const FlagScope&) = delete;

 private:
  Flags before_;
};

/// Threads of a step: the flag, or the cores that this process may run on.
int configured_threads();

/// The folder of the flag `cache_dir` or its default; not created here.
std::string cache_folder();

}  // namespace ws
