#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <set>

#include "support/error.h"
#include "support/json.h"

namespace ws {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadata = "__metadata__";

struct Parts {
  std::string_view header;  // without its padding
  Bytes data;
};

// Header and data, checked against the file's size.
Parts split(const MappedFile& file) {
  std::string_view all = file.text();
  if (all.size() < kLengthBytes) fail("{}: {} bytes are too few for a safetensors file", file.path(), all.size());
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(all[i]);
  if (length > kMaxHeaderBytes)
    fail("{}: not a safetensors file: its header would be {} bytes long, the limit is {}", file.path(), length, kMaxHeaderBytes);
  if (length > all.size() - kLengthBytes)
    fail("{}: cut short: the header needs {} bytes, {} are left", file.path(), length, all.size() - kLengthBytes);
  std::string_view text = all.substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{') fail("{}: not a safetensors file: the header does not begin with '{{'", file.path());
  text = text.substr(0, text.find_last_not_of(' ') + 1);  // padding is spaces only
  if (text.back() != '}') fail("{}: the header must end with '}}', padded by spaces only", file.path());
  return {text, file.bytes().subspan(kLengthBytes + length)};
}

int64_t whole_number(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    fail("{} must hold whole numbers that are not negative, found {}", where, value.dump());
  return value.get<int64_t>();
}

struct Placed {
  SafetensorsEntry entry;
  int64_t begin, end;
};

Placed read_entry(const std::string& file, const std::string& name, const Json& value) {
  std::string where = fmt::format("{}: tensor \"{}\"", file, name);
  if (!value.is_object()) fail("{} must be an object with dtype, shape and data_offsets", where);
  for (const auto& [key, ignored] : value.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets") fail("{}: unknown key \"{}\"", where, key);
  Placed result;
  result.entry.name = name;
  result.entry.dtype = json_get<std::string>(value, "dtype", where);
  int64_t bytes = safetensors_element_bytes(result.entry.dtype);
  if (bytes == 0) fail("{}: unknown dtype \"{}\"", where, result.entry.dtype);
  const Json& shape = json_at(value, "shape", where);
  if (!shape.is_array()) fail("{}: shape must be a list", where);
  for (const Json& dim : shape) {
    int64_t d = whole_number(dim, where + ": shape");
    result.entry.shape.push_back(d);
    if (__builtin_mul_overflow(bytes, d, &bytes)) fail("{}: the shape {} is too large", where, shape.dump());
  }
  const Json& offsets = json_at(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) fail("{}: data_offsets must be a list of two numbers", where);
  result.begin = whole_number(offsets[0], where + ": data_offsets");
  result.end = whole_number(offsets[1], where + ": data_offsets");
  if (result.end < result.begin || result.end - result.begin != bytes)
    fail("{}: {} of shape {} takes {} bytes, but data_offsets are {}", where, result.entry.dtype, shape.dump(), bytes,
         offsets.dump());
  return result;
}

}  // namespace

int64_t safetensors_element_bytes(const std::string& dtype) {
  static constexpr std::array<std::pair<std::string_view, int>, 15> kSizes = {{{"F64", 8},
                                                                               {"F32", 4},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"I64", 8},
                                                                               {"I32", 4},
                                                                               {"I16", 2},
                                                                               {"I8", 1},
                                                                               {"U64", 8},
                                                                               {"U32", 4},
                                                                               {"U16", 2},
                                                                               {"U8", 1},
                                                                               {"BOOL", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2", 1}}};
  for (const auto& [word, bytes] : kSizes)
    if (word == dtype) return bytes;
  return 0;
}

Safetensors::Safetensors(const std::string& path) : file_(path) {
  auto [text, data] = split(file_);
  Json header = parse_json(text, path + ": header");
  std::vector<Placed> placed;
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadata) {
      placed.push_back(read_entry(path, name, value));
      continue;
    }
    if (!value.is_object()) fail("{}: {} must be an object of texts", path, kMetadata);
    for (const auto& [key, word] : value.items()) {
      if (!word.is_string()) fail("{}: {}: the value of \"{}\" must be text, found {}", path, kMetadata, key, word.dump());
      metadata_.emplace_back(key, word.get<std::string>());
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t at = 0;
  for (Placed& p : placed) {
    if (p.begin != at)
      fail("{}: tensor \"{}\" begins at byte {} of the data, not at {}: gaps and overlaps are not allowed", path, p.entry.name,
           p.begin, at);
    if (static_cast<uint64_t>(p.end) > data.size())
      fail("{}: cut short: tensor \"{}\" ends at byte {} of the data, which has {}", path, p.entry.name, p.end, data.size());
    p.entry.bytes = data.subspan(static_cast<size_t>(p.begin), static_cast<size_t>(p.end - p.begin));
    at = p.end;
    entries_.push_back(std::move(p.entry));
  }
  if (static_cast<uint64_t>(at) != data.size())
    fail("{}: {} bytes after the last tensor belong to none", path, data.size() - static_cast<uint64_t>(at));
}

const SafetensorsEntry* Safetensors::find(const std::string& name) const {
  for (const SafetensorsEntry& entry : entries_)
    if (entry.name == name) return &entry;
  return nullptr;
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<const SafetensorsEntry*> order;
  std::set<std::string> names;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == kMetadata) fail("cannot write {}: no tensor may be named {}", path, kMetadata);
    if (!names.insert(entry.name).second) fail("cannot write {}: the name \"{}\" occurs twice", path, entry.name);
    order.push_back(&entry);
  }
  std::stable_sort(order.begin(), order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return safetensors_element_bytes(a->dtype) > safetensors_element_bytes(b->dtype);
  });
  Json header = Json::object();
  if (!metadata.empty()) {
    Json& into = header[std::string(kMetadata)] = Json::object();
    for (const auto& [key, value] : metadata) into[key] = value;
  }
  int64_t at = 0;
  for (const SafetensorsEntry* entry : order) {
    int64_t end = at + static_cast<int64_t>(entry->bytes.size());
    header[entry->name] = {{"dtype", entry->dtype}, {"shape", entry->shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    fail("cannot write {}: a name or a text of the metadata is not UTF-8", path);
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::array<char, kLengthBytes> length;
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 255);
  AtomicFile file(path);
  file.write(std::string_view(length.data(), length.size()));
  file.write(text);
  for (const SafetensorsEntry* entry : order) file.write(entry->bytes);
  file.commit();
}

}  // namespace ws
