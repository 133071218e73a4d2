#include "command.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>

#include "backend/backend.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/log.h"

namespace ws::cli {
namespace {

template <class T>
CLI::Option* add_real_to(CLI::App* command, const std::string& option, T& value, const std::string& help) {
  auto parse = [option, &value](const std::string& text) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(number)) fail("{} must be a finite number, not '{}'", option, text);
    value = number;
  };
  return command->add_option_function<std::string>(option, parse, help)->type_name("FLOAT");
}

}  // namespace

int exit_code_of(int signal) { return 128 + (signal == SIGUSR1 ? SIGINT : signal); }

CLI::App* add_command(CLI::App& app, const std::string& name, const std::string& help) {
  CLI::App* command = app.add_subcommand(name, help);
  command->fallthrough();
  return command;
}

void add_json_option(CLI::App* command, bool& json) {
  command->add_flag("--json", json, "print one JSON object on the last line");
}

void add_number(CLI::App* command, const std::string& option, int64_t& value, int64_t low, int64_t high,
                const std::string& help) {
  auto parse = [option, &value, low, high](const std::string& text) {
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || problem == std::errc::invalid_argument)
      fail("{} must be a whole number, not '{}'", option, text);
    bool too_long = problem == std::errc::result_out_of_range;
    if (too_long ? text[0] == '-' : value < low) fail("{} must be at least {}, not {}", option, low, text);
    if (too_long || value > high) fail("{} must be at most {}, not {}", option, high, text);
  };
  command->add_option_function<std::string>(option, parse, help)->type_name("INT");
}

CLI::Option* add_real(CLI::App* command, const std::string& option, double& value, const std::string& help) {
  return add_real_to(command, option, value, help);
}

CLI::Option* add_real(CLI::App* command, const std::string& option, std::optional<double>& value, const std::string& help) {
  return add_real_to(command, option, value, help);
}

void add_memory_budget(CLI::App* command, int64_t& bytes, const std::string& help) {
  command
      ->add_option_function<std::string>(
          "--memory-budget", [&bytes](const std::string& text) { bytes = parse_bytes(text, "--memory-budget"); }, help)
      ->type_name("BYTES");
}

void refuse_empty_options(const CLI::App* command) {
  for (const CLI::Option* option : command->get_options())
    if (option->count() > 0 && option->get_items_expected_max() > 0 && option->as<std::string>().empty())
      fail("{} is empty: give a value, or leave it out", option->get_name());
}

void add_seed(CLI::App* command, uint64_t& seed, const std::string& help) {
  auto parse = [&seed](const std::string& text) {
    auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (problem != std::errc() || end != text.data() + text.size())
      fail("--seed must be a whole number from 0 to 2^64 - 1, not '{}'", text);
  };
  command->add_option_function<std::string>("--seed", parse, help)->type_name("UINT");
}

void print_json(const Json& result) {
  if (quiet()) return;
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

void print_readable(const Json& result) {
  if (quiet()) return;
  size_t width = 0;
  for (const auto& [key, value] : result.items()) width = std::max(width, key.size());
  for (const auto& [key, value] : result.items()) {
    if (value.is_structured()) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_number_float()) text = fmt::format("{:.6g}", value.get<double>());
    fmt::print("{:{}}  {}\n", key, width, text);
  }
  std::fflush(stdout);
}

std::string isa_name() {
  const std::string backend = cpu_backend().name();
  return backend.substr(backend.find(':') + 1);
}

int64_t peak_rss_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace ws::cli
