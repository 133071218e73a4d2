#include "io/checkpoint.h"

#include "io/file.h"
#include "support/error.h"

namespace ws {
namespace {

Json read_json(const std::string& path) {
  MappedFile file(path);
  return parse_json(file.text(), path);
}

}  // namespace

void save_checkpoint(const std::string& folder, const CheckpointContents& contents) {
  write_folder(folder, [&](const std::string& temporary) {
    save_variables(temporary + "/model.safetensors", contents.model);
    save_variables(temporary + "/optimizer.safetensors", contents.optimizer);
    write_file(temporary + "/state.json", contents.state.dump(1) + "\n");
    write_file(temporary + "/config.json", contents.config.dump(1) + "\n");
  });
}

std::string find_checkpoint(const std::string& folder) {
  for (const std::string& place : {folder, folder + "/checkpoint"})
    if (std::filesystem::exists(place + "/config.json")) return place;
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

}  // namespace ws
