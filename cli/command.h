// What the commands share: how they are declared, how results are printed.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/json.h"

namespace ws::cli {

/// Each command declares its options and sets what main() runs after parsing; the result is the exit code.
using Action = std::function<int()>;
void add_bench(CLI::App& app, Action& action);
void add_bench_trainer(CLI::App& app, Action& action);
void add_parity(CLI::App& app, Action& action);
void add_reference(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_ladder(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_scaling(CLI::App& app, Action& action);
void add_roofs(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);

constexpr int kUserError = 1, kUsageError = 2, kInternalError = 3;
/// Of a command that a signal ended with what was done saved: 128 + SIGINT, SIGTERM or SIGHUP, as a shell has it. SIGUSR1 is a
/// launcher's wish, whose own exit code says what it was asked by.
int exit_code_of(int signal);
/// Work that a signal ended with nothing to keep: main() prints what it says and ends with that code.
struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A sub-command whose unknown options are looked for among the global flags.
CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& help);
/// --json: one JSON object on the last line instead of text.
void add_json_option(CLI::App* command, bool& json);
/// An option that takes a whole number from `low` to `high`; anything else is an Error that names the option.
void add_number(CLI::App* command, const std::string& option, int64_t& value, int64_t low, int64_t high, const std::string& help);
/// An option that takes a finite number; anything else is an Error that names the option.
CLI::Option* add_real(CLI::App* command, const std::string& option, double& value, const std::string& help);
CLI::Option* add_real(CLI::App* command, const std::string& option, std::optional<double>& value, const std::string& help);
/// --memory-budget: an amount such as 2GiB for a step's planned peak; 0 where it is not given.
void add_memory_budget(
    CLI::App* command, int64_t& bytes,
    const std::string& help = "most memory that the compiled step may plan for; kernels run twice to keep to it");
/// An Error for an option that was given as '', as an unset variable of a shell is: it would count as left out.
void refuse_empty_options(const CLI::App* command);
void add_seed(CLI::App* command, uint64_t& seed, const std::string& help);

/// Largest sizes that the options accept (of blocks: kMaxBlocks). Measured steps leave a time or a loss in memory each.
constexpr int64_t kMaxBatch = 100'000'000, kMaxSeq = 10'000'000, kMaxWidth = 1'000'000, kMaxSteps = int64_t{1} << 40,
                  kMaxMeasuredSteps = 100'000'000;

/// One JSON object on one line, numbers unrounded.
void print_json(const Json& result);
/// "key   value" lines; numbers rounded for reading, nested objects and lists left out.
void print_readable(const Json& result);

/// The instruction set that kernels use: avx2, avx512, avx512_bf16 or amx.
std::string isa_name();
/// Highest resident memory of this process so far.
int64_t peak_rss_bytes();
double now_seconds();
double median(std::vector<double> values);

}  // namespace ws::cli
