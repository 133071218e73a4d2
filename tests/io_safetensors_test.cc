#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "support/error.h"

namespace ws {
namespace {

namespace fs = std::filesystem;

std::string fresh_path(const std::string& name) {
  std::string path = testing::TempDir() + "/" + name;
  fs::remove_all(path);
  return path;
}

// A file with this header (its length in front) and data.
std::string file_of(const std::string& header, const std::string& data, int64_t claimed_length = -1) {
  std::string path = fresh_path("handmade.safetensors");
  uint64_t length = claimed_length < 0 ? header.size() : static_cast<uint64_t>(claimed_length);
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>(length >> (8 * i) & 255));
  out << header << data;
  return path;
}

std::string error_of(const std::string& path) {
  try {
    Safetensors file(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

SafetensorsEntry entry_of(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                          const std::string& data) {
  return {name, dtype, std::move(shape), std::as_bytes(std::span(data))};
}

// C50 a, b, c, d, g.
TEST(Safetensors, OddButLegalFilesLoad) {
  EXPECT_TRUE(Safetensors(file_of(R"({"__metadata__": {}})", "")).entries().empty());
  Safetensors only_metadata(file_of(R"({"__metadata__": {"format": "pt"}})", ""));
  EXPECT_THAT(only_metadata.metadata(), testing::ElementsAre(testing::Pair("format", "pt")));
  Safetensors shapes(file_of(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}   )",
      "\x01\x02\x03\x04"));
  ASSERT_EQ(shapes.entries().size(), 2u);
  EXPECT_TRUE(shapes.find("s")->shape.empty());
  EXPECT_EQ(shapes.find("s")->bytes.size(), 4u);
  EXPECT_THAT(shapes.find("e")->shape, testing::ElementsAre(0, 3));
  EXPECT_TRUE(Safetensors(file_of("{}", "")).entries().empty());
}

TEST(Safetensors, RoundTripsBitForBit) {
  std::string path = fresh_path("round.safetensors");
  std::string a("\x00\x80\xff\x7f\x01\x00\xc0\x7f", 8), b = "x", none;
  std::string odd =
      "Gr\xc3\xb6\xc3\x9f"
      "e \"w\" \\ \xe2\x82\xac";
  std::vector<SafetensorsEntry> entries = {entry_of("flag", "BOOL", {1}, b), entry_of(odd, "F32", {2, 1}, a),
                                           entry_of("empty", "BF16", {0, 3}, none)};
  write_safetensors(path, entries, {{"note", "\xc3\xa9\n"}});
  Safetensors file(path);
  ASSERT_EQ(file.entries().size(), 3u);
  for (const SafetensorsEntry& e : entries) {
    const SafetensorsEntry* got = file.find(e.name);
    ASSERT_NE(got, nullptr) << e.name;
    EXPECT_EQ(got->dtype, e.dtype);
    EXPECT_EQ(got->shape, e.shape);
    ASSERT_EQ(got->bytes.size(), e.bytes.size());
    EXPECT_EQ(std::memcmp(got->bytes.data(), e.bytes.data(), e.bytes.size()), 0);
  }
  EXPECT_THAT(file.metadata(), testing::ElementsAre(testing::Pair("note", "\xc3\xa9\n")));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.find(odd)->bytes.data()) % 4, 0u);
}

// C50 d with NUL, e, h.
TEST(Safetensors, ForbiddenFilesAreErrorsThatNameFileAndFault) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four = "1234";
  EXPECT_EQ(error_of(file_of(good, four)), "no error");
  EXPECT_THAT(error_of(file_of(good + std::string(2, '\0'), four)), testing::HasSubstr("padded by spaces only"));
  EXPECT_THAT(error_of(file_of(" " + good, four)), testing::HasSubstr("does not begin with '{'"));
  EXPECT_THAT(
      error_of(file_of(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          four)),
      testing::HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(error_of(file_of(R"({"__metadata__":{"k":0}})", "")), testing::HasSubstr("\"k\" must be text, found 0"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", four)),
              testing::HasSubstr("unknown dtype \"F31\""));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four)),
              testing::HasSubstr("takes 8 bytes"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four)),
              testing::HasSubstr("not negative"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", four)),
              testing::HasSubstr("whole numbers"));
  EXPECT_THAT(
      error_of(file_of(R"({"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,4]}})", four)),
      testing::HasSubstr("too large"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", four)),
              testing::HasSubstr("data_offsets"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", four + four)),
              testing::HasSubstr("gaps and overlaps"));
  EXPECT_THAT(error_of(file_of(good, "12")), testing::HasSubstr("cut short"));
  EXPECT_THAT(error_of(file_of(good, "12345")), testing::HasSubstr("belong to none"));
  EXPECT_THAT(error_of(file_of(good, four, 1 << 20)), testing::HasSubstr("cut short: the header needs 1048576 bytes"));
  EXPECT_THAT(error_of(file_of(good, four, INT64_MAX)), testing::HasSubstr("the limit is 100000000"));
  EXPECT_THAT(error_of(file_of("{\"a\":", "")), testing::HasSubstr("must end with '}'"));
  EXPECT_THAT(error_of(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", four)),
              testing::HasSubstr("unknown key \"x\""));
  EXPECT_THAT(error_of(file_of("{\"\xff\":1}", "")), testing::HasSubstr("handmade.safetensors"));
}

TEST(Safetensors, EveryTruncationAndEveryBadFileIsAnError) {
  std::string path = fresh_path("whole.safetensors"), data(64, 'd');
  write_safetensors(path, {entry_of("a", "F32", {4, 4}, data)});
  std::ifstream in(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  for (size_t cut = 0; cut < all.size(); ++cut) {
    std::string cut_path = fresh_path("cut.safetensors");
    std::ofstream(cut_path, std::ios::binary) << all.substr(0, cut);
    EXPECT_THAT(error_of(cut_path), testing::HasSubstr("cut.safetensors")) << cut;
  }
  EXPECT_THAT(error_of(fresh_path("missing.safetensors")), testing::HasSubstr("cannot read"));
  EXPECT_THAT(error_of(testing::TempDir()), testing::HasSubstr("not a file"));
}

// C50 f.
TEST(Safetensors, RefusedWritesLeaveNoFile) {
  std::string folder = fresh_path("refused"), data = "1234";
  fs::create_directory(folder);
  EXPECT_THROW(write_safetensors(folder + "/f", {entry_of("__metadata__", "F32", {1}, data)}), Error);
  EXPECT_THROW(write_safetensors(folder + "/f", {entry_of("a", "F32", {1}, data), entry_of("a", "F32", {1}, data)}), Error);
  EXPECT_THROW(write_safetensors(folder + "/f", {entry_of("\xff", "F32", {1}, data)}), Error);
  EXPECT_THROW(write_safetensors("/dev/null/f", {entry_of("a", "F32", {1}, data)}), Error);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Files, ReplacedOnlyWhenWhole) {
  std::string path = fresh_path("atomic.txt");
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new, but never finished");
  }
  EXPECT_EQ(MappedFile(path).text(), "old");
  write_file(path, "");
  EXPECT_EQ(MappedFile(path).text(), "");
}

TEST(Files, FoldersAboveAreMadeAndAFailureLeavesNone) {
  const std::string top = fresh_path("above"), path = top + "/a/b/file";
  { AtomicFile never_finished(path); }
  check_can_write(path);
  EXPECT_FALSE(fs::exists(top));
  write_file(path, "1");
  EXPECT_EQ(MappedFile(path).text(), "1");
  check_can_write(path);
  EXPECT_EQ(MappedFile(path).text(), "1");
  EXPECT_THROW(write_file(path + "/below_a_file", "2"), Error);
  {
    NewFolder partly_there(top + "/a/c/d/");
    EXPECT_TRUE(fs::is_directory(top + "/a/c/d"));
  }
  EXPECT_FALSE(fs::exists(top + "/a/c"));
  EXPECT_THROW(write_file(top + "/x/y/../" + std::string(300, 'z'), "4"), Error);
  EXPECT_FALSE(fs::exists(top + "/x"));
  {
    NewFolder filled(top + "/e/f");
    write_file(top + "/e/g", "");
  }
  EXPECT_TRUE(fs::exists(top + "/e/g"));
  EXPECT_FALSE(fs::exists(top + "/e/f"));
}

TEST(Files, ALinkToNowhereStays) {
  const std::string top = fresh_path("links"), link = top + "/link";
  const auto failure_of = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  fs::create_directories(top);
  fs::create_symlink("nowhere", link);
  EXPECT_THAT(failure_of([&] { NewFolder folder(link); }), testing::HasSubstr("links/link: it is a link to nowhere"));
  EXPECT_THAT(failure_of([&] { NewFolder folder(link + "/"); }), testing::HasSubstr("links/link is a link to nowhere"));
  EXPECT_THAT(failure_of([&] { check_can_write(link + "/a/b.json"); }), testing::HasSubstr("links/link is a link to nowhere"));
  EXPECT_TRUE(fs::is_symlink(link));
  fs::create_directory(top + "/nowhere");
  check_can_write(link + "/a/b.json");
  EXPECT_TRUE(fs::is_empty(top + "/nowhere"));
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST(Files, FoldersAreExchangedWhole) {
  std::string path = fresh_path("folder_parent") + "/deep/folder";
  write_folder(path, [](const std::string& d) { write_file(d + "/a", "1"); });
  EXPECT_THROW(write_folder(path,
                            [](const std::string& d) {
                              write_file(d + "/a", "2");
                              fail("stop");
                            }),
               Error);
  EXPECT_EQ(MappedFile(path + "/a").text(), "1");
  // A folder left by a killed process goes (its number is above any that Linux gives); one of a living process stays.
  std::filesystem::create_directories(path + ".tmp-999999999-0");
  std::filesystem::create_directories(path + ".tmp-1-0");
  write_folder(path + "/", [](const std::string& d) { write_file(d + "/b", "3"); });
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp-999999999-0"));
  EXPECT_TRUE(std::filesystem::remove(path + ".tmp-1-0"));
  EXPECT_FALSE(fs::exists(path + "/a"));
  EXPECT_EQ(MappedFile(path + "/b").text(), "3");
  int left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(fs::path(path).parent_path())) ++left;
  EXPECT_EQ(left, 1);
}

}  // namespace
}  // namespace ws
