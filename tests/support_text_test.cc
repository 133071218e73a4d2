// Notes, progress lines, traces, JSON: what people and tools read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>

#include "support/error.h"
#include "support/interrupt.h"
#include "support/json.h"
#include "support/log.h"
#include "support/printable.h"
#include "support/progress.h"
#include "support/spelling.h"
#include "support/trace.h"

namespace ws {
namespace {

TEST(Log, PrintsFromItsLevelOn) {
  std::vector<std::string> seen;
  set_note_sink([&](std::string_view text) { seen.emplace_back(text); });
  {
    FlagScope scope("debug", "2");
    WS_LOG(2, "two {}", 2);
    WS_LOG(3, "three");
    note("always");
  }
  set_note_sink({});
  EXPECT_THAT(seen, testing::ElementsAre("two 2", "always"));
}

TEST(Printable, IsOneShortLineWhateverTheBytes) {
  EXPECT_EQ(printable("h\xc3\xb6he, 'x'"), "h\xc3\xb6he, 'x'");
  EXPECT_EQ(printable(std::string_view("a\0\n\x1b\x7f", 5)), "a\\x00\\x0a\\x1b\\x7f");
  EXPECT_EQ(printable("\xff\xc3("), "\\xff\\xc3(");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(printable("abc\xc3\xb6", 4), "abc..");  // no character is cut in two
  EXPECT_EQ(printable("abcd", 4), "abcd");
}

TEST(Spelling, OnlyWhatIsNearIsMeant) {
  EXPECT_EQ(num_slips("", "abc"), 3);
  EXPECT_EQ(num_slips("width", "widht"), 1);
  EXPECT_EQ(num_slips("kitten", "sitting"), 3);
  const std::vector<std::string> names = {"lr", "steps", "width", "threads", "blocks.0.weight"};
  EXPECT_EQ(spelling_hint("widht", names), " (is width meant?)");
  EXPECT_EQ(spelling_hint("thread", names, "--"), " (is --threads meant?)");
  EXPECT_EQ(spelling_hint("block.0.weights", names), " (is blocks.0.weight meant?)");
  for (const char* far : {"", "zz", "ls", "depth", "heads", "frobnicate"}) EXPECT_EQ(spelling_hint(far, names), "") << far;
  EXPECT_EQ(spelling_hint("width", {}), "");
}

TEST(Progress, LineHasRateTimeLeftAndLoss) {
  EXPECT_EQ(Progress::line("train", 50, 200, 10, 1.23456, "tokens", 1000, false),
            "train 50/200  5.00 k tokens/s  0:30 left  loss 1.2346");
  EXPECT_EQ(Progress::line("train", 12, 24, 0, NAN, "", 1, true), "train [============            ] 12/24");
  EXPECT_EQ(Progress::line("train", 24, 24, 2, NAN, "", 1, false), "train 24/24  12 steps/s");
}

TEST(Progress, SlowWorkIsNotedOnce) {
  std::vector<std::string> seen;
  set_note_sink([&](std::string_view text) { seen.emplace_back(text); });
  { SlowNote quick("quick", std::chrono::minutes(10)); }
  {
    SlowNote slow("drawing 3 samples", std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  set_note_sink({});
  EXPECT_THAT(seen, testing::ElementsAre("drawing 3 samples: this takes a while"));
}

TEST(Progress, HumanNumbers) {
  EXPECT_EQ(human(1234567), "1.23 M");
  EXPECT_EQ(human(99960), "100 k");
  EXPECT_EQ(human(255278), "255 k");
  EXPECT_EQ(human(0.29), "0.29");
  EXPECT_EQ(human(7.65e11), "765 G");
  EXPECT_EQ(human_time(75.2), "1:15");
  EXPECT_EQ(human_time(8000), "2:13:20");
}

TEST(Trace, WritesEventsThatParse) {
  std::string path = testing::TempDir() + "/trace.json";
  FlagScope scope("trace", path);
  { TraceSpan span("compile \"step\"", "compile"); }
  trace_event("kernel", "run", 1000, 3500, "\"flops\": 12");
  flush_trace();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  Json json = parse_json(text.str(), path);
  const Json& last = json["traceEvents"].back();
  EXPECT_EQ(last["name"], "kernel");
  EXPECT_DOUBLE_EQ(last["ts"], 1.0);
  EXPECT_DOUBLE_EQ(last["dur"], 2.5);
  EXPECT_EQ(last["args"]["flops"], 12);
}

TEST(Trace, EachRankHasAFile) {
  const auto of_rank_1 = [](const char* flag) {
    FlagScope scope("trace", flag);
    EXPECT_EQ(trace_file_of(0), flag);
    return trace_file_of(1);
  };
  EXPECT_EQ(of_rank_1("a.b/time.json"), "a.b/time.rank1.json");
  EXPECT_EQ(of_rank_1("time"), "time.rank1");
  EXPECT_EQ(of_rank_1("/dev/null"), "/dev/null");
}

TEST(Trace, UnwritableFileIsAnError) {
  FlagScope scope("trace", "/dev/null/folder/trace.json");
  EXPECT_THROW(flush_trace(), Error);
}

TEST(Interrupt, FirstSignalSetsTheFlag) {
  InterruptGuard guard;
  EXPECT_FALSE(interrupted());
  EXPECT_EQ(interrupt_signal(), 0);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::raise(signal);
    EXPECT_TRUE(interrupted());
    EXPECT_EQ(interrupt_signal(), signal);
  }
}

int signals_taken = 0;

TEST(Interrupt, ScopesNestAndLeaveAnIgnoredHangUpAlone) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    InterruptGuard outer;
    std::raise(SIGHUP);
    EXPECT_FALSE(interrupted());
    {
      SignalScope inner(std::initializer_list<int>{SIGTERM, SIGHUP}, [](int) { ++signals_taken; });
      std::raise(SIGTERM);
      std::raise(SIGHUP);
    }
    EXPECT_EQ(signals_taken, 1);
    EXPECT_FALSE(interrupted());
    std::raise(SIGTERM);
    EXPECT_EQ(interrupt_signal(), SIGTERM);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

std::string parse_error_of(const std::string& text) {
  try {
    parse_json(text, "f.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(JsonText, ErrorsNameFileAndPlace) {
  EXPECT_THAT(parse_error_of("{\n \"a\": 1,\n \"b\": }"), testing::StartsWith("f.json: line 3, column 7: "));
  EXPECT_THAT(parse_error_of(R"({"a": 1, "a": 2})"), testing::HasSubstr("the key \"a\" occurs twice"));
  EXPECT_EQ(parse_error_of(R"({"a": {"x": 1}, "b": {"x": 2}})"), "");
  EXPECT_THAT(parse_error_of("[1] 2"), testing::StartsWith("f.json: line 1, column 5"));
  EXPECT_THAT(parse_error_of(""), testing::StartsWith("f.json: line 1"));
  EXPECT_THAT(parse_error_of(std::string(100000, '[')), testing::HasSubstr("nested deeper than 64"));
  EXPECT_THAT(parse_error_of("[1e999]"), testing::HasSubstr("f.json: number overflow"));
  EXPECT_THAT(parse_error_of("\"\xff\""), testing::StartsWith("f.json: line 1"));
}

TEST(JsonText, TypedGettersSayWhatWasExpected) {
  Json json = parse_json(R"({"n": 3, "x": 1.5, "s": "t", "none": null, "big": 18446744073709551615})", "f.json");
  EXPECT_EQ(json_get<int64_t>(json, "n", "f.json"), 3);
  EXPECT_EQ(json_get<double>(json, "n", "f.json"), 3.0);
  EXPECT_EQ(json_get_or<int64_t>(json, "none", 7, "f.json"), 7);
  EXPECT_THROW(json_get<int64_t>(json, "x", "f.json"), Error);
  EXPECT_THROW(json_get<int64_t>(json, "big", "f.json"), Error);
  EXPECT_THROW(json_get<std::string>(json, "n", "f.json"), Error);
  EXPECT_THROW(json_get<bool>(json, "missing", "f.json"), Error);
  EXPECT_TRUE(json_number(NAN).is_null());
}

}  // namespace
}  // namespace ws
