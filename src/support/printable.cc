#include "support/printable.h"

#include <fmt/core.h>

namespace ws {
namespace {

constexpr bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Length of the UTF-8 character that text begins with; 0 where it begins with none, or with a control character.
size_t character_at(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if (!is_continuation(text[i])) return 0;
  if (lead == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) return 0;  // U+0080 to U+009F steer terminals, too
  return length;
}

}  // namespace

std::string printable(std::string_view bytes, size_t most_bytes) {
  std::string result;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t length = character_at(bytes.substr(at));
    if (at + (length > 0 ? length : 1) > most_bytes) break;
    if (length > 0)
      result += bytes.substr(at, length);
    else
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[at]));
    at += length > 0 ? length : 1;
  }
  return at < bytes.size() ? result + ".." : result;
}

}  // namespace ws
