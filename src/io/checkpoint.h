// A checkpoint: a folder with config.json (how to build the model and read its text), model.safetensors, optimizer.safetensors,
// state.json (step, epoch, position of the random streams) and, from fit, history.safetensors. Written beside its place and put there
// in one step.
#pragma once
#include <string>

#include "io/tensors.h"
#include "support/json.h"

namespace ws {

struct CheckpointContents {
  Json config, state;
  NamedVariables model, optimizer;
  NamedTensors history = {};  // no file where empty
};

void save_checkpoint(const std::string& folder, const CheckpointContents& contents);
/// The folder itself, or its sub-folder "checkpoint" (what `train --out` leaves); an Error where neither holds one.
std::string find_checkpoint(const std::string& folder);
Json load_checkpoint_config(const std::string& folder);
Json load_checkpoint_state(const std::string& folder);
void load_checkpoint_model(const std::string& folder, const NamedVariables& model);
void load_checkpoint_optimizer(const std::string& folder, const NamedVariables& optimizer);
/// Both, or none: nothing has changed where one does not fit.
void load_checkpoint_variables(const std::string& folder, const NamedVariables& model, const NamedVariables& optimizer);
NamedTensors load_checkpoint_history(const std::string& folder);

/// A list of a checkpoint's JSON; an Error names the list where it is none, or holds something else.
std::vector<double> json_numbers(const Json& object, const std::string& key, const std::string& where);
std::vector<std::string> json_texts(const Json& object, const std::string& key, const std::string& where);

}  // namespace ws
