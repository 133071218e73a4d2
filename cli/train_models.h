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

/// An Error lists the known words, or names what does not fit the data.
Json describe_model(const ModelRequest& request);

}  // namespace ws::cli
