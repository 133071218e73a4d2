// reference: replays a training run that another framework recorded, from its initial weights on its data, and compares losses and
// final weights. The format is described in tests/reference/README.md; a user proves a port with it.
#include <algorithm>
#include <cmath>

#include "api/model_from_json.h"
#include "choices.h"
#include "command.h"
#include "io/file.h"
#include "io/tensors.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/json.h"
#include "wholestep/wholestep.h"

namespace ws::cli {
namespace {

struct ReferenceOptions {
  std::string file, mode = "compiled";
  bool json = false;
};

// One recorded parameter: a variable of our model, or columns of one (our q, k and v are one matrix).
struct Slot {
  std::string variable;
  int64_t column = 0, columns = 0;  // 0: the whole variable
};

void add_block_slots(const Json& layer, const std::string& path, const std::string& where, std::vector<Slot>& slots) {
  auto width = json_get<int64_t>(layer, "d_model", where);
  const Json& order = json_at(layer, "param_order", where);
  for (const Json& item : order) {
    std::string name = item.is_string() ? item.get<std::string>() : item.dump();
    static const std::pair<const char*, const char*> kWhole[] = {
        {"W_O", "attention.out.weight"},     {"ln1.gain", "norm1.weight"},
        {"ln1.bias", "norm1.bias"},          {"ln2.gain", "norm2.weight"},
        {"ln2.bias", "norm2.bias"},          {"ffn1.W", "feed_forward.up.weight"},
        {"ffn1.b", "feed_forward.up.bias"},  {"ffn2.W", "feed_forward.down.weight"},
        {"ffn2.b", "feed_forward.down.bias"}};
    if (name == "W_Q" || name == "W_K" || name == "W_V") {
      slots.push_back({path + ".attention.qkv.weight", (name == "W_Q" ? 0 : name == "W_K" ? 1 : 2) * width, width});
      continue;
    }
    auto found = std::find_if(std::begin(kWhole), std::end(kWhole), [&](const auto& pair) { return name == pair.first; });
    if (found == std::end(kWhole)) fail("{}: unknown parameter \"{}\" of a transformer_block", where, name);
    slots.push_back({path + "." + found->second});
  }
}

// The parameters of a `sequential` in recorded order.
void add_layer_slots(const Json& layer, const std::string& path, const std::string& where, std::vector<Slot>& slots) {
  auto type = json_get<std::string>(layer, "type", where);
  if (type == "dense" || type == "batch_norm") {
    slots.push_back({path + ".weight"});
    slots.push_back({path + ".bias"});
  } else if (type == "transformer_block") {
    add_block_slots(layer, path, where, slots);
  } else if (type == "residual") {
    add_layer_slots(json_at(layer, "inner", where), path + ".inner", where, slots);
  } else if (type == "sequential") {
    size_t i = 0;
    for (const Json& inner : json_at(layer, "layers", where)) {
      std::string child = std::to_string(i++);
      add_layer_slots(inner, path.empty() ? child : path + "." + child, where, slots);
    }
  }
}

// "blks/0/attention/W_qkv/kernel" -> "blocks.0.attention.qkv.weight".
std::string gpt_name(const std::string& recorded, const std::string& where) {
  static const std::pair<const char*, const char*> kWords[] = {{"blks", "blocks"},
                                                               {"W_qkv", "qkv"},
                                                               {"W_o", "out"},
                                                               {"ffn", "feed_forward"},
                                                               {"W_g", "gate"},
                                                               {"W_1", "up"},
                                                               {"W_2", "down"},
                                                               {"kernel", "weight"},
                                                               {"scale", "weight"},
                                                               {"embedding", "weight"},
                                                               {"bias", "bias"},
                                                               {"norm", "norm"},
                                                               {"norm1", "norm1"},
                                                               {"norm2", "norm2"},
                                                               {"attention", "attention"},
                                                               {"head", "head"},
                                                               {"token_emb", "token_embedding"},
                                                               {"pos_emb", "position_embedding"}};
  std::string result;
  for (size_t at = 0; at <= recorded.size();) {
    size_t slash = std::min(recorded.find('/', at), recorded.size());
    std::string part = recorded.substr(at, slash - at);
    auto found = std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& pair) { return part == pair.first; });
    if (found != std::end(kWords))
      part = found->second;
    else if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos)
      fail("{}: unknown parameter \"{}\" of a gpt", where, recorded);
    result += (result.empty() ? "" : ".") + part;
    at = slash + 1;
  }
  return result;
}

struct Case {
  std::string path;
  Json json;
  NamedTensors tensors;
  std::unique_ptr<Module> model;
  std::vector<std::pair<std::string, Slot>> parameters;  // recorded name -> where it lives

  const Tensor* find(const std::string& name) const {
    for (const auto& [key, tensor] : tensors)
      if (key == name) return &tensor;
    return nullptr;
  }
  const Tensor& tensor(const std::string& name) const {
    if (const Tensor* t = find(name)) return *t;
    fail("{}: the tensor file lacks \"{}\"", path, name);
  }
};

// `listed` is the shape that the case gives for a parameter, `recorded` its tensor.
void check_listed_shape(const Json& listed, const Tensor& recorded, const std::string& name, const std::string& where) {
  const Shape& shape = recorded.shape();
  if (listed != Json(std::vector<int64_t>(shape.begin(), shape.end())))
    fail("{}: \"params\" lists \"{}\" as {}, the tensor file has {}", where, name, listed.dump(), shape.str());
}

// A parameter that the recording leaves out would train from our own initial value.
void check_covers_model(const Case& c) {
  for (const auto& [name, variable] : c.model->named_parameters()) {
    bool listed = std::any_of(c.parameters.begin(), c.parameters.end(),
                              [&v = variable, &c](const auto& entry) { return c.model->find(entry.second.variable) == v; });
    if (!listed) fail("{}: \"params\" lacks the model's parameter {} {}", c.path, name, variable.value().shape().str());
  }
}

Case load_case(const std::string& path) {
  Case c{path, {}, {}, nullptr, {}};
  c.json = parse_json(MappedFile(path).text(), path);
  c.tensors = load_tensors(std::filesystem::path(path).replace_extension(".safetensors").string());
  const Json& model = json_at(c.json, "model", path);
  c.model = model_from_json(model, Key(0), path + ": model");
  const Json& params = json_at(c.json, "params", path);
  std::vector<Slot> slots;
  bool is_gpt = json_get<std::string>(model, "type", path + ": model") == "gpt";
  if (!is_gpt) add_layer_slots(model, "", path + ": model", slots);
  if (!params.is_array() || (!is_gpt && params.size() != slots.size()))
    fail("{}: \"params\" must list the {} parameters of the model, it has {}", path, slots.size(), params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].is_array() || params[i].empty() || !params[i][0].is_string())
      fail("{}: \"params\" must be a list of [name, shape]", path);
    auto name = params[i][0].get<std::string>();
    if (params[i].size() > 1) check_listed_shape(params[i][1], c.tensor("init/" + name), name, path);
    c.parameters.emplace_back(name, is_gpt ? Slot{gpt_name(name, path)} : slots[i]);
  }
  check_covers_model(c);
  return c;
}

void check_shape(const Tensor& recorded, const Shape& ours, const std::string& name, const std::string& where) {
  if (recorded.dtype() != DType::f32 || !(recorded.shape() == ours))
    fail("{}: \"{}\" is {}{}, the model needs f32{}", where, name, name_of(recorded.dtype()), recorded.shape().str(), ours.str());
}

void set_initial(const Case& c) {
  NoGrad no_grad;
  for (const auto& [name, slot] : c.parameters) {
    const Tensor& value = c.tensor("init/" + name);
    Variable target = c.model->find(slot.variable);
    const Shape& shape = target.value().shape();
    if (slot.columns == 0) {
      check_shape(value, shape, name, c.path);
      target.set(value);
      continue;
    }
    check_shape(value, {shape[0], slot.columns}, name, c.path);
    std::vector<Tensor> parts;
    if (slot.column > 0) parts.push_back(target.value().slice(-1, 0, slot.column));
    parts.push_back(value);
    if (int64_t after = slot.column + slot.columns; after < shape.back())
      parts.push_back(target.value().slice(-1, after, shape.back()));
    target.set(concatenate(parts, shape.rank() - 1));
  }
}

double max_abs_difference(const Tensor& a, const Tensor& b, const std::string& name, const std::string& where) {
  if (!(a.shape() == b.shape())) fail("{}: \"{}\" has shape {}, ours has {}", where, name, b.shape().str(), a.shape().str());
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double difference = std::fabs(x[i] - y[i]);
    if (!(difference <= worst)) worst = difference;  // NaN is the worst
  }
  return worst;
}

std::pair<double, std::string> final_difference(const Case& c) {
  NoGrad no_grad;
  double worst = 0;
  std::string which;
  for (const auto& [name, slot] : c.parameters) {
    Tensor ours = c.model->find(slot.variable).value();
    if (slot.columns) ours = ours.slice(-1, slot.column, slot.column + slot.columns).contiguous();
    double difference = max_abs_difference(ours, c.tensor("final/" + name), "final/" + name, c.path);
    if (!(difference <= worst)) worst = difference, which = name;
  }
  return {worst, which};
}

std::unique_ptr<Optimizer> optimizer_of(const Json& json, const std::string& where) {
  auto type = json_get<std::string>(json, "type", where);
  auto lr = json_get<double>(json, "lr", where);
  auto number = [&](const char* key, double otherwise) { return json_get_or<double>(json, key, otherwise, where); };
  if (type == "SGD")
    return std::make_unique<SGD>(SGDOptions{.lr = lr,
                                            .momentum = number("momentum", 0),
                                            .nesterov = json_get_or<bool>(json, "nesterov", false, where),
                                            .lr_in_velocity = true});
  if (type == "Adam")
    return std::make_unique<Adam>(
        AdamOptions{.lr = lr, .beta1 = number("beta1", 0.9), .beta2 = number("beta2", 0.999), .eps = number("eps", 1e-8)});
  if (type == "AdamW")
    return std::make_unique<AdamW>(AdamWOptions{.lr = lr,
                                                .beta1 = number("beta1", 0.9),
                                                .beta2 = number("beta2", 0.999),
                                                .eps = number("eps", 1e-8),
                                                .weight_decay = number("weight_decay", 1e-4)});
  if (type == "RMSProp")
    return std::make_unique<RMSProp>(RMSPropOptions{.lr = lr, .rho = number("rho", 0.9), .eps = number("eps", 1e-8)});
  if (type == "AdaGrad") return std::make_unique<AdaGrad>(AdaGradOptions{.lr = lr, .eps = number("eps", 1e-8)});
  fail("{}: unknown optimizer \"{}\"; known ones are SGD, Adam, AdamW, RMSProp, AdaGrad", where, type);
}

Schedule schedule_of(const Json& json, const std::string& where) {
  if (json.is_null()) return {};
  auto type = json_get<std::string>(json, "type", where);
  auto number = [&](const char* key) { return json_get<double>(json, key, where); };
  if (type == "StepLR") return StepLR{.lr = number("lr"), .step = number("step"), .gamma = number("gamma")};
  if (type == "CosineWarmRestarts")
    return CosineWarmRestarts{
        .lr_max = number("lr_max"), .lr_min = number("lr_min"), .t0 = number("t0"), .t_mult = number("t_mult")};
  if (type == "LinearWarmup")
    return LinearWarmup{.lr_start = number("lr_start"), .lr_end = number("lr_end"), .warmup = number("warmup")};
  fail("{}: unknown schedule \"{}\"; known ones are StepLR, CosineWarmRestarts, LinearWarmup", where, type);
}

Loss loss_of(const std::string& name, const std::string& where) {
  if (name == "MSE") return MSE();
  if (name == "SoftmaxCrossEntropy") return SoftmaxCrossEntropy();
  fail("{}: unknown loss \"{}\"; known ones are MSE, SoftmaxCrossEntropy", where, name);
}

TrainerOptions trainer_options_of(const Case& c) {
  TrainerOptions options;
  std::string where = c.path + ": trainer";
  if (!c.json.contains("trainer")) return options;
  const Json& json = c.json["trainer"];
  if (json.contains("clip_norm") && !json["clip_norm"].is_null()) options.clip_norm = json_get<double>(json, "clip_norm", where);
  options.weight_decay = json_get_or<double>(json, "weight_decay", 0, where);
  auto decay = json_get_or<std::string>(json, "decay", "l2", where);
  if (decay != "l2" && decay != "decoupled") fail("{}: \"decay\" must be l2 or decoupled, not \"{}\"", where, decay);
  options.decay = decay == "l2" ? Decay::l2 : Decay::decoupled;
  return options;
}

// Largest relative difference of two series; null entries are left out. A longer recording: infinity; a shorter one: an Error.
double series_difference(const Json& recorded, const std::vector<double>& ours, const std::string& where) {
  if (!recorded.is_array()) fail("{} must be a list of numbers", where);
  double worst = 0;
  size_t compared = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (recorded[i].is_null()) continue;
    if (!recorded[i].is_number()) fail("{} must be a list of numbers", where);
    ++compared;
    if (i >= ours.size()) return INFINITY;
    double want = recorded[i].get<double>(), difference = std::fabs(ours[i] - want) / std::max(std::fabs(want), 1e-300);
    if (want == ours[i]) difference = 0;
    if (!(difference <= worst)) worst = difference;
  }
  if (ours.size() > compared) fail("{} has {} numbers, the replayed run made {}", where, compared, ours.size());
  return worst;
}

void replay_fit(const Case& c, Trainer& trainer, Json& result) {
  const std::string& path = c.path;
  FitOptions options;
  options.epochs = static_cast<int>(json_get<int64_t>(c.json, "epochs", path));
  options.batch_size = json_get<int64_t>(c.json, "batch_size", path);
  if (json_get_or<bool>(c.json, "shuffle", false, path)) fail("{}: shuffled runs cannot be replayed", path);
  options.shuffle = false;
  if (c.json.contains("fit")) {
    const Json& fit = c.json["fit"];
    if (fit.contains("patience") && !fit["patience"].is_null())
      options.patience = static_cast<int>(json_get<int64_t>(fit, "patience", path + ": fit"));
    options.min_delta = json_get_or<double>(fit, "min_delta", 0, path + ": fit");
  }
  if (c.find("X_val")) options.X_val = c.tensor("X_val"), options.y_val = c.tensor("y_val");
  History history = trainer.fit(c.tensor("X"), c.tensor("y"), options);
  const Json& recorded = json_at(c.json, "history", path);
  double train = series_difference(json_at(recorded, "train_loss", path), history.train_loss, path + ": train_loss");
  double validation =
      recorded.contains("val_loss") ? series_difference(recorded["val_loss"], history.val_loss, path + ": val_loss") : 0;
  result["max_relative_loss_difference"] = json_number(std::max(train, validation));
  result["stopped_epoch"] = history.stopped_epoch;
  if (c.json.contains("stopped_epoch")) result["recorded_stopped_epoch"] = c.json["stopped_epoch"];
  if (history.best_epoch) result["best_epoch"] = *history.best_epoch;
  if (recorded.contains("lr"))
    result["max_relative_lr_difference"] = json_number(series_difference(recorded["lr"], history.lr, path + ": lr"));
  if (c.find("prediction"))
    result["max_abs_prediction_difference"] =
        json_number(max_abs_difference(trainer.predict(c.tensor("X")), c.tensor("prediction"), "prediction", path));
}

void replay_steps(const Case& c, Trainer& trainer, Json& result) {
  const Tensor &X = c.tensor("X"), &Y = c.tensor("Y");
  if (X.rank() < 2 || Y.rank() < 2 || X.dim(0) != Y.dim(0))
    fail("{}: X {} and Y {} must be [steps, batch, ..]", c.path, X.shape().str(), Y.shape().str());
  if (c.find("logits_step0"))
    result["max_abs_logits_difference"] = json_number(
        max_abs_difference(trainer.predict(X.slice(0, 0, 1).squeeze(0)), c.tensor("logits_step0"), "logits_step0", c.path));
  std::vector<double> losses;
  for (int64_t s = 0; s < X.dim(0); ++s)
    losses.push_back(trainer.train_step(X.slice(0, s, s + 1).squeeze(0), Y.slice(0, s, s + 1).squeeze(0)).item());
  result["max_relative_loss_difference"] =
      json_number(series_difference(json_at(c.json, "losses", c.path), losses, c.path + ": losses"));
}

int reference(const ReferenceOptions& o) {
  const bool compiled = is_compiled(o.mode);  // before the files are read
  Case c = load_case(o.file);
  set_initial(c);
  auto optimizer = optimizer_of(json_at(c.json, "optimizer", c.path), c.path + ": optimizer");
  TrainerOptions options = trainer_options_of(c);
  options.compile = compiled;
  options.num_threads = configured_threads();
  if (c.json.contains("schedule")) options.schedule = schedule_of(c.json["schedule"], c.path + ": schedule");
  Trainer trainer(*c.model, loss_of(json_get<std::string>(c.json, "loss", c.path), c.path), *optimizer, options);
  Json result = {
      {"case", json_get_or<std::string>(c.json, "case", c.path, c.path)}, {"mode", o.mode}, {"threads", configured_threads()}};
  auto kind = json_get<std::string>(c.json, "kind", c.path);
  if (kind == "fit")
    replay_fit(c, trainer, result);
  else if (kind == "per_step")
    replay_steps(c, trainer, result);
  else
    fail("{}: unknown kind \"{}\"; it is fit or per_step", c.path, kind);
  auto [worst, which] = final_difference(c);
  result["max_abs_parameter_difference"] = json_number(worst);
  result["parameter_that_differs_most"] = which;
  o.json ? print_json(result) : print_readable(result);
  return 0;
}

}  // namespace

void add_reference(CLI::App& app, Action& action) {
  auto o = std::make_shared<ReferenceOptions>();
  CLI::App* command = add_command(app, "reference", "replays a training run recorded in another framework");
  command->add_option("file", o->file, "CASE.json, with CASE.safetensors beside it")->required();
  add_mode_option(command, o->mode);
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return reference(*o); }; });
}

}  // namespace ws::cli
