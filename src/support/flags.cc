#include "support/flags.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "support/error.h"

namespace ws {
namespace {

int parse_integer(std::string_view text, int low, int high, std::string_view source) {
  int value = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < low || value > high)
    fail("{} must be a whole number from {} to {}, not '{}'", source, low, high, text);
  return value;
}

bool parse_toggle(std::string_view text, std::string_view source) {
  if (text == "1" || text == "true" || text == "on") return true;
  if (text == "0" || text == "false" || text == "off") return false;
  fail("{} must be 0 or 1, not '{}'", source, text);
}

std::vector<std::string> parse_list(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) words.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return words;
}

FlagSpec make_spec(std::string name, std::string hint, std::string default_text, std::string help,
                   std::function<void(Flags&, std::string_view, std::string_view)> set) {
  std::string environment = "WHOLESTEP_", option = "--";
  for (char c : name) {
    environment += static_cast<char>(c == '_' ? c : c - 'a' + 'A');
    option += c == '_' ? '-' : c;
  }
  return {std::move(name), environment, option, std::move(hint), std::move(default_text), std::move(help), std::move(set)};
}

std::vector<FlagSpec> make_specs() {
  std::vector<FlagSpec> specs;
#define WS_INTEGER(name, default_value, low, high, help)                  \
  specs.push_back(make_spec(#name, #low ".." #high, #default_value, help, \
                            [](Flags& f, std::string_view v, std::string_view s) { f.name = parse_integer(v, low, high, s); }));
#define WS_TOGGLE(name, default_value, help)                                    \
  specs.push_back(make_spec(#name, "0 or 1", (default_value) ? "1" : "0", help, \
                            [](Flags& f, std::string_view v, std::string_view s) { f.name = parse_toggle(v, s); }));
#define WS_TEXT(name, help) \
  specs.push_back(          \
      make_spec(#name, "TEXT", "", help, [](Flags& f, std::string_view v, std::string_view) { f.name = std::string(v); }));
#define WS_LIST(name, help) \
  specs.push_back(          \
      make_spec(#name, "A,B,..", "", help, [](Flags& f, std::string_view v, std::string_view) { f.name = parse_list(v); }));
  WS_FLAGS(WS_INTEGER, WS_TOGGLE, WS_TEXT, WS_LIST)
#undef WS_INTEGER
#undef WS_TOGGLE
#undef WS_TEXT
#undef WS_LIST
  return specs;
}

Flags from_environment() {
  Flags result;
  for (const FlagSpec& spec : flag_specs())
    if (const char* value = std::getenv(spec.environment.c_str()); value && *value) spec.set(result, value, spec.environment);
  return result;
}

Flags& mutable_flags() {
  static Flags instance = from_environment();
  return instance;
}

}  // namespace

bool Flags::disabled(std::string_view pass_or_rule) const {
  return std::find(disable.begin(), disable.end(), pass_or_rule) != disable.end();
}

const Flags& flags() { return mutable_flags(); }

std::span<const FlagSpec> flag_specs() {
  static const std::vector<FlagSpec> specs = make_specs();
  return specs;
}

void set_flag(std::string_view name, std::string_view value, std::string_view source) {
  for (const FlagSpec& spec : flag_specs())
    if (spec.name == name) return spec.set(mutable_flags(), value, source);
  fail("there is no flag '{}'", name);
}

FlagScope::FlagScope(std::string_view name, std::string_view value) : before_(flags()) { set_flag(name, value, name); }
FlagScope::~FlagScope() { mutable_flags() = before_; }

int configured_threads() {
  if (flags().threads > 0) return flags().threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string cache_folder() {
  if (!flags().cache_dir.empty()) return flags().cache_dir;
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base) return std::string(base) + "/wholestep";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/wholestep";
  return "/tmp/wholestep-cache";
}

}  // namespace ws
