#include "ir/lexer.h"

#include "ir/text.h"
#include "support/error.h"

namespace ws {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Token Lexer::take() {
  Token taken = std::move(token_);
  advance();
  return taken;
}

bool Lexer::accept(std::string_view text) {
  const bool matches = (token_.kind == Token::Kind::punctuation || token_.kind == Token::Kind::word) && token_.text == text;
  if (matches) advance();
  return matches;
}

void Lexer::expect(std::string_view text) {
  if (!accept(text)) fail_expected(fmt::format("'{}'", text));
}

void Lexer::fail_at(const Token& at, const std::string& message) const {
  fail("{}:{}:{}: {}", file_name_, at.line, at.column, message);
}

void Lexer::fail_expected(std::string_view what) const {
  constexpr size_t kShown = 40;  // of a long token, so that the message stays one readable line
  if (token_.kind == Token::Kind::end) fail_here(fmt::format("expected {}, found the end of the text", what));
  const std::string_view sign = token_.kind == Token::Kind::value ? "%" : "";
  fail_here(fmt::format("expected {}, found '{}{}{}'", what, sign,
                        quoted(token_.text.substr(0, kShown)).substr(1, std::min(token_.text.size(), kShown)),
                        token_.text.size() > kShown ? "..." : ""));
}

void Lexer::skip_blanks() {
  for (; position_ < text_.size(); ++position_) {
    const char c = text_[position_];
    if (c == '#') {  // a comment, to the end of the line
      while (position_ < text_.size() && text_[position_] != '\n') ++position_;
      if (position_ == text_.size()) return;
    }
    if (at(position_) == '\n') {
      ++line_;
      line_start_ = position_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

void Lexer::advance() {
  skip_blanks();
  token_ = Token{};
  token_.line = line_;
  token_.column = static_cast<int>(position_ - line_start_) + 1;
  if (position_ == text_.size()) return;
  const size_t begin = position_;
  const char c = text_[position_];
  if (c == '"') return read_string();
  if (is_digit(c) || (c == '-' && (is_digit(at(begin + 1)) || at(begin + 1) == 'i'))) return read_number();
  if (c == '%') {
    ++position_;
    while (position_ < text_.size() && is_word_char(text_[position_])) ++position_;
    token_.kind = Token::Kind::value;
    token_.text = text_.substr(begin + 1, position_ - begin - 1);
    if (token_.text.empty()) fail_here("expected the name of a value after '%'");
  } else if (is_word_char(c)) {
    while (position_ < text_.size() && is_word_char(text_[position_])) ++position_;
    token_.kind = Token::Kind::word;
    token_.text = text_.substr(begin, position_ - begin);
  } else if (std::string_view("(){}[],:=@").find(c) != std::string_view::npos) {
    ++position_;
    token_.kind = Token::Kind::punctuation;
    token_.text = text_.substr(begin, 1);
  } else {
    fail_here(fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(c)));
  }
}

void Lexer::read_string() {
  const size_t begin = position_++;
  token_.kind = Token::Kind::string;
  for (;; ++position_) {
    if (position_ >= text_.size() || text_[position_] == '\n') fail_here("this string has no closing '\"' on its line");
    const char c = text_[position_];
    if (c == '"') break;
    if (c != '\\') {
      token_.string += c;
      continue;
    }
    const char escape = at(++position_);
    if (escape == '"' || escape == '\\')
      token_.string += escape;
    else if (escape == 'n')
      token_.string += '\n';
    else if (escape == 't')
      token_.string += '\t';
    else if (escape == 'x' && hex_digit(at(position_ + 1)) >= 0 && hex_digit(at(position_ + 2)) >= 0) {
      token_.string += static_cast<char>(hex_digit(at(position_ + 1)) * 16 + hex_digit(at(position_ + 2)));
      position_ += 2;
    } else {
      fail_here("unknown escape in this string; known are \\\" \\\\ \\n \\t \\xHH");
    }
  }
  ++position_;
  token_.text = text_.substr(begin, position_ - begin);
}

// Takes the longest run that a number may be made of; the parser converts it and judges. A digit may also begin a word
// (a path such as 0.weight), so letters are taken along.
void Lexer::read_number() {
  const size_t begin = position_++;
  bool only_digits = true;
  for (; position_ < text_.size(); ++position_) {
    const char c = text_[position_];
    const bool exponent_sign = c == '+' && (text_[position_ - 1] == 'e' || text_[position_ - 1] == 'E');
    if (!is_word_char(c) && !exponent_sign) break;
    only_digits &= is_digit(c);
  }
  token_.kind = only_digits ? Token::Kind::integer : Token::Kind::number;
  token_.text = text_.substr(begin, position_ - begin);
}

}  // namespace ws
