#include "io/tensors.h"

#include <cstring>
#include <set>

#include "io/half.h"
#include "io/safetensors.h"
#include "support/error.h"

namespace ws {
namespace {

const char* format_word(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f64: return "F64";
    case DType::i32: return "I32";
    case DType::u32: return "U32";
    case DType::boolean: return "BOOL";
  }
  return "?";
}

template <class From, class To, class F>
Tensor convert(const SafetensorsEntry& entry, const Shape& shape, F&& f) {
  std::vector<To> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    From from;
    std::memcpy(&from, entry.bytes.data() + i * sizeof(From), sizeof(From));
    values[i] = f(from);
  }
  return Tensor::from(values, shape);
}

Tensor to_tensor(const std::string& path, const SafetensorsEntry& entry) {
  Shape shape(entry.shape);
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u32, DType::boolean})
    if (entry.dtype == format_word(dtype)) return Tensor::from_bytes(entry.bytes.data(), dtype, shape);
  if (entry.dtype == "F16") return convert<uint16_t, float>(entry, shape, from_half);
  if (entry.dtype == "I64")
    return convert<int64_t, int32_t>(entry, shape, [&](int64_t v) {
      if (v != static_cast<int32_t>(v)) fail("{}: tensor \"{}\" holds {}, which does not fit 32 bits", path, entry.name, v);
      return static_cast<int32_t>(v);
    });
  fail("{}: tensor \"{}\" has dtype {}, which wholestep does not compute with", path, entry.name, entry.dtype);
}

}  // namespace

NamedTensors load_tensors(const std::string& path) {
  Safetensors file(path);
  NamedTensors result;
  for (const SafetensorsEntry& entry : file.entries()) result.emplace_back(entry.name, to_tensor(path, entry));
  return result;
}

void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::vector<Tensor> dense;  // what the entries' bytes point to
  for (const auto& [name, tensor] : tensors) {
    dense.push_back(tensor.contiguous());
    const Tensor& t = dense.back();
    auto bytes = static_cast<size_t>(t.size()) * size_of(t.dtype());
    entries.push_back(
        {name, format_word(t.dtype()), {t.shape().begin(), t.shape().end()}, {static_cast<const std::byte*>(t.data()), bytes}});
  }
  write_safetensors(path, entries, metadata);
}

void save_variables(const std::string& path, const NamedVariables& variables) {
  NamedTensors tensors;
  for (const auto& [name, variable] : variables) tensors.emplace_back(name, variable.value());
  save_tensors(path, tensors);
}

void load_variables(const std::string& path, const NamedVariables& variables) {
  Safetensors file(path);
  std::set<std::string> wanted;
  std::vector<Tensor> values;
  for (const auto& [name, variable] : variables) {
    const SafetensorsEntry* entry = file.find(name);
    if (!entry) fail("{} lacks the tensor \"{}\" ({})", path, name, variable.value().shape().str());
    Tensor value = to_tensor(path, *entry);
    const Tensor& have = variable.value();
    if (value.dtype() != have.dtype() || !(value.shape() == have.shape()))
      fail("{}: \"{}\" is {}{}, the model needs {}{}", path, name, name_of(value.dtype()), value.shape().str(),
           name_of(have.dtype()), have.shape().str());
    wanted.insert(name);
    values.push_back(std::move(value));
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (!wanted.contains(entry.name)) fail("{} holds \"{}\", which the model has not", path, entry.name);
  for (size_t i = 0; i < variables.size(); ++i) {
    Variable target = variables[i].second;
    target.set(values[i]);
  }
}

}  // namespace ws
