// Shared by the api tests: data, bits, and one-parameter models.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "wholestep/wholestep.h"

namespace ws::testing {

inline Tensor floats(const std::vector<float>& values, const Shape& shape) {
  return Tensor::from(std::span<const float>(values), shape);
}
inline Tensor floats(const std::vector<float>& values) { return floats(values, {static_cast<int64_t>(values.size())}); }
inline Tensor ints(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from(std::span<const int32_t>(values), shape);
}
inline Tensor ints(const std::vector<int32_t>& values) { return ints(values, {static_cast<int64_t>(values.size())}); }

inline Tensor random_floats(const Shape& shape, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  RandomStream stream{Key(seed)};
  for (float& v : values) v = static_cast<float>(stream.normal());
  return floats(values, shape);
}
inline Tensor random_ints(const Shape& shape, int64_t bound, uint64_t seed) {
  std::vector<int32_t> values(static_cast<size_t>(shape.num_elements()));
  RandomStream stream{Key(seed)};
  for (int32_t& v : values) v = static_cast<int32_t>(stream.below(static_cast<uint64_t>(bound)));
  return ints(values, shape);
}

/// The bytes of a tensor's row-major values.
inline std::string bytes(const Tensor& t) {
  Tensor dense = t.detach().contiguous();
  return {static_cast<const char*>(dense.data()), static_cast<size_t>(dense.size()) * size_of(dense.dtype())};
}
/// The bytes of all state.
inline std::string bytes(const Stateful& object) {
  std::vector<Variable> state;
  object.collect_state(state);
  std::string all;
  for (const Variable& v : state) all += bytes(v.value());
  return all;
}

inline void expect_near(const Tensor& got, const std::vector<double>& right, double relative = 1e-6, double absolute = 1e-7) {
  std::vector<float> values = got.to_vector<float>();
  ASSERT_EQ(values.size(), right.size());
  for (size_t i = 0; i < right.size(); ++i)
    EXPECT_NEAR(values[i], right[i], relative * std::abs(right[i]) + absolute) << "element " << i;
}

/// What f throws, as text; "" where it throws nothing.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
inline ::testing::AssertionResult mentions(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << text << "\" lacks \"" << word << "\"";
  return ::testing::AssertionSuccess();
}

/// A module that holds parameters given by value.
class Weights : public Module {
 public:
  Weights() : Module(Key(0)) {}
  Variable add(const std::string& name, const std::vector<float>& values) {
    Parameter p(*this, name, {static_cast<int64_t>(values.size())}, init::zeros());
    p.set(floats(values));
    return p;
  }
  void tie(const std::string& name, const Variable& v) { tie_parameter(name, v); }
};

}  // namespace ws::testing
