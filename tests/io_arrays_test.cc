// npy, npz, csv and idx: what NumPy and gzip write is read, and each fault is an error that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "io/file.h"
#include "io/little_endian.h"
#include "wholestep/data.h"

namespace ws {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fresh(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::string npy(const std::string& dictionary, const std::string& elements, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  if (version == 1)
    append_little_endian(file, static_cast<uint16_t>(dictionary.size()));
  else
    append_little_endian(file, static_cast<uint32_t>(dictionary.size()));
  return file + dictionary + elements;
}

std::string header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }     \n";
}

Tensor read_npy(const std::string& text) { return load_npy(fresh("a.npy", text)); }

std::string gzipped(const std::string& text) {
  std::string path = testing::TempDir() + "/z.gz";
  gzFile file = gzopen(path.c_str(), "wb9");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return std::string(MappedFile(path).text());
}

TEST(Npy, ReadsEveryKindOfElementAndOrder) {
  std::string ones("\0\0\x80\x3f", 4);
  Tensor scalar = read_npy(npy(header("<f4", "()"), ones));
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.item(), 1);
  EXPECT_EQ(read_npy(npy(header(">f4", "(1,)"), std::string("\x3f\x80\0\0", 4))).item(), 1);
  EXPECT_EQ(read_npy(npy(header("<f2", "(1,)", "False"), std::string("\0\x3c", 2), 2)).item(), 1);
  Tensor wide = read_npy(npy(header("<f8", "(1,)"), std::string("\0\0\0\0\0\0\xf0\x3f", 8), 3));
  EXPECT_EQ(wide.dtype(), DType::f64);
  EXPECT_EQ(wide.item(), 1);
  EXPECT_THAT(read_npy(npy(header("|u1", "(2,)"), "\x01\xff")).to_vector<int32_t>(), ElementsAre(1, 255));
  EXPECT_THAT(read_npy(npy(header("|i1", "(2,)"), "\x01\xff")).to_vector<int32_t>(), ElementsAre(1, -1));
  EXPECT_THAT(read_npy(npy(header(">i2", "(1,)"), "\x01\x02")).to_vector<int32_t>(), ElementsAre(258));
  EXPECT_THAT(read_npy(npy(header("<i8", "(1,)"), std::string("\xfe\xff\xff\xff\xff\xff\xff\xff", 8))).to_vector<int32_t>(),
              ElementsAre(-2));
  EXPECT_EQ(read_npy(npy(header("|b1", "(1,)"), "\x01")).dtype(), DType::boolean);
  EXPECT_THAT(read_npy(npy(header("|u1", "(2, 3)", "True"), "\1\2\3\4\5\6")).to_vector<int32_t>(), ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_EQ(read_npy(npy(header("<f4", "(0, 3)"), "")).size(), 0);
}

TEST(Npy, FaultsAreNamed) {
  auto fault = [](const std::string& text) { return error_of([&] { read_npy(text); }); };
  EXPECT_THAT(fault("hello"), HasSubstr("a.npy is not an npy array"));
  EXPECT_THAT(fault(npy(header("<f4", "(2,)"), "1234")), HasSubstr("takes 8 bytes, the file has 4"));
  EXPECT_THAT(fault(npy(header("<f4", "(4611686018427387904, 8)"), "")), HasSubstr("too large"));
  EXPECT_THAT(fault(npy(header("|O", "(1,)"), "1234")), HasSubstr("\"|O\" are not read"));
  EXPECT_THAT(fault(npy(header("<U4", "(1,)"), "1234")), HasSubstr("not read"));
  EXPECT_THAT(fault(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n", "1234")), HasSubstr("records"));
  EXPECT_THAT(fault(npy(header("<f4", "(-1,)"), "1234")), HasSubstr("not what NumPy writes"));
  EXPECT_THAT(fault(npy("{'descr': '<f4'}", "")), HasSubstr("must name descr, fortran_order and shape"));
  EXPECT_THAT(fault(npy(header("|b1", "(1,)"), "\x02")), HasSubstr("the byte 2 as a boolean"));
  EXPECT_THAT(fault(npy(header("<i8", "(1,)"), std::string("\0\0\0\0\1\0\0\0", 8))), HasSubstr("4294967296, which does not fit"));
  EXPECT_THAT(fault(npy(header("<f4", "()"), "1234", 9)), HasSubstr("version 9"));
}

TEST(Npy, RoundTripsWhateverTheView) {
  Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  std::string path = testing::TempDir() + "/r.npy";
  save_npy(path, x.t());
  EXPECT_THAT(load_npy(path).to_vector<float>(), ElementsAre(1, 4, 2, 5, 3, 6));  // C51
  EXPECT_EQ(MappedFile(path).text().size(), 128u + 24u);
  save_npy(path, Tensor(2.5));
  EXPECT_EQ(load_npy(path).rank(), 0);
  save_npy(path, Tensor::arange(3));
  EXPECT_EQ(load_npy(path).dtype(), DType::i32);
}

TEST(Npz, RoundTripsAndRefusesDamage) {
  std::string path = testing::TempDir() + "/r.npz";
  save_npz(path, {{"X", Tensor::from(std::vector<float>{1, 2}, {2, 1})}, {"y", Tensor::arange(2)}});
  NamedTensors read = load_npz(path);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].first, "X");
  EXPECT_THAT(read[1].second.to_vector<int32_t>(), ElementsAre(0, 1));
  EXPECT_THROW(save_npz(path, {{"a", Tensor(1.0)}, {"a", Tensor(1.0)}}), Error);
  std::string all(MappedFile(path).text());
  for (size_t cut = 0; cut < all.size(); ++cut)
    EXPECT_NE(error_of([&] { load_npz(fresh("cut.npz", all.substr(0, cut))); }), "no error") << cut;
  all[all.find("NUMPY") + 130] ^= 1;  // an element
  EXPECT_THAT(error_of([&] { load_npz(fresh("bad.npz", all)); }), HasSubstr("\"X.npy\": damaged: its checksum"));
}

// Written by numpy.savez_compressed(X=arange(6, dtype=float32).reshape(2, 3), y=array([1, 0])).
TEST(Npz, ReadsWhatNumpyCompresses) {
  NamedTensors read = load_npz(std::string(WS_SOURCE_DIR) + "/tests/data/compressed.npz");
  ASSERT_EQ(read.size(), 2u);
  EXPECT_THAT(read[0].second.to_vector<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(read[1].second.to_vector<int32_t>(), ElementsAre(1, 0));
}

TEST(Csv, ReadsTables) {
  Table t = load_csv(fresh("a.csv", "\xEF\xBB\xBFheight,\"the, weight\"\r\n1,2.5\r\n\r\n\"-3\", +4e-1\r\n"));
  EXPECT_THAT(t.columns, ElementsAre("height", "the, weight"));
  EXPECT_EQ(t.values.shape(), (Shape{2, 2}));
  EXPECT_THAT(t.values.to_vector<float>(), ElementsAre(1, 2.5, -3, 0.4f));
  Table bare = load_csv(fresh("b.csv", "1,2\n3,1e-50"));
  EXPECT_TRUE(bare.columns.empty());
  EXPECT_THAT(bare.values.to_vector<float>(), ElementsAre(1, 2, 3, 0));
  Table tabs = load_csv(fresh("c.TSV", "name\tthe, weight\n 1\t\"2\"\n3\t4\n"));
  EXPECT_THAT(tabs.columns, ElementsAre("name", "the, weight"));
  EXPECT_THAT(tabs.values.to_vector<float>(), ElementsAre(1, 2, 3, 4));
}

TEST(Csv, FaultsAreNamed) {
  auto fault = [](const std::string& text) { return error_of([&] { load_csv(fresh("a.csv", text)); }); };
  EXPECT_THAT(fault("a,b\n1,2\n3\n"), HasSubstr("a.csv: line 3 has 1 fields, the first has 2"));
  const Table tiny = load_csv(fresh("d.csv", "1e-400,-1e-99999999999999999999\n0.01e-400,100e-402\n"));
  EXPECT_THAT(tiny.values.to_vector<float>(), ElementsAre(0, 0, 0, 0));
  for (const char* huge : {"1e400", "-100e398", "1e99999999999999999999", "1e39"})
    EXPECT_THAT(fault(std::string("1,2\n3,") + huge + "\n"), HasSubstr("is not a finite number"));
  EXPECT_THAT(fault("a,b\n1,\n"), HasSubstr("line 2, column 2 (b): '' is not a finite number"));
  EXPECT_THAT(fault("1,2\n3,nan\n"), HasSubstr("line 2, column 2: 'nan' is not"));
  EXPECT_THAT(fault("1,2\n3,1e99\n"), HasSubstr("'1e99'"));
  EXPECT_THAT(fault("1,2\n3,0x4\n"), HasSubstr("'0x4'"));
  EXPECT_THAT(fault(""), HasSubstr("no rows of numbers"));
  EXPECT_THAT(fault("a,b\n"), HasSubstr("no rows of numbers"));
  EXPECT_THAT(fault("\na,b,\"a\"\n1,2,3\n"), HasSubstr("a.csv: line 2 names two columns 'a'"));
  EXPECT_THAT(fault(std::string("1,2\n3,a\0b\x1b[2J\n", 14)), HasSubstr("column 2: 'a\\x00b\\x1b[2J' is not a finite number"));
  EXPECT_THAT(fault("1,2\n3," + std::string(1000, 'x') + "\n"), HasSubstr("column 2: '" + std::string(40, 'x') + "..' is not"));
  EXPECT_THAT(error_of([&] { load_csv(fresh("a.tsv", "1\t2\n3,4\n")); }),
              HasSubstr("a.tsv: line 2 has 1 fields, the first has 2"));
  EXPECT_THAT(fault("1,\"2\n"), HasSubstr("never closed"));
  EXPECT_THAT(fault("1,\"2\"3\n"), HasSubstr("after a closing"));
}

TEST(Idx, ReadsPlainAndZippedFiles) {
  std::string images("\0\0\x08\x03\0\0\0\1\0\0\0\2\0\0\0\2\x00\x33\x66\xff", 20);
  for (const std::string& text : {images, gzipped(images)}) {
    std::string path = fresh("images", text);
    EXPECT_THAT(load_idx(path).to_vector<int32_t>(), ElementsAre(0, 0x33, 0x66, 255));
    Tensor x = load_idx_images(path);
    EXPECT_EQ(x.shape(), (Shape{1, 2, 2, 1}));
    EXPECT_THAT(x.to_vector<float>(), ElementsAre(0, 0.2f, 0.4f, 1));
  }
  EXPECT_THAT(load_idx(fresh("i", std::string("\0\0\x0C\1\0\0\0\1\xff\xff\xff\xfe", 12))).to_vector<int32_t>(), ElementsAre(-2));
  EXPECT_EQ(load_idx(fresh("i", std::string("\0\0\x0D\1\0\0\0\1\x3f\x80\0\0", 12))).item(), 1);
}

TEST(Idx, FaultsAreNamed) {
  auto fault = [](const std::string& text) { return error_of([&] { load_idx(fresh("a.idx", text)); }); };
  std::string good("\0\0\x08\1\0\0\0\2ab", 10), zipped = gzipped(good);
  EXPECT_EQ(fault(good), "no error");
  EXPECT_THAT(fault("ab"), HasSubstr("a.idx: not an IDX file"));
  EXPECT_THAT(fault(std::string("\0\0\x07\1\0\0\0\2ab", 10)), HasSubstr("0x07 names no kind"));
  EXPECT_THAT(fault(std::string("\0\0\x08\0ab", 6)), HasSubstr("0 dims"));
  EXPECT_THAT(fault(good + "c"), HasSubstr("2 elements take 2 bytes, the file has 3"));
  EXPECT_THAT(fault(std::string("\0\0\x08\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16)), HasSubstr("too large"));
  EXPECT_THAT(fault(gzipped(std::string("\0\0\x08\2\xff\xff\xff\xff\0\0\1\0", 12))), HasSubstr("cannot hold"));
  EXPECT_THAT(fault(gzipped(good + "c")), HasSubstr("holds more than 10 bytes"));
  EXPECT_THAT(fault(zipped.substr(0, zipped.size() - 3)), HasSubstr("cut short"));
  EXPECT_THAT(fault(zipped + "x"), HasSubstr("follow the end"));
  zipped[zipped.size() - 7] ^= 1;
  EXPECT_THAT(fault(zipped), HasSubstr("damaged"));
}

TEST(DataSets, CsvTargetsAndArraysOfTheWrongLength) {
  std::string csv = fresh("t.csv", "a,b,c\n1,2,3\n4,5,6\n");
  Dataset last = load_dataset(csv), middle = load_dataset(csv, "b");
  EXPECT_THAT(last.y.to_vector<float>(), ElementsAre(3, 6));
  EXPECT_THAT(middle.X.to_vector<float>(), ElementsAre(1, 3, 4, 6));
  EXPECT_EQ(middle.y.shape(), (Shape{2, 1}));
  EXPECT_THAT(error_of([&] { load_dataset(csv, "d"); }), HasSubstr("no column named 'd'; there are a, b, c"));
  EXPECT_EQ(load_dataset(fresh("t.CSV", "1,2\n3,4\n")).X.shape(), (Shape{2, 1}));
  std::string npz = testing::TempDir() + "/d.npz";
  save_npz(npz, {{"X", Tensor::zeros({3, 2})}, {"y", Tensor::arange(2)}});
  EXPECT_THAT(error_of([&] { load_dataset(npz); }), HasSubstr("X [3, 2] and y [2] must have the same number of samples"));
  save_npz(npz, {{"X", Tensor::zeros({3, 2})}});
  EXPECT_THAT(error_of([&] { load_dataset(npz); }), HasSubstr("must hold the tensors X and y"));
  const NamedTensors samples = {{"X", Tensor::zeros({3, 2})}, {"y", Tensor::arange(3)}};
  const auto with = [&](const char* name, const Tensor& X, const char* of, const Tensor& y) {
    NamedTensors all = {{name, X}, {of, y}};
    if (std::string_view(name) != "X") all.insert(all.end(), samples.begin(), samples.end());
    save_npz(npz, all);
    return error_of([&] { load_dataset(npz); });
  };
  EXPECT_THAT(with("X", Tensor::zeros({0, 2}), "y", Tensor::zeros({0})), HasSubstr(": X [0, 2] holds no samples"));
  EXPECT_THAT(with("X_val", Tensor::zeros({0, 2}), "y_val", Tensor::zeros({0})), HasSubstr(": X_val [0, 2] holds no samples"));
  EXPECT_THAT(with("X_val", Tensor::zeros({1, 2}), "y_val", Tensor::zeros({2})),
              HasSubstr(": X_val [1, 2] and y_val [2] must have the same number of samples"));
  const uint32_t values[] = {1, 3000000000u};
  const Tensor large = Tensor::from_bytes(values, DType::u32, {2});
  EXPECT_THAT(with("X", Tensor::zeros({2, 2}), "y", large), HasSubstr(": y holds 3000000000, which does not fit 32 bits"));
  EXPECT_THAT(with("X", Tensor::from_bytes(values, DType::u32, {2, 1}), "y", Tensor::zeros({2})),
              HasSubstr(": X holds 3000000000, which does not fit 32 bits"));
  EXPECT_THAT(error_of([&] { load_dataset("nonsense"); }), HasSubstr("'nonsense' is no data set"));
  std::string folder = testing::TempDir() + "/no_idx";
  std::filesystem::create_directories(folder);
  EXPECT_THAT(error_of([&] { load_dataset(folder); }),
              HasSubstr("no_idx lacks train-images-idx3-ubyte: a folder of IDX files holds train-images-idx3-ubyte, "
                        "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each as it is or as .gz"));
}

TEST(DataSets, FashionMnistAsDebianInstallsIt) {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  Dataset d = load_dataset("fashion-mnist");
  EXPECT_EQ(d.X.shape(), (Shape{60000, 28, 28, 1}));
  EXPECT_EQ(d.X_val.shape(), (Shape{10000, 28, 28, 1}));
  std::vector<int32_t> labels = d.y.to_vector<int32_t>();
  EXPECT_THAT(std::vector<int32_t>(labels.begin(), labels.begin() + 5), ElementsAre(9, 0, 0, 3, 0));
  EXPECT_EQ(*std::max_element(labels.begin(), labels.end()), 9);
}

}  // namespace
}  // namespace ws
