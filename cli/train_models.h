// The models that `train` builds by a word, as JSON: what a checkpoint keeps and model_from_json() builds.
#pragma once
#include <string>

#include "support/json.h"
#include "wholestep/error.h"
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

/// A message of the layers of `model`, where that is a FILE.json with its name first.
std::string naming_file(const std::string& model, const std::string& message);
/// Calls `body`; an Error of the layers that a FILE.json describes names the file.
template <class F>
auto with_file_named(const std::string& model, F&& body) {
  try {
    return body();
  } catch (const RuntimeError&) {
    throw;  // of a step, not of what the file says
  } catch (const MemoryError&) {
    throw;
  } catch (const Error& e) {
    throw Error(naming_file(model, e.what()));
  }
}

}  // namespace ws::cli
