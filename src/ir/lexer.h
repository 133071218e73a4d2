// Words of the IR's text form, one at a time, with their place for messages. Holds views of the text: copies nothing.
#pragma once
#include <string>
#include <string_view>

namespace ws {

struct Token {
  enum class Kind : unsigned char { end, word, value, string, integer, number, punctuation };
  Kind kind = Kind::end;
  std::string_view text;  // as written; of a value without its '%'
  std::string string;     // of a string, unescaped
  int line = 1, column = 1;
};

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file_name) : text_(text), file_name_(file_name) { advance(); }
  const Token& peek() const { return token_; }
  Token take();
  /// Takes the token if it is this punctuation or word.
  bool accept(std::string_view text);
  void expect(std::string_view text);
  /// Throws ws::Error "FILE:LINE:COLUMN: message".
  [[noreturn]] void fail_here(const std::string& message) const { fail_at(token_, message); }
  [[noreturn]] void fail_at(const Token& at, const std::string& message) const;
  /// "expected WHAT, found 'TEXT'"
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  void advance();
  void skip_blanks();
  void read_string();
  void read_number();
  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  std::string_view text_, file_name_;
  size_t position_ = 0, line_start_ = 0;
  int line_ = 1;
  Token token_;
};

}  // namespace ws
