#include "api/reference_parameters.h"

#include <cstring>
#include <map>
#include <utility>

#include "support/error.h"

namespace ws {
namespace {

struct Slice {
  std::string name;          // ours
  int part = 0, parts = 1;   // columns part/parts .. (part+1)/parts
};

// A word of the transformer block's "param_order" as ours.
Slice block_parameter(const std::string& path, const std::string& word) {
  static const std::map<std::string, Slice> kWords = {
      {"W_Q", {"attention.qkv.weight", 0, 3}}, {"W_K", {"attention.qkv.weight", 1, 3}}, {"W_V", {"attention.qkv.weight", 2, 3}},
      {"W_O", {"attention.out.weight"}},       {"ln1.gain", {"norm1.weight"}},          {"ln1.bias", {"norm1.bias"}},
      {"ln2.gain", {"norm2.weight"}},          {"ln2.bias", {"norm2.bias"}},            {"ffn1.W", {"feed_forward.up.weight"}},
      {"ffn1.b", {"feed_forward.up.bias"}},    {"ffn2.W", {"feed_forward.down.weight"}}, {"ffn2.b", {"feed_forward.down.bias"}}};
  auto found = kWords.find(word);
  if (found == kWords.end()) fail("transformer_block: unknown parameter \"{}\" in \"param_order\"", word);
  Slice slice = found->second;
  slice.name = path + "." + slice.name;
  return slice;
}

// Our names in the recording's order, walking the layers.
void list_layer(const Json& layer, const std::string& path, std::vector<Slice>& into) {
  const auto type = layer.at("type").get<std::string>();
  if (type == "dense" || type == "batch_norm") {
    into.push_back({path + ".weight"});
    into.push_back({path + ".bias"});
  } else if (type == "sequential") {
    for (size_t i = 0; i < layer.at("layers").size(); ++i)
      list_layer(layer.at("layers")[i], (path.empty() ? "" : path + ".") + std::to_string(i), into);
  } else if (type == "residual") {
    list_layer(layer.at("inner"), path + ".inner", into);
  } else if (type == "transformer_block") {
    for (const Json& word : layer.at("param_order")) into.push_back(block_parameter(path, word.get<std::string>()));
  }
}

// "blks/0/attention/W_qkv/kernel" -> "blocks.0.attention.qkv.weight"
Slice gpt_parameter(const std::string& name) {
  static const std::map<std::string, std::string> kWords = {
      {"blks", "blocks"}, {"W_qkv", "qkv"}, {"W_o", "out"}, {"ffn", "feed_forward"}, {"W_1", "up"}, {"W_2", "down"}, {"W_g", "gate"},
      {"kernel", "weight"}, {"scale", "weight"}, {"embedding", "weight"}, {"pos_emb", "position_embedding"}, {"token_emb", "token_embedding"}};
  std::string result;
  for (size_t start = 0; start <= name.size();) {
    size_t stop = std::min(name.find('/', start), name.size());
    std::string word = name.substr(start, stop - start);
    auto found = kWords.find(word);
    result += (result.empty() ? "" : ".") + (found == kWords.end() ? word : found->second);
    start = stop + 1;
  }
  return {result};
}

}  // namespace

std::vector<ReferenceParameter> match_reference_parameters(const Module& model, const Json& reference_case) {
  const Json& params = json_at(reference_case, "params", "reference case");
  const Json& description = json_at(reference_case, "model", "reference case");
  std::vector<Slice> slices;
  if (json_get<std::string>(description, "type", "model") == "gpt")
    for (const Json& entry : params) slices.push_back(gpt_parameter(entry.at(0).get<std::string>()));
  else
    list_layer(description, "", slices);
  if (slices.size() != params.size()) fail("reference case: \"params\" lists {} arrays, but the model has {}", params.size(), slices.size());

  std::vector<ReferenceParameter> matched;
  int64_t matched_size = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    ReferenceParameter p{params[i].at(0).get<std::string>(), model.find(slices[i].name)};
    const Shape& ours = p.variable.value().shape();
    std::vector<int64_t> dims(ours.begin(), ours.end());
    p.num_columns = dims.back() /= slices[i].parts;
    p.first_column = slices[i].part * p.num_columns;
    Shape expected(dims), recorded(params[i].at(1).get<std::vector<int64_t>>());
    if (!(recorded == expected)) fail("reference case: \"{}\" has shape {}, but the model's '{}' needs {}", p.name, recorded.str(), slices[i].name, expected.str());
    matched_size += expected.num_elements();
    matched.push_back(std::move(p));
  }
  if (matched_size != model.num_parameters()) fail("reference case: \"params\" holds {} values, but the model has {}", matched_size, model.num_parameters());
  return matched;
}

void load_reference_parameters(const std::vector<ReferenceParameter>& matched, const std::function<Tensor(const std::string& name)>& tensor_named) {
  for (const ReferenceParameter& p : matched) {
    Tensor recorded = tensor_named(p.name);
    Variable variable = p.variable;
    if (recorded.shape() == variable.value().shape()) {
      variable.set(recorded);
      continue;
    }
    std::vector<float> values = variable.value().to_vector<float>(), part = recorded.to_vector<float>();
    int64_t columns = variable.value().shape().back(), rows = variable.value().size() / columns;
    if (static_cast<int64_t>(part.size()) != rows * p.num_columns) fail("reference case: tensor '{}' has shape {}", p.name, recorded.shape().str());
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(&values[static_cast<size_t>(r * columns + p.first_column)], &part[static_cast<size_t>(r * p.num_columns)],
                  static_cast<size_t>(p.num_columns) * sizeof(float));
    variable.set(Tensor::from(std::span<const float>(values), variable.value().shape()));
  }
}

Tensor reference_value(const ReferenceParameter& p) {
  const Tensor& value = p.variable.value();
  return value.detach().slice(value.rank() - 1, p.first_column, p.first_column + p.num_columns);
}

}  // namespace ws
