// Reading a report whose keys may be missing or null.
#pragma once
#include <fmt/core.h>

#include <cmath>
#include <string>

#include "support/json.h"

namespace ws::cli {

/// NaN where there is no number.
inline double value(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : NAN;
}

/// Empty where there is no text.
inline std::string text(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : std::string();
}

/// The number times `scale` in a format, or `none`.
inline std::string number(const Json& json, const char* key, double scale, const char* format, const char* none = "-") {
  return json.contains(key) && json[key].is_number() ? fmt::format(fmt::runtime(format), json[key].get<double>() * scale)
                                                     : std::string(none);
}

}  // namespace ws::cli
