// Models as JSON, in the words of the recorded reference runs.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "support/json.h"
#include "wholestep/models.h"

namespace ws {

/// Blocks, hidden layers or convolutions of a model, in JSON and on the command line.
constexpr int64_t kMaxBlocks = 10'000;

/// Throws an Error naming `where` and the key where `object` has a key outside `known`.
void check_known_keys(const Json& object, std::initializer_list<std::string_view> known, const std::string& where);

Json gpt_config_to_json(const models::GptConfig& config);
models::GptConfig gpt_config_from_json(const Json& json, const std::string& where);
Json encoder_config_to_json(const models::TransformerEncoderConfig& config);
models::TransformerEncoderConfig encoder_config_from_json(const Json& json, const std::string& where);

}  // namespace ws
