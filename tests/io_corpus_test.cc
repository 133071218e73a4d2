#include "io/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "io/file.h"
#include "io/metrics.h"
#include "support/error.h"
#include "support/flags.h"

namespace ws {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Letters, RunsOfOthersBecomeOneSpace) {
  EXPECT_EQ(letters_only("The Time-Machine,\n\n  by H. G. Wells [1898]"), "the time machine by h g wells ");
  EXPECT_EQ(letters_only("caf\xc3\xa9 ol\xc3\xa9"), "caf ol ");
  EXPECT_EQ(letters_only(""), "");
}

TEST(Vocabulary, LettersAreTheBooks28) {
  Vocabulary v = Vocabulary::letters("Abba, cab!");  // a3 b3 space2 c1, a seen first
  ASSERT_EQ(v.size(), 28);
  EXPECT_THAT(std::vector<std::string>(v.symbols().begin(), v.symbols().begin() + 7),
              ElementsAre("", "a", "b", " ", "c", "d", "e"));
  EXPECT_THAT(v.encode("ABC abz9"), ElementsAre(1, 2, 4, 3, 1, 2, 27, 3));
  EXPECT_THAT(v.unknown_in("ABC, 9 \xc3\xa9"), ElementsAre());  // by rule a space
  EXPECT_EQ(v.decode(std::vector<int32_t>{1, 3, 0}), "a \xef\xbf\xbd");
  EXPECT_THROW(v.decode(std::vector<int32_t>{28}), Error);
}

TEST(Vocabulary, Utf8TakesCodePoints) {
  Vocabulary v = Vocabulary::utf8(
      "\xc3\xa9"
      "a\xf0\x9f\x98\x80\xc3\xa9");
  EXPECT_EQ(v.size(), 4);
  EXPECT_EQ(v.symbols()[1], "\xc3\xa9");
  EXPECT_THAT(v.encode("a\xc3\xa9z"), ElementsAre(2, 1, 0));
  EXPECT_THAT(v.unknown_in("za\xc3\xa9\nz"), ElementsAre("z", "\n"));
  EXPECT_EQ(v.decode(v.encode("\xf0\x9f\x98\x80"
                              "a")),
            "\xf0\x9f\x98\x80"
            "a");
  Vocabulary again = Vocabulary::restore("utf8", {v.symbols().begin() + 1, v.symbols().end()});
  EXPECT_EQ(again.symbols(), v.symbols());
  EXPECT_THROW(Vocabulary::restore("words", {}), Error);
  EXPECT_THROW(Vocabulary::restore("utf8", {"a", "a"}), Error);
}

TEST(Corpus, NinetyPercentTrains) {
  std::string text(1000, 'x');
  Corpus c = make_corpus("t", text, 8, Vocabulary::Kind::kLetters);
  EXPECT_EQ(c.train().size(), 900u);
  EXPECT_EQ(c.validation().size(), 100u);
}

TEST(Corpus, ShortAndBinaryTextsAreErrors) {
  auto make = [](std::string text, int64_t block) {
    return error_of([&] { make_corpus("t.txt", text, block, Vocabulary::Kind::kUtf8); });
  };
  EXPECT_EQ(make("abc", 3), "t.txt is too short: it has 3 symbols, a window of block 3 needs 4");
  EXPECT_EQ(make("abcd", 3), "no error");
  EXPECT_EQ(error_of([] { make_corpus("t.txt", "1234 5678", 3, Vocabulary::Kind::kLetters); }),
            "t.txt is too short: it has 1 symbols, a window of block 3 needs 4; the vocabulary utf8 also keeps what is no letter "
            "of a to z");
  EXPECT_THAT(make("", 1), HasSubstr("has 0 symbols"));
  EXPECT_EQ(make(std::string("ab\0cd", 5), 3), "t.txt is not a text in UTF-8: byte 2 is 0x00");
  for (const char* bad : {"abc\xff"
                          "def",
                          "abcd\xc3",
                          "\xc0\xaf"
                          "abc",
                          "\xed\xa0\x80"
                          "abc",
                          "\xf5\x80\x80\x80"
                          "abc",
                          "\xe0\x80\x80"
                          "abcd"})
    EXPECT_THAT(make(bad, 3), HasSubstr("is not a text in UTF-8"));
  EXPECT_THAT(error_of([] { load_corpus("/nonexistent.txt", 3, Vocabulary::Kind::kUtf8); }),
              HasSubstr("cannot read /nonexistent.txt"));
  Corpus exact = make_corpus("t", "abcd", 3, Vocabulary::Kind::kUtf8);  // one window, all of it trains
  EXPECT_EQ(exact.train().size(), 4u);
}

// C27.
TEST(TokenWindows, NeedBlockPlusOneTokens) {
  std::vector<int32_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  TokenWindows ten(tokens, 3);
  EXPECT_EQ(ten.count(), 7);
  std::vector<int32_t> x(6), y(6);
  std::vector<int64_t> starts = {6, 0};
  ten.gather(starts, x, y);
  EXPECT_THAT(x, ElementsAre(6, 7, 8, 0, 1, 2));
  EXPECT_THAT(y, ElementsAre(7, 8, 9, 1, 2, 3));
  starts = {7, 0};
  EXPECT_THROW(ten.gather(starts, x, y), InternalError);
  EXPECT_EQ(TokenWindows(std::span(tokens).first(4), 3).count(), 1);
  EXPECT_EQ(error_of([&] { TokenWindows(std::span(tokens).first(3), 3); }),
            "3 tokens are too few for a window of block 3, which needs 4");
  EXPECT_THROW(TokenWindows(tokens, 0), Error);
}

TEST(BuiltInText, IsTheWholeTextWithoutLabelsAndIsKept) {
  if (std::system("command -v bible >/dev/null") != 0) GTEST_SKIP() << "bible-kjv is not installed";
  std::string folder = testing::TempDir() + "/corpus-cache";
  std::filesystem::remove_all(folder);
  FlagScope scope("cache_dir", folder);
  std::string text = built_in_text();
  EXPECT_EQ(text.find("In the beginning God created the heaven and the earth.\nAnd the earth was without form"), 0u);
  EXPECT_GT(text.size(), 4'000'000u);
  EXPECT_LT(text.size(), 4'200'000u);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 31102);
  EXPECT_EQ(text.find_first_of("0123456789"), std::string::npos);
  EXPECT_EQ(MappedFile(folder + "/corpora/kjv.txt").text(), text);
  EXPECT_EQ(built_in_text(), text);
  write_file(folder + "/corpora/kjv.txt", "cut");  // a damaged copy is made anew
  EXPECT_EQ(built_in_text(), text);
  EXPECT_EQ(Vocabulary::letters(text).size(), 28);
  EXPECT_EQ(Vocabulary::letters(text).symbols()[1], " ");
}

TEST(Metrics, ContinuesWhereTheCheckpointWas) {
  std::string path = testing::TempDir() + "/metrics.jsonl";
  {
    MetricsWriter w(path);
    for (int step = 1; step <= 3; ++step) w.write({{"step", step}, {"loss", 0.5}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 4, \"lo";  // cut
  { MetricsWriter(path, 2).write({{"step", 3}, {"loss", json_number(0.0 / 0.0)}}); }
  EXPECT_EQ(MappedFile(path).text(), "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.5}\n{\"step\":3,\"loss\":null}\n");
  EXPECT_THROW(MetricsWriter("/dev/null/m.jsonl"), Error);
  EXPECT_THROW(MetricsWriter("/dev/null/m.jsonl", 1), Error);
}

}  // namespace
}  // namespace ws
