// Builds a model from its JSON description: the models of wholestep/models.h, and `sequential` with the layer words of the
// recorded reference runs. Used by `train --model FILE.json` and `reference`.
#pragma once
#include <memory>
#include <string>

#include "support/json.h"
#include "wholestep/module.h"

namespace ws {

/// {"type": "mlp" | "transformer_encoder" | "gpt" | "sequential", ...}. Errors name `where`, the key or word, and what is known.
std::unique_ptr<Module> model_from_json(const Json& model, Key key = Key(0), const std::string& where = "model");

}  // namespace ws
