#include "io/corpus.h"

#include <algorithm>

#include "io/file.h"
#include "support/error.h"

namespace ws {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Bytes of the code point at `text[at]`; 0 where it is not UTF-8 (overlong forms and surrogates included).
size_t code_point_bytes(std::string_view text, size_t at) {
  auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// Calls f(symbol) for each symbol of the text.
template <class F>
void each_symbol(std::string_view text, Vocabulary::Kind kind, F&& f) {
  for (size_t at = 0; at < text.size();) {
    size_t n = kind == Vocabulary::Kind::kLetters ? 1 : std::max<size_t>(code_point_bytes(text, at), 1);
    f(text.substr(at, n));
    at += n;
  }
}

// The symbols of `text` by falling frequency, first seen first where equal, then those of `also` that do not occur.
std::vector<std::string> by_frequency(std::string_view text, Vocabulary::Kind kind, const std::vector<std::string>& also) {
  std::unordered_map<std::string_view, size_t> position;
  std::vector<std::pair<std::string_view, int64_t>> counts;
  each_symbol(text, kind, [&](std::string_view symbol) {
    auto [at, is_new] = position.try_emplace(symbol, counts.size());
    if (is_new) counts.emplace_back(symbol, 0);
    ++counts[at->second].second;
  });
  for (const std::string& symbol : also)
    if (position.try_emplace(symbol, counts.size()).second) counts.emplace_back(symbol, 0);
  std::stable_sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> symbols = {""};
  for (const auto& [symbol, count] : counts) symbols.emplace_back(symbol);
  return symbols;
}

}  // namespace

void check_is_text(std::string_view text, const std::string& name) {
  for (size_t at = 0; at < text.size();) {
    size_t n = text[at] == '\0' ? 0 : code_point_bytes(text, at);
    if (n == 0) fail("{} is not a text in UTF-8: byte {} is 0x{:02x}", name, at, static_cast<unsigned char>(text[at]));
    at += n;
  }
}

std::string letters_only(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (is_letter(c))
      out += static_cast<char>(c | 0x20);
    else if (out.empty() || out.back() != ' ')
      out += ' ';
  }
  return out;
}

Vocabulary::Vocabulary(Kind kind, std::vector<std::string> symbols) : kind_(kind), symbols_(std::move(symbols)) {
  for (size_t i = 1; i < symbols_.size(); ++i)
    if (!tokens_.emplace(symbols_[i], static_cast<int32_t>(i)).second) fail("the vocabulary holds \"{}\" twice", symbols_[i]);
}

Vocabulary Vocabulary::letters(std::string_view text) {
  std::vector<std::string> all = {" "};
  for (char c = 'a'; c <= 'z'; ++c) all.emplace_back(1, c);
  return {Kind::kLetters, by_frequency(letters_only(text), Kind::kLetters, all)};
}

Vocabulary Vocabulary::utf8(std::string_view text) { return {Kind::kUtf8, by_frequency(text, Kind::kUtf8, {})}; }

Vocabulary Vocabulary::restore(const std::string& kind, const std::vector<std::string>& symbols) {
  if (kind != "letters" && kind != "utf8") fail("unknown kind of vocabulary '{}': it is letters or utf8", kind);
  std::vector<std::string> all = {""};
  all.insert(all.end(), symbols.begin(), symbols.end());
  return {kind == "letters" ? Kind::kLetters : Kind::kUtf8, std::move(all)};
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  std::string normal;
  if (kind_ == Kind::kLetters) text = normal = letters_only(text);
  std::vector<int32_t> out;
  out.reserve(text.size());
  each_symbol(text, kind_, [&](std::string_view symbol) {
    auto found = tokens_.find(std::string(symbol));
    out.push_back(found == tokens_.end() ? 0 : found->second);
  });
  return out;
}

std::vector<std::string> Vocabulary::unknown_in(std::string_view text) const {
  std::string normal;
  if (kind_ == Kind::kLetters) text = normal = letters_only(text);
  std::vector<std::string> unknown;
  each_symbol(text, kind_, [&](std::string_view view) {
    std::string symbol(view);
    if (!tokens_.contains(symbol) && std::find(unknown.begin(), unknown.end(), symbol) == unknown.end())
      unknown.push_back(std::move(symbol));
  });
  return unknown;
}

std::string Vocabulary::decode(std::span<const int32_t> tokens) const {
  std::string out;
  for (int32_t t : tokens) {
    if (t < 0 || t >= size()) fail("token {} is outside the vocabulary of {}", t, size());
    out += t == 0 ? std::string("\xef\xbf\xbd") : symbols_[static_cast<size_t>(t)];
  }
  return out;
}

Corpus make_corpus(std::string name, std::string_view text, int64_t block, Vocabulary::Kind kind) {
  check_is_text(text, name);
  return make_corpus(std::move(name), text, block,
                     kind == Vocabulary::Kind::kLetters ? Vocabulary::letters(text) : Vocabulary::utf8(text));
}

Corpus make_corpus(std::string name, std::string_view text, int64_t block, Vocabulary vocabulary) {
  check_is_text(text, name);
  Corpus corpus{std::move(name), std::move(vocabulary), {}, 0};
  corpus.tokens = corpus.vocabulary.encode(text);
  size_t n = corpus.tokens.size(), needed = static_cast<size_t>(block) + 1;
  if (n < needed)
    fail("{} is too short: it has {} symbols, a window of block {} needs {}{}", corpus.name, n, block, needed,
         text.size() >= needed ? "; the vocabulary utf8 also keeps what is no letter of a to z" : "");
  corpus.num_train = std::max(n * 9 / 10, needed);
  return corpus;
}

Corpus load_corpus(const std::string& path, int64_t block, Vocabulary::Kind kind) {
  MappedFile file(path);
  return make_corpus(path, file.text(), block, kind);
}

TokenWindows::TokenWindows(std::span<const int32_t> tokens, int64_t block) : tokens_(tokens), block_(block) {
  if (block < 1) fail("a window must hold at least one token, block is {}", block);
  if (count() < 1) fail("{} tokens are too few for a window of block {}, which needs {}", tokens.size(), block, block + 1);
}

void TokenWindows::gather(std::span<const int64_t> starts, std::span<int32_t> x, std::span<int32_t> y) const {
  auto block = static_cast<size_t>(block_);
  WS_ASSERT(x.size() == starts.size() * block && y.size() == x.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    WS_ASSERT(starts[i] >= 0 && starts[i] < count());
    auto window = tokens_.subspan(static_cast<size_t>(starts[i]), block + 1);
    std::copy(window.begin(), window.end() - 1, x.begin() + static_cast<std::ptrdiff_t>(i * block));
    std::copy(window.begin() + 1, window.end(), y.begin() + static_cast<std::ptrdiff_t>(i * block));
  }
}

}  // namespace ws
