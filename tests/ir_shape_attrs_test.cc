#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/attrs.h"
#include "ir/text.h"
#include "wholestep/error.h"
#include "wholestep/shape.h"

namespace ws {
namespace {

constexpr int64_t kBig = int64_t{1} << 62;

TEST(Shape, Basics) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s.num_elements(), 24);
  EXPECT_EQ(s.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ(Shape().num_elements(), 1);
  const auto strides = dense_strides(s);
  EXPECT_EQ(strides[0], 12);
  EXPECT_EQ(strides[1], 4);
  EXPECT_EQ(strides[2], 1);
}

TEST(Shape, Limits) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_EQ((Shape{kBig}).num_elements(), kBig);
  EXPECT_THROW((Shape{kBig, 2}), Error);
  EXPECT_THROW((Shape{int64_t{1} << 32, int64_t{1} << 32}), Error);
  EXPECT_THROW((Shape{kBig, kBig, 0}), Error) << "num_elements() would overflow on the way to 0";
  EXPECT_EQ((Shape{kBig, 0, 1}).num_elements(), 0);
}

TEST(Shape, Broadcast) {
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {5, 1}), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2}), (Shape{2}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_THROW(broadcast_shapes({0}, {2}), Error);
  try {
    broadcast_shapes({2, 3}, {4});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("[2, 3]"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("[4]"), std::string::npos);
  }
}

TEST(Attrs, SortedTypedAndCompared) {
  const Attrs a{{"z", int64_t{1}}, {"a", true}, {"m", 2.0}}, b{{"a", true}, {"m", 2.0}, {"z", int64_t{1}}};
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(a.str(), "{a = true, m = 2.0, z = 1}");
  EXPECT_EQ(Attrs().str(), "");
  EXPECT_EQ(a.integer("z"), 1);
  EXPECT_THROW(a.integer("a"), InternalError);
  EXPECT_THROW(a.integer("nothing"), InternalError);
  Attrs c = a;
  c.set("z", int64_t{2});
  EXPECT_NE(a, c);
  EXPECT_EQ(c.integer("z"), 2);
  EXPECT_NE(Attrs({{"x", int64_t{1}}}), Attrs({{"x", 1.0}})) << "kinds differ";
  EXPECT_NE(Attrs({{"x", int64_t{1}}}), Attrs({{"y", int64_t{1}}}));
}

TEST(Attrs, DoublesByBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Attrs({{"x", nan}}), Attrs({{"x", nan}}));
  EXPECT_EQ(Attrs({{"x", nan}}).hash(), Attrs({{"x", nan}}).hash());
  EXPECT_NE(Attrs({{"x", 0.0}}), Attrs({{"x", -0.0}}));
}

TEST(Text, Spelling) {
  EXPECT_EQ(number_text(1), "1.0");
  EXPECT_EQ(number_text(-0.0), "-0.0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1e300), "1e+300");
  EXPECT_EQ(number_text(-HUGE_VAL), "-inf");
  EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(quoted("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\x01\"");
  EXPECT_EQ(bare_or_quoted("blocks.0/fc-1"), "blocks.0/fc-1");
  EXPECT_EQ(bare_or_quoted("a b"), "\"a b\"");
  EXPECT_EQ(bare_or_quoted(""), "\"\"");
}

}  // namespace
}  // namespace ws
