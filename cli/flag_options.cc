#include "flag_options.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backend/cpu/isa.h"
#include "io/file.h"
#include "passes/pipeline.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "support/printable.h"
#include "support/spelling.h"
#include "wholestep/distributed.h"

namespace ws::cli {
namespace {

// In place, as it will be: a device is as good as a file.
void check_can_trace(const std::string& path) {
  std::error_code ignored;
  const NewFolder folder(std::filesystem::path(path).parent_path().string());
  const bool is_new = !std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) fail("cannot write {}: {}", path, std::strerror(errno));
  if (is_new) std::filesystem::remove(path, ignored);
}

}  // namespace

void add_flag_options(CLI::App& app) {
  for (const FlagSpec& spec : flag_specs())
    app.add_option_function<std::string>(
           spec.option, [&spec](const std::string& value) { set_flag(spec.name, value, spec.option); },
           fmt::format("{} [{}]", spec.help, spec.environment))
        ->option_text(spec.value_hint)
        ->group("Flags of every command");
}

void check_flag_names() {
  std::vector<std::string> names = pass_and_rule_names();
  names.emplace_back("fuse");
  names.emplace_back("repeat_late");
  names.emplace_back("write_parts");
  names.emplace_back("derived");
  for (const std::string& name : flags().disable)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail("--disable (WHOLESTEP_DISABLE): there is no pass or rule '{}'; known ones are {}", name, fmt::join(names, ", "));
  const std::string& explain = flags().explain;
  if (!explain.empty() && explain != "fusion") fail("--explain (WHOLESTEP_EXPLAIN) must be fusion, not '{}'", explain);
  if (!flags().isa.empty()) cpu::wanted_isa(flags().isa);
}

// One of several ranks looks, since looking writes.
void check_flag_places() {
  if (distributed::rank() != 0) return;
  const auto check = [](const char* flag, const std::string& place, auto&& can_write) {
    try {
      if (!place.empty()) can_write(place);
    } catch (const Error& e) {
      fail("{}: {}", flag, e.what());
    }
  };
  check("--dump (WHOLESTEP_DUMP)", flags().dump, [](const std::string& folder) { check_can_write(folder + "/program.txt"); });
  check("--trace (WHOLESTEP_TRACE)", flags().trace, check_can_trace);
  // A cache that cannot be written is done without; what can never be a folder is a slip.
  check("--cache-dir (WHOLESTEP_CACHE_DIR)", flags().cache_dir, [](const std::string& folder) {
    std::error_code problem;
    const std::filesystem::file_status found = std::filesystem::status(folder, problem);
    if (std::filesystem::exists(found) ? !std::filesystem::is_directory(found) : problem == std::errc::not_a_directory)
      fail("{} is no folder and cannot become one", folder);
  });
}

void warn_of_unknown_variables() {
  constexpr std::string_view kPrefix = "WHOLESTEP_";
  constexpr const char* kOfRanks = "WHOLESTEP_JOB_FOLDER";
  if (std::getenv(kOfRanks) != nullptr) return;  // who started the ranks has said it
  std::vector<std::string> unknown, known;
  for (const FlagSpec& spec : flag_specs()) known.push_back(spec.environment.substr(kPrefix.size()));
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view name = std::string_view(*variable).substr(0, std::strcspn(*variable, "="));
    if (!name.starts_with(kPrefix)) continue;
    const std::string_view flag = name.substr(kPrefix.size());
    if (std::ranges::find(known, flag) == known.end()) unknown.push_back(printable(name) + spelling_hint(flag, known, kPrefix));
  }
  std::ranges::sort(unknown);
  if (!unknown.empty())
    note("there is no flag for the environment's {}; wholestep --help lists what there is", fmt::join(unknown, ", "));
}

}  // namespace ws::cli
