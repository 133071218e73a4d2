// Broken text with the real ops: their shape rules meet any attribute and any shape, and must answer with ws::Error.
#include <gtest/gtest.h>

#include <random>

#include "ir/graph.h"
#include "support/error.h"

namespace ws {
namespace {

// A call of each op on inputs of random types, with random attributes of the right kinds, written as text.
std::string random_call(std::mt19937& random) {
  const auto one_of = [&](auto list) { return list[random() % std::size(list)]; };
  const auto dtype = [&] {
    return random() % 3 ? std::string("f32")
                        : std::string(one_of(std::vector<const char*>{"f32", "bf16", "f64", "i32", "u32", "bool"}));
  };
  const auto integer = [&]() -> int64_t {
    if (random() % 12 == 0)
      return one_of(std::vector<int64_t>{INT64_MIN, INT64_MAX, 1ll << 40, -(1ll << 40), 1ll << 62, INT32_MAX, INT32_MIN});
    return static_cast<int64_t>(random() % 6) - 1;
  };
  const auto integers = [&] {
    std::vector<int64_t> list(random() % 5);
    for (int64_t& x : list) x = integer();
    return fmt::format("[{}]", fmt::join(list, ", "));
  };
  const auto shape = [&] {
    std::vector<int64_t> dims(random() % 5);
    for (int64_t& d : dims) d = random() % 16 == 0 ? 1ll << 40 : random() % 3 ? 2 : static_cast<int64_t>(random() % 4);
    return fmt::format("[{}]", fmt::join(dims, ", "));
  };
  const auto ops = all_ops();
  const OpDef& op = *ops[random() % ops.size()];
  const int arity = op.arity >= 0 ? op.arity : 1 + static_cast<int>(random() % 3);
  std::string inputs, uses, results, types;
  const std::string common = dtype() + shape();
  for (int i = 0; i < std::max(1, arity); ++i)
    inputs += fmt::format("{}%{}: {}", i ? ", " : "", i, random() % 2 ? common : dtype() + shape());
  for (int i = 0; i < arity; ++i) uses += fmt::format("{}%{}", i ? ", " : "", i);
  for (int i = 0; i < op.num_results; ++i) {
    results += fmt::format("{}%r{}", i ? ", " : "", i);
    types += (i ? ", " : "") + common;
  }
  std::string attrs;
  for (const AttrSpec& spec : op.attrs) {
    std::string value;
    switch (spec.kind) {
      case AttrSpec::Kind::flag: value = random() % 2 ? "true" : "false"; break;
      case AttrSpec::Kind::integer: value = fmt::format("{}", integer()); break;
      case AttrSpec::Kind::number: value = one_of(std::vector<const char*>{"1", "-0.5", "nan", "inf", "1e300"}); break;
      case AttrSpec::Kind::text: value = "\"t\""; break;
      case AttrSpec::Kind::integers: value = integers(); break;
      case AttrSpec::Kind::dtype: value = dtype(); break;
    }
    attrs += fmt::format("{}{} = {}", attrs.empty() ? "" : ", ", spec.name, value);
  }
  return fmt::format("graph g({}) {{\n  {} = {} {} {{{}}} : {}\n  return %r0 \"y\"\n}}", inputs, results, op.name, uses, attrs,
                     types);
}

TEST(BrokenText, ShapeRulesAnswerWithErrors) {
  std::mt19937 random(11);
  int parsed = 0, wrong_type = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_call(random);
    SCOPED_TRACE(text);
    try {
      const Graph g = parse(text, "t.ir");
      verify(g);
      ASSERT_EQ(print(parse(print(g))), print(g));
      ++parsed;
    } catch (const Error& e) {
      ASSERT_EQ(std::string_view(e.what()).substr(0, 5), "t.ir:");
      ASSERT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << "one line";
      wrong_type += std::string_view(e.what()).find(" gives ") != std::string_view::npos;
    } catch (const std::exception& e) {
      FAIL() << e.what();
    }
  }
  EXPECT_GT(parsed, 700);
  EXPECT_GT(wrong_type, 700) << "the rules should be reached often";
}

}  // namespace
}  // namespace ws
