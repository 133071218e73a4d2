// Thousands of seeded mutations of good files: whatever comes out is a tensor or an Error, fast and in little memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <random>

#include "io/file.h"
#include "io/tensors.h"
#include "wholestep/data.h"

namespace ws {
namespace {

constexpr int kMutations = 2500;
constexpr double kMaxSeconds = 1;
#if defined(__SANITIZE_THREAD__)  // its shadow counts too
constexpr int64_t kMaxBytes = 800'000'000;
#else
constexpr int64_t kMaxBytes = 100'000'000;
#endif

int64_t peak_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

class Random {
 public:
  uint64_t below(uint64_t bound) { return engine_() % bound; }

 private:
  std::mt19937_64 engine_{1};
};

std::string mutate(std::string text, Random& random) {
  static const std::string kNasty[] = {std::string(8, '\xff'),
                                       std::string(4, '\0'),
                                       "\x7f\xff\xff\xff",
                                       "18446744073709551615",
                                       "-1",
                                       "\"",
                                       "[[[[",
                                       ",",
                                       "1e999",
                                       "\xff\xfe",
                                       "'",
                                       "("};
  for (uint64_t edits = 1 + random.below(3); edits-- > 0;) {
    size_t at = text.empty() ? 0 : random.below(text.size());
    switch (random.below(7)) {
      case 0: text.resize(at); break;
      case 1: text.insert(at, kNasty[random.below(std::size(kNasty))]); break;
      case 2: {
        const std::string& nasty = kNasty[random.below(std::size(kNasty))];
        text.replace(at, nasty.size(), nasty);
        break;
      }
      case 3: text.erase(at, 1 + random.below(8)); break;
      case 4: text.insert(at, text.substr(at, 1 + random.below(16))); break;
      case 5:
        if (!text.empty()) text[at] = static_cast<char>(random.below(256));
        break;
      default:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << random.below(8)));
        break;
    }
  }
  return text;
}

/// Reads mutations of `good`, which itself must be read.
void fuzz(const std::string& good, const std::string& extension, const std::function<void(const std::string&)>& read) {
  std::string path = testing::TempDir() + "/fuzz" + extension;
  Random random;
  write_file(path, good);
  read(path);
  int64_t before = peak_bytes();
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::filesystem::remove(path);  // some file systems flush a file that is written over
    std::ofstream(path, std::ios::binary) << mutate(good, random);
    auto begin = std::chrono::steady_clock::now();
    try {
      read(path);
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("fuzz"), std::string::npos) << "mutation " << i << ": " << error.what();
      EXPECT_LT(std::string(error.what()).size(), 1000u) << "mutation " << i;
    } catch (const std::exception& other) {
      ADD_FAILURE() << extension << ", mutation " << i << ": " << other.what();
    }
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kMaxSeconds) << "mutation " << i;
  }
  EXPECT_LT(peak_bytes() - before, kMaxBytes);
  EXPECT_GT(refused, kMutations / 4) << "the mutations hardly harm";
}

std::string bytes_of(const std::string& path) { return std::string(MappedFile(path).text()); }
Tensor numbers() { return Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}); }

TEST(Fuzz, Safetensors) {
  std::string path = testing::TempDir() + "/good.safetensors";
  save_tensors(path, {{"X", numbers()}, {"y", Tensor::arange(3)}}, {{"format", "pt"}});
  fuzz(bytes_of(path), ".safetensors", [](const std::string& p) { load_tensors(p); });
}

TEST(Fuzz, Npy) {
  std::string path = testing::TempDir() + "/good.npy";
  save_npy(path, numbers());
  fuzz(bytes_of(path), ".npy", [](const std::string& p) { load_npy(p); });
}

TEST(Fuzz, Npz) {
  std::string path = testing::TempDir() + "/good.npz";
  save_npz(path, {{"X", numbers()}, {"y", Tensor::arange(2)}});
  fuzz(bytes_of(path), ".npz", [](const std::string& p) { load_dataset(p); });
}

TEST(Fuzz, CompressedNpz) {
  fuzz(bytes_of(std::string(WS_SOURCE_DIR) + "/tests/data/compressed.npz"), ".npz", [](const std::string& p) { load_npz(p); });
}

TEST(Fuzz, Csv) {
  fuzz("height,weight,\"age\"\n1.5,2e3,-3\n\"4\",5,6\n7,8,9\n", ".csv", [](const std::string& p) { load_dataset(p); });
  fuzz("height\tage\n1.5\t-3\n\"4\"\t6\n", ".tsv", [](const std::string& p) { load_dataset(p); });
}

TEST(Fuzz, Idx) {
  std::string images("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2abcdefgh", 24);
  fuzz(images, ".idx", [](const std::string& p) { load_idx_images(p); });
}

TEST(Fuzz, CompressedIdx) {
  std::string path = testing::TempDir() + "/good.idx.gz", labels("\0\0\x08\x01\0\0\0\6\1\2\3\4\5\6", 14);
  gzFile file = gzopen(path.c_str(), "wb9");
  gzwrite(file, labels.data(), static_cast<unsigned>(labels.size()));
  gzclose(file);
  fuzz(bytes_of(path), ".idx.gz", [](const std::string& p) { load_idx(p); });
}

}  // namespace
}  // namespace ws
