// The models that `train` builds by a word, as JSON: what a checkpoint keeps and model_from_json() builds.
#pragma once
#include <string>

#include "support/json.h"
#include "wholestep/shape.h"

namespace ws::cli {

struct ModelRequest {
  std::string model;  // gpt, mlp, convnet, encoder, FILE.json
  int64_t width, blocks, batch, seq;
  int64_t num_outputs;  // of a gpt its symbols
  Shape features;       // of a sample; of a text empty
};

/// Refuses a model that learns texts for samples, and the other way round: before `data` is read.
void check_learns(const std::string& model, bool samples, const std::string& data);

/// An Error lists the known words, or names what does not fit the data.
Json describe_model(const ModelRequest& request);

}  // namespace ws::cli
