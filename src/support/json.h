// JSON for our files and results: nlohmann's type with strict reading (no duplicate keys, no trailing text) and errors that
// name the file and the place.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ws {

using Json = nlohmann::ordered_json;

/// Throws ws::Error "NAME: line L, column C: ...". Refuses duplicate keys, which JSON leaves open, and nesting above 64.
Json parse_json(std::string_view text, const std::string& name);
/// `object[key]` of type T, or an Error that names `where`, the key and what was expected.
const Json& json_at(const Json& object, const std::string& key, const std::string& where);
template <class T>
T json_get(const Json& object, const std::string& key, const std::string& where);
template <>
std::string json_get<std::string>(const Json& object, const std::string& key, const std::string& where);
template <>
bool json_get<bool>(const Json& object, const std::string& key, const std::string& where);
template <>
int64_t json_get<int64_t>(const Json& object, const std::string& key, const std::string& where);
template <>
double json_get<double>(const Json& object, const std::string& key, const std::string& where);
template <class T>
T json_get_or(const Json& object, const std::string& key, T otherwise, const std::string& where) {
  if (!object.is_object() || !object.contains(key) || object.at(key).is_null()) return otherwise;
  return json_get<T>(object, key, where);
}

/// A double as JSON: NaN and infinities, which JSON lacks, become null.
Json json_number(double value);

}  // namespace ws
