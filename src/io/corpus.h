// Texts as token sequences: vocabularies of characters, the split into training and validation, and windows of a sequence
// as batches. The text is staged once; a window is copied only into its batch.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ws {

/// Symbol 0 is the unknown one.
class Vocabulary {
 public:
  enum class Kind { kLetters, kUtf8 };
  /// The book's 28 symbols of `text`: unknown, then the 26 letters and space by falling frequency (first seen first where equal;
  /// those that do not occur last). Runs of anything else than A-Z and a-z become one space; lower case.
  static Vocabulary letters(std::string_view text);
  /// Every code point of `text`, by falling frequency.
  static Vocabulary utf8(std::string_view text);
  /// As kept in a checkpoint: "letters" or "utf8", and the symbols without the unknown one.
  static Vocabulary restore(const std::string& kind, const std::vector<std::string>& symbols);

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  std::vector<int32_t> encode(std::string_view text) const;
  /// The symbols of `text` that encode() gives as unknown, each once.
  std::vector<std::string> unknown_in(std::string_view text) const;
  /// Unknown symbols read as U+FFFD.
  std::string decode(std::span<const int32_t> tokens) const;
  const std::vector<std::string>& symbols() const { return symbols_; }
  const char* kind_name() const { return kind_ == Kind::kLetters ? "letters" : "utf8"; }

 private:
  Vocabulary(Kind kind, std::vector<std::string> symbols);
  Kind kind_;
  std::vector<std::string> symbols_;  // by token; [0] is ""
  std::unordered_map<std::string, int32_t> tokens_;
};

/// Every run of characters other than A-Z and a-z as one space, the letters in lower case.
std::string letters_only(std::string_view text);

/// An Error names `name` and the byte where `text` is not UTF-8 or holds a NUL.
void check_is_text(std::string_view text, const std::string& name);

struct Corpus {
  std::string name;
  Vocabulary vocabulary;
  std::vector<int32_t> tokens;
  size_t num_train = 0;  // the first num_train tokens train, the rest validates
  std::span<const int32_t> train() const { return std::span(tokens).first(num_train); }
  std::span<const int32_t> validation() const { return std::span(tokens).subspan(num_train); }
};

/// Checks that `text` is UTF-8 without NUL (an Error names `name` and the byte) and holds at least block + 1 symbols (an Error
/// names both numbers). 90 % trains, but at least one window.
Corpus make_corpus(std::string name, std::string_view text, int64_t block, Vocabulary::Kind kind);
/// The same with the vocabulary of a checkpoint.
Corpus make_corpus(std::string name, std::string_view text, int64_t block, Vocabulary vocabulary);
/// Reads a file.
Corpus load_corpus(const std::string& path, int64_t block, Vocabulary::Kind kind);

/// The King James Bible of Debian's package bible-kjv, verse labels stripped, one verse a line; kept in the cache folder. An Error
/// says which package is missing.
std::string built_in_text();

/// Windows of `block` tokens and, one later, the tokens to predict: a window needs block + 1 tokens, so n tokens have n - block.
class TokenWindows {
 public:
  /// An Error names both numbers where there is no window.
  TokenWindows(std::span<const int32_t> tokens, int64_t block);
  int64_t count() const { return static_cast<int64_t>(tokens_.size()) - block_; }
  int64_t block() const { return block_; }
  /// x and y: [starts, block], row-major.
  void gather(std::span<const int64_t> starts, std::span<int32_t> x, std::span<int32_t> y) const;

 private:
  std::span<const int32_t> tokens_;
  int64_t block_;
};

}  // namespace ws
