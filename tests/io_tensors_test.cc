#include "io/tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "support/error.h"

namespace ws {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string path_of(const std::string& name) { return testing::TempDir() + "/" + name; }

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// C51.
TEST(Tensors, ViewsAreSavedRowMajor) {
  Tensor matrix = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor pair = Tensor::from(std::vector<float>{7, 9}, {2});
  Tensor tall = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  std::string path = path_of("views.safetensors");
  save_tensors(path, {{"t", matrix.t()}, {"b", pair.broadcast_to({3, 2})}, {"s", tall.slice(0, 0, 4, 2)}});
  Safetensors file(path);
  auto floats = [&](const char* name) {
    const SafetensorsEntry* e = file.find(name);
    std::vector<float> v(e->bytes.size() / 4);
    std::memcpy(v.data(), e->bytes.data(), e->bytes.size());
    return v;
  };
  EXPECT_THAT(file.find("t")->shape, ElementsAre(3, 2));
  EXPECT_THAT(floats("t"), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(floats("b"), ElementsAre(7, 9, 7, 9, 7, 9));
  EXPECT_THAT(floats("s"), ElementsAre(1, 2, 5, 6));
}

TEST(Tensors, EveryDtypeRoundTrips) {
  NamedTensors all;
  for (DType d : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::boolean})
    all.emplace_back(std::string(name_of(d)), Tensor::ones({2, 3}, d));
  all.emplace_back("scalar", Tensor(2.5));
  all.emplace_back("empty", Tensor::zeros({0, 3}));
  std::string path = path_of("dtypes.safetensors");
  save_tensors(path, all);
  NamedTensors got = load_tensors(path);
  ASSERT_EQ(got.size(), all.size());
  for (const auto& [name, tensor] : got) {
    auto want = std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.first == name; });
    ASSERT_NE(want, all.end());
    EXPECT_EQ(tensor.dtype(), want->second.dtype());
    EXPECT_EQ(tensor.shape(), want->second.shape());
    EXPECT_EQ(tensor.to_vector<float>(), want->second.to_vector<float>());
  }
}

TEST(Tensors, ForeignDtypesAreConvertedOrRefused) {
  std::vector<int64_t> wide = {7, -8};
  std::vector<uint16_t> half = {0x3C00, 0xC000, 0x0001, 0x7C00, 0x03FF, 0x8000};
  std::string path = path_of("foreign.safetensors");
  write_safetensors(path, {{"w", "I64", {2}, std::as_bytes(std::span(wide))}, {"h", "F16", {6}, std::as_bytes(std::span(half))}});
  for (const auto& [name, tensor] : load_tensors(path)) {
    if (name == "w") {
      EXPECT_THAT(tensor.to_vector<int32_t>(), ElementsAre(7, -8));
    }
    if (name == "h") {
      std::vector<float> v = tensor.to_vector<float>();
      EXPECT_THAT(v, ElementsAre(1.0f, -2.0f, std::ldexp(1.0f, -24), INFINITY, std::ldexp(1023.0f, -24), -0.0f));
      EXPECT_TRUE(std::signbit(v[5]));
    }
  }
  wide[0] = int64_t{1} << 40;
  write_safetensors(path, {{"w", "I64", {2}, std::as_bytes(std::span(wide))}});
  EXPECT_THAT(error_of([&] { load_tensors(path); }), HasSubstr("does not fit 32 bits"));
  std::string byte = "x";
  write_safetensors(path, {{"q", "F8_E4M3", {1}, std::as_bytes(std::span(byte))}});
  EXPECT_THAT(error_of([&] { load_tensors(path); }), HasSubstr("\"q\" has dtype F8_E4M3"));
}

TEST(Variables, LoadAllOrNothing) {
  Variable a("a", Tensor::ones({2})), b("b", Tensor::ones({3}));
  std::string path = path_of("variables.safetensors");
  save_variables(path, {{"a", a}, {"b", b}});
  a.set(Tensor::zeros({2}));
  load_variables(path, {{"a", a}, {"b", b}});
  EXPECT_THAT(a.value().to_vector<float>(), ElementsAre(1, 1));
  a.set(Tensor::zeros({2}));
  Variable wrong("b", Tensor::ones({4}));
  EXPECT_THAT(error_of([&] {
                load_variables(path, {{"a", a}, {"b", wrong}});
              }),
              HasSubstr("\"b\" is f32[3], the model needs f32[4]"));
  EXPECT_THAT(error_of([&] { load_variables(path, {{"a", a}}); }), HasSubstr("holds \"b\", which the model has not"));
  EXPECT_THAT(error_of([&] { load_variables(path, {{"a", a}, {"b", b}, {"c", b}}); }), HasSubstr("lacks the tensor \"c\" ([3])"));
  EXPECT_THAT(a.value().to_vector<float>(), ElementsAre(0, 0));
}

TEST(Checkpoint, RoundTripsAndIsFound) {
  std::string folder = path_of("run");
  std::filesystem::remove_all(folder);
  Variable w("w", Tensor::from(std::vector<float>{0.1f, -3e-40f}, {2})), m("m", Tensor::ones({1}));
  save_checkpoint(folder + "/checkpoint", {{{"model", "gpt"}}, {{"step", 7}}, {{"w", w}}, {{"m", m}}});
  EXPECT_EQ(find_checkpoint(folder), folder + "/checkpoint");
  EXPECT_EQ(find_checkpoint(folder + "/checkpoint"), folder + "/checkpoint");
  EXPECT_THAT(error_of([&] { find_checkpoint(path_of("nothing")); }), HasSubstr("holds no checkpoint"));
  EXPECT_EQ(load_checkpoint_config(folder + "/checkpoint")["model"], "gpt");
  EXPECT_EQ(load_checkpoint_state(folder + "/checkpoint")["step"], 7);
  std::vector<float> before = w.value().to_vector<float>();
  w.set(Tensor::zeros({2}));
  load_checkpoint_model(folder + "/checkpoint", {{"w", w}});
  std::vector<float> after = w.value().to_vector<float>();
  EXPECT_EQ(std::memcmp(before.data(), after.data(), 8), 0);
  load_checkpoint_optimizer(folder + "/checkpoint", {{"m", m}});
}

}  // namespace
}  // namespace ws
