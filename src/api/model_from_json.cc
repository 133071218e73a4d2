#include "api/model_from_json.h"

#include <cmath>

#include "api/json_config.h"
#include "support/error.h"
#include "wholestep/models.h"

namespace ws {
namespace {

/// `features`: of the layer's input where an earlier layer names them, else 0.
LayerFactory layer_from_json(const Json& json, const std::string& where, int64_t features);

std::vector<LayerFactory> layers_from_json(const Json& json, const std::string& where, int64_t features = 0) {
  const Json& list = json_at(json, "layers", where);
  if (!list.is_array()) fail("{}: \"layers\" must be a list", where);
  std::vector<LayerFactory> layers;
  for (size_t i = 0; i < list.size(); ++i) {
    layers.push_back(layer_from_json(list[i], fmt::format("{}.layers[{}]", where, i), features));
    for (const char* key : {"n_out", "d_model", "n"})
      if (list[i].contains(key)) features = list[i].at(key).get<int64_t>();
  }
  return layers;
}

int64_t width_of(const Json& json, const char* key, const std::string& where) {
  auto value = json_get<int64_t>(json, key, where);
  if (value < 1) fail("{}: \"{}\" is {}, but must be at least 1", where, key, value);
  return value;
}

/// Keys that allow one value only, since no layer of ours does otherwise.
void check_fixed(const Json& json, const char* key, const Json& value, const std::string& where) {
  if (json.contains(key) && json.at(key) != value) fail("{}: \"{}\" must be {}", where, key, value.dump());
}

LayerFactory block_from_json(const Json& json, const std::string& where) {
  check_known_keys(json,
                   {"type", "d_model", "n_heads", "d_ff", "causal", "dropout", "norm", "norm_eps", "pre_norm", "attention_bias",
                    "activation", "param_order"},
                   where);
  int64_t width = width_of(json, "d_model", where), heads = width_of(json, "n_heads", where),
          hidden = width_of(json, "d_ff", where);
  auto norm = json_get_or<std::string>(json, "norm", "layer", where);
  if (norm != "layer" && norm != "rms") fail("{}: \"norm\" is \"{}\"; known words are layer, rms", where, norm);
  NormKind kind = norm == "layer" ? NormKind::layer : NormKind::rms;
  auto eps = json_get_or<double>(json, "norm_eps", 1e-5, where);
  Activation activation = activation_from_name(json_get_or<std::string>(json, "activation", "relu", where));
  SelfAttentionOptions attention{.causal = json_get_or<bool>(json, "causal", false, where),
                                 .bias = json_get_or<bool>(json, "attention_bias", false, where),
                                 .weight_init = init::fan_in_normal()};
  FeedForwardOptions feed_forward{.activation = activation, .weight_init = init::he_normal()};
  return layer<TransformerBlock>(layer<SelfAttention>(width, heads, attention), layer<FeedForward>(width, hidden, feed_forward),
                                 norm_layer(kind, width, eps), json_get_or<bool>(json, "pre_norm", false, where),
                                 json_get_or<double>(json, "dropout", 0, where));
}

LayerFactory batch_norm_from_json(const Json& json, const std::string& where) {
  check_known_keys(json, {"type", "n", "momentum", "eps", "running_variance"}, where);
  BatchNormOptions options;
  options.momentum = json_get_or<double>(json, "momentum", options.momentum, where);
  options.eps = json_get_or<double>(json, "eps", options.eps, where);
  auto kind = json_get_or<std::string>(json, "running_variance", "unbiased", where);
  if (kind != "unbiased" && kind != "biased")
    fail("{}: \"running_variance\" is \"{}\"; known words are unbiased, biased", where, kind);
  options.unbiased_running = kind == "unbiased";
  return layer<BatchNorm>(width_of(json, "n", where), options);
}

struct LayerWord {
  const char* word;
  LayerFactory (*make)(const Json&, const std::string& where, int64_t features);
};

const LayerWord kLayerWords[] = {
    {"dense",
     [](const Json& json, const std::string& where, int64_t) {
       check_known_keys(json, {"type", "n_in", "n_out"}, where);
       return layer<Linear>(width_of(json, "n_in", where), width_of(json, "n_out", where),
                            LinearOptions{.weight_init = init::he_normal()});
     }},
    {"relu", [](const Json&, const std::string&, int64_t) { return layer<ReLU>(); }},
    {"tanh", [](const Json&, const std::string&, int64_t) { return layer<Tanh>(); }},
    {"sigmoid", [](const Json&, const std::string&, int64_t) { return layer<Sigmoid>(); }},
    {"flatten", [](const Json&, const std::string&, int64_t) { return layer<Flatten>(); }},
    {"conv2d",
     [](const Json& json, const std::string& where, int64_t) {
       check_known_keys(json, {"type", "n_in", "n_out", "kernel", "stride", "padding", "dilation", "groups"}, where);
       ConvOptions options{.stride = json_get_or<int64_t>(json, "stride", 1, where),
                           .padding = json_get_or<int64_t>(json, "padding", 0, where),
                           .dilation = json_get_or<int64_t>(json, "dilation", 1, where),
                           .groups = json_get_or<int64_t>(json, "groups", 1, where)};
       return layer<Conv2D>(width_of(json, "n_in", where), width_of(json, "n_out", where), width_of(json, "kernel", where),
                            options);
     }},
    {"max_pool",
     [](const Json& json, const std::string& where, int64_t) {
       check_known_keys(json, {"type", "kernel", "stride", "padding"}, where);
       return layer<MaxPool>(width_of(json, "kernel", where), json_get_or<int64_t>(json, "stride", 0, where),
                             json_get_or<int64_t>(json, "padding", 0, where));
     }},
    {"average_pool",
     [](const Json& json, const std::string& where, int64_t) {
       check_known_keys(json, {"type", "kernel", "stride", "padding"}, where);
       return layer<AveragePool>(width_of(json, "kernel", where), json_get_or<int64_t>(json, "stride", 0, where),
                                 json_get_or<int64_t>(json, "padding", 0, where));
     }},
    {"dropout",
     [](const Json& json, const std::string& where, int64_t) {
       check_known_keys(json, {"type", "p"}, where);
       return layer<Dropout>(json_get_or<double>(json, "p", 0.5, where));
     }},
    {"sequential", [](const Json& json, const std::string& where,
                      int64_t features) { return layer<Sequential>(layers_from_json(json, where, features)); }},
    {"residual",
     [](const Json& json, const std::string& where, int64_t features) {
       return layer<Residual>(layer_from_json(json_at(json, "inner", where), where + ".inner", features));
     }},
    {"batch_norm", [](const Json& json, const std::string& where, int64_t) { return batch_norm_from_json(json, where); }},
    {"add_positions",
     [](const Json& json, const std::string& where, int64_t features) {
       check_known_keys(json, {"type", "kind", "max_len"}, where);
       check_fixed(json, "kind", "sinusoidal", where);
       if (features < 1) fail("{}: add_positions must follow a layer that names its features, such as dense", where);
       return layer<SinusoidalPositions>(width_of(json, "max_len", where), features);
     }},
    {"transformer_block", [](const Json& json, const std::string& where, int64_t) { return block_from_json(json, where); }},
    {"mean_over_time", [](const Json&, const std::string&, int64_t) { return layer<MeanOverTime>(); }},
};

LayerFactory layer_from_json(const Json& json, const std::string& where, int64_t features) {
  auto word = json_get<std::string>(json, "type", where);
  std::string known;
  for (const LayerWord& w : kLayerWords) {
    if (word == w.word) return w.make(json, where, features);
    known += (known.empty() ? "" : ", ") + std::string(w.word);
  }
  fail("{}: unknown layer \"{}\"; known ones are {}", where, word, known);
}

std::unique_ptr<Module> mlp_from_json(const Json& json, Key key, const std::string& where) {
  check_known_keys(json, {"type", "sizes", "activation"}, where);
  const Json& list = json_at(json, "sizes", where);
  std::vector<int64_t> sizes;
  for (const Json& item : list) {
    if (!item.is_number_integer()) fail("{}: \"sizes\" must be a list of whole numbers", where);
    sizes.push_back(item.get<int64_t>());
  }
  return std::make_unique<models::Mlp>(sizes, key,
                                       activation_from_name(json_get_or<std::string>(json, "activation", "relu", where)));
}

}  // namespace

std::unique_ptr<Module> model_from_json(const Json& model, Key key, const std::string& where) {
  auto type = json_get<std::string>(model, "type", where);
  if (type == "mlp") return mlp_from_json(model, key, where);
  if (type == "gpt") return std::make_unique<models::Gpt>(gpt_config_from_json(model, where), key);
  if (type == "transformer_encoder")
    return std::make_unique<models::TransformerEncoder>(encoder_config_from_json(model, where), key);
  if (type == "sequential") {
    check_known_keys(model, {"type", "layers"}, where);
    return std::make_unique<Sequential>(key, layers_from_json(model, where));
  }
  fail("{}: unknown model \"{}\"; known ones are mlp, transformer_encoder, gpt, sequential", where, type);
}

}  // namespace ws
