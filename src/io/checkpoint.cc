#include "io/checkpoint.h"

#include <algorithm>

#include "io/file.h"
#include "support/error.h"

namespace ws {
namespace {

Json read_json(const std::string& path) {
  MappedFile file(path);
  Json json = parse_json(file.text(), path);
  if (!json.is_object()) fail("{} must hold an object, not {}", path, json.is_null() ? "null" : json.type_name());
  return json;
}

template <class T, class Is>
std::vector<T> list_of(const Json& object, const std::string& key, const std::string& where, const char* what, Is&& is) {
  const Json& list = json_at(object, key, where);
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is)) fail("{}: \"{}\" must be a list of {}", where, key, what);
  return list.get<std::vector<T>>();
}

}  // namespace

void save_checkpoint(const std::string& folder, const CheckpointContents& contents) {
  write_folder(folder, [&](const std::string& temporary) {
    save_variables(temporary + "/model.safetensors", contents.model);
    save_variables(temporary + "/optimizer.safetensors", contents.optimizer);
    if (!contents.history.empty()) save_tensors(temporary + "/history.safetensors", contents.history);
    write_file(temporary + "/state.json", contents.state.dump(1) + "\n");
    write_file(temporary + "/config.json", contents.config.dump(1) + "\n");
  });
}

std::string find_checkpoint(const std::string& folder) {
  std::error_code ignored;  // what cannot be looked at holds nothing
  for (const std::string& place : {folder, folder + "/checkpoint"})
    if (std::filesystem::exists(place + "/config.json", ignored)) return place;
  fail("{} holds no checkpoint (config.json)", folder);
}

Json load_checkpoint_config(const std::string& folder) { return read_json(folder + "/config.json"); }
Json load_checkpoint_state(const std::string& folder) { return read_json(folder + "/state.json"); }
void load_checkpoint_model(const std::string& folder, const NamedVariables& model) {
  load_variables(folder + "/model.safetensors", model);
}
void load_checkpoint_optimizer(const std::string& folder, const NamedVariables& optimizer) {
  load_variables(folder + "/optimizer.safetensors", optimizer);
}
void load_checkpoint_variables(const std::string& folder, const NamedVariables& model, const NamedVariables& optimizer) {
  std::vector<Tensor> before;
  for (const auto& [name, variable] : model) before.push_back(variable.value());
  load_checkpoint_model(folder, model);
  try {
    load_checkpoint_optimizer(folder, optimizer);
  } catch (...) {
    for (size_t i = 0; i < model.size(); ++i) Variable(model[i].second).set(before[i]);
    throw;
  }
}
std::vector<double> json_numbers(const Json& object, const std::string& key, const std::string& where) {
  return list_of<double>(object, key, where, "numbers", [](const Json& x) { return x.is_number(); });
}
std::vector<std::string> json_texts(const Json& object, const std::string& key, const std::string& where) {
  return list_of<std::string>(object, key, where, "texts", [](const Json& x) { return x.is_string(); });
}
NamedTensors load_checkpoint_history(const std::string& folder) { return load_tensors(folder + "/history.safetensors"); }

}  // namespace ws
