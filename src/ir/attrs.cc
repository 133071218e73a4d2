#include "ir/attrs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/text.h"
#include "support/error.h"

namespace ws {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + '"';
}

std::string bare_or_quoted(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_word_char) ? std::string(text) : quoted(text);
}

std::string number_text(double value) {
  if (std::isnan(value)) {
    const auto bits = std::bit_cast<uint64_t>(value);
    return bits == kPlainNan ? "nan" : fmt::format("nan({:#018x})", bits);
  }
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Attrs::Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items) {
  for (const auto& [name, value] : items) set(name, value);
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto at =
      std::lower_bound(items_.begin(), items_.end(), name, [](const auto& item, std::string_view n) { return item.first < n; });
  if (at != items_.end() && at->first == name)
    at->second = std::move(value);
  else
    items_.emplace(at, std::string(name), std::move(value));
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& item : items_)  // a handful: a scan beats a search
    if (item.first == name) return &item.second;
  return nullptr;
}

namespace {

template <class T>
const T& get(const Attrs& attrs, std::string_view name, std::string_view kind) {
  const AttrValue* value = attrs.find(name);
  WS_ASSERT(value, "no attribute '{}' in {}", name, attrs.str());
  const T* typed = std::get_if<T>(value);
  WS_ASSERT(typed, "attribute '{}' of {} is not of kind {}", name, attrs.str(), kind);
  return *typed;
}

void mix(size_t& seed, size_t h) { seed ^= h + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2); }

bool same(const AttrValue& a, const AttrValue& b) {
  const double* x = std::get_if<double>(&a);
  const double* y = std::get_if<double>(&b);
  if (x && y) return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
  return a == b;
}

struct Hash {
  size_t operator()(bool v) const { return v; }
  size_t operator()(int64_t v) const { return std::hash<int64_t>()(v); }
  size_t operator()(double v) const { return std::hash<uint64_t>()(std::bit_cast<uint64_t>(v)); }
  size_t operator()(const std::string& v) const { return std::hash<std::string>()(v); }
  size_t operator()(DType v) const { return static_cast<size_t>(v); }
  size_t operator()(const std::vector<int64_t>& v) const {
    size_t h = v.size();
    for (int64_t x : v) mix(h, std::hash<int64_t>()(x));
    return h;
  }
};

struct Text {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return number_text(v); }
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(DType v) const { return std::string(name_of(v)); }
  std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ", ")); }
};

}  // namespace

bool Attrs::flag(std::string_view name) const { return get<bool>(*this, name, "flag"); }
int64_t Attrs::integer(std::string_view name) const { return get<int64_t>(*this, name, "integer"); }
double Attrs::number(std::string_view name) const { return get<double>(*this, name, "number"); }
const std::string& Attrs::text(std::string_view name) const { return get<std::string>(*this, name, "text"); }
const std::vector<int64_t>& Attrs::integers(std::string_view name) const {
  return get<std::vector<int64_t>>(*this, name, "integers");
}
DType Attrs::dtype(std::string_view name) const { return get<DType>(*this, name, "dtype"); }

bool Attrs::operator==(const Attrs& o) const {
  return std::equal(items_.begin(), items_.end(), o.items_.begin(), o.items_.end(),
                    [](const auto& a, const auto& b) { return a.first == b.first && same(a.second, b.second); });
}

size_t Attrs::hash() const {
  size_t h = items_.size();
  for (const auto& [name, value] : items_) {
    mix(h, std::hash<std::string>()(name));
    mix(h, value.index());
    mix(h, std::visit(Hash{}, value));
  }
  return h;
}

std::string Attrs::str() const {
  if (items_.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : items_) {
    if (out.size() > 1) out += ", ";
    out += name + " = " + std::visit(Text{}, value);
  }
  return out + "}";
}

}  // namespace ws
