#include "train_models.h"

#include "api/json_config.h"
#include "io/file.h"
#include "support/error.h"
#include "workload.h"

namespace ws::cli {
namespace {

Json dense(int64_t in, int64_t out) { return {{"type", "dense"}, {"n_in", in}, {"n_out", out}}; }
Json plain(const char* type) { return {{"type", type}}; }

Json mlp(const ModelRequest& r) {
  Json layers = Json::array();
  if (r.features.rank() != 1) layers.push_back(plain("flatten"));
  int64_t in = r.features.num_elements();
  for (int64_t i = 0; i < r.blocks; ++i, in = r.width) {
    layers.push_back(dense(in, r.width));
    layers.push_back(plain("relu"));
  }
  layers.push_back(dense(in, r.num_outputs));
  return {{"type", "sequential"}, {"layers", layers}};
}

// Each block convolves, normalises and halves the image while it doubles the channels; one hidden layer decides.
Json convnet(const ModelRequest& r) {
  if (r.features.rank() != 3)
    fail("convnet: samples of shape {} are no images [height, width, channels]; --model mlp takes any", r.features.str());
  int64_t height = r.features[0], width = r.features[1], in = r.features[2], out = r.width;
  constexpr int64_t kHidden = 128;
  constexpr double kDropConvolved = 0.25, kDropHidden = 0.25;
  Json layers = Json::array();
  for (int64_t i = 0; i < r.blocks; ++i, in = out, out *= 2, height /= 2, width /= 2) {
    if (height < 2 || width < 2)
      fail("convnet: {} blocks halve images of {} x {} to nothing; use fewer", r.blocks, r.features[0], r.features[1]);
    layers.push_back({{"type", "conv2d"}, {"n_in", in}, {"n_out", out}, {"kernel", 3}, {"padding", 1}});
    layers.push_back({{"type", "batch_norm"}, {"n", out}});
    layers.push_back(plain("relu"));
    layers.push_back({{"type", "max_pool"}, {"kernel", 2}});
  }
  layers.push_back(plain("flatten"));
  layers.push_back({{"type", "dropout"}, {"p", kDropConvolved}});
  layers.push_back(dense(height * width * in, kHidden));
  layers.push_back(plain("relu"));
  layers.push_back({{"type", "dropout"}, {"p", kDropHidden}});
  layers.push_back(dense(kHidden, r.num_outputs));
  return {{"type", "sequential"}, {"layers", layers}};
}

Json encoder(const ModelRequest& r) {
  if (r.features.rank() != 2) fail("encoder: samples of shape {} are no sequences [positions, features]", r.features.str());
  models::TransformerEncoderConfig config;
  config.inputs = r.features[1], config.outputs = r.num_outputs, config.max_len = r.features[0];
  config.width = r.width, config.hidden = 4 * r.width, config.blocks = r.blocks;
  check_heads("an encoder", config.width, config.heads, false);
  return encoder_config_to_json(config);
}

}  // namespace

void check_learns(const std::string& model, bool samples, const std::string& data) {
  if (model == "gpt" && samples) fail("gpt learns texts; samples are for mlp, convnet, encoder or a FILE.json");
  if ((model == "mlp" || model == "convnet" || model == "encoder") && !samples)
    fail(
        "{} learns samples (fashion-mnist, FILE.npz, FILE.safetensors, FILE.csv, FILE.tsv, a folder of IDX files); "
        "--data {} is read as a text",
        model, data);
}

Json describe_model(const ModelRequest& r) {
  if (has_extension(r.model, ".json")) return parse_json(MappedFile(r.model).text(), r.model);
  if (r.model == "gpt") {
    const models::GptConfig config = book_gpt(r.num_outputs, r.width, r.blocks, r.seq);
    check_heads("a gpt", config.width, config.heads, config.pos == models::PositionKind::rope);
    check_memory(r.blocks, r.width, r.batch * r.seq, kSquaresPerBlock * r.blocks);
    return gpt_config_to_json(config);
  }
  static const std::pair<const char*, Json (*)(const ModelRequest&)> kDescribers[] = {
      {"mlp", mlp}, {"convnet", convnet}, {"encoder", encoder}};
  for (const auto& [word, describe] : kDescribers) {
    if (r.model != word) continue;
    check_memory(r.blocks, r.width, r.batch, r.model == "encoder" ? kSquaresPerBlock * r.blocks : r.blocks - 1);
    return describe(r);
  }
  fail("unknown model '{}': gpt, mlp, convnet, encoder or a FILE.json that describes one", r.model);
}

std::string naming_file(const std::string& model, const std::string& message) {
  return !has_extension(model, ".json") || message.starts_with(model) ? message : model + ": " + message;
}

}  // namespace ws::cli
