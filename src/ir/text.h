// Spelling of names and numbers in the IR's text form, shared by the printer and the attributes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ws {

/// "a\"b" with quotes; quotes, backslashes and control bytes are escaped, UTF-8 is left alone.
std::string quoted(std::string_view text);
/// As it is where it needs no quotes (letters, digits, '.', '_', '/', '-'; not empty), else quoted.
std::string bare_or_quoted(std::string_view text);
/// Round-trips every bit and never reads as an integer: "1.0", "-0.0", "inf", "nan", "nan(0x7ff8000000000001)".
std::string number_text(double value);

inline bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' ||
         c == '-';
}
constexpr uint64_t kPlainNan = 0x7ff8000000000000u;

}  // namespace ws
