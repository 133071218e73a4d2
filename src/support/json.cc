#include "support/json.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "support/error.h"

namespace ws {
namespace {

[[noreturn]] void fail_at(std::string_view text, size_t position, const std::string& name, const std::string& problem) {
  position = std::min(position, text.size());
  size_t line = 1, column = 1;
  for (size_t i = 0; i < position; ++i) text[i] == '\n' ? (++line, column = 1) : ++column;
  fail("{}: line {}, column {}: {}", name, line, column, problem);
}

// Watches keys while nlohmann's parser fills the value.
struct KeyChecker {
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  bool operator()(int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second && duplicate.empty())
      duplicate = value.get<std::string>();
    return true;
  }
};

const char* type_word(const Json& value) { return value.is_null() ? "null" : value.type_name(); }

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  // The parser recurses by depth, so a hostile file is refused before it is parsed.
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > 64) fail_at(text, i, name, "nested deeper than 64 levels");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  KeyChecker checker;
  Json value;
  try {
    value = Json::parse(text, std::ref(checker));
  } catch (const nlohmann::json::parse_error& problem) {
    std::string what = problem.what();  // "[json.exception...] parse error at line 1, column 2: syntax error ..."
    if (const size_t read = what.find("; last read: "); read != std::string::npos && what.size() > read + 80)
      what = what.substr(0, read);  // it may be a picture
    size_t cut = what.find(": ", what.find("column"));
    fail_at(text, problem.byte > 0 ? problem.byte - 1 : 0, name, cut == std::string::npos ? what : what.substr(cut + 2));
  } catch (const nlohmann::json::exception& problem) {  // a number beyond double
    std::string what = problem.what();
    fail("{}: {}", name, what.substr(what.find("] ") + 2));
  }
  if (!checker.duplicate.empty()) fail("{}: the key \"{}\" occurs twice in one object", name, checker.duplicate);
  return value;
}

const Json& json_at(const Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object()) fail("{}: expected an object with \"{}\", found {}", where, key, type_word(object));
  auto found = object.find(key);
  if (found == object.end()) fail("{}: \"{}\" is missing", where, key);
  return *found;
}

template <>
std::string json_get<std::string>(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = json_at(object, key, where);
  if (!value.is_string()) fail("{}: \"{}\" must be text, not {}", where, key, type_word(value));
  return value.get<std::string>();
}

template <>
bool json_get<bool>(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = json_at(object, key, where);
  if (!value.is_boolean()) fail("{}: \"{}\" must be true or false, not {}", where, key, type_word(value));
  return value.get<bool>();
}

template <>
int64_t json_get<int64_t>(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = json_at(object, key, where);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)))
    fail("{}: \"{}\" must be a whole number, not {}", where, key, value.is_number() ? value.dump() : type_word(value));
  return value.get<int64_t>();
}

template <>
double json_get<double>(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = json_at(object, key, where);
  if (!value.is_number()) fail("{}: \"{}\" must be a number, not {}", where, key, type_word(value));
  return value.get<double>();
}

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace ws
