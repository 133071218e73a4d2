#include "api/json_config.h"

#include <algorithm>

#include "support/error.h"

namespace ws {
namespace {

template <class Enum>
struct Word {
  const char* word;
  Enum value;
};

constexpr Word<models::PositionKind> kPositions[] = {{"rope", models::PositionKind::rope},
                                                     {"learned", models::PositionKind::learned},
                                                     {"sinusoidal", models::PositionKind::sinusoidal}};
constexpr Word<NormKind> kNorms[] = {{"rms", NormKind::rms}, {"layer", NormKind::layer}};
constexpr Word<bool> kActs[] = {{"swiglu", true}, {"gelu", false}};
constexpr Word<bool> kGelus[] = {{"tanh", true}, {"exact", false}};
constexpr Word<RopePairs> kPairs[] = {{"interleaved", RopePairs::interleaved}, {"half", RopePairs::half_split}};

template <class Enum, size_t N>
Enum read_word(const Json& json, const char* key, const Word<Enum> (&words)[N], Enum otherwise, const std::string& where) {
  if (!json.contains(key)) return otherwise;
  auto word = json_get<std::string>(json, key, where);
  std::string known;
  for (const auto& w : words) {
    if (word == w.word) return w.value;
    known += (known.empty() ? "" : ", ") + std::string(w.word);
  }
  fail("{}: \"{}\" is \"{}\"; known words are {}", where, key, word, known);
}

template <class Enum, size_t N>
const char* word_of(Enum value, const Word<Enum> (&words)[N]) {
  for (const auto& w : words)
    if (w.value == value) return w.word;
  return "?";
}

int64_t read_size(const Json& json, const char* key, int64_t otherwise, const std::string& where, int64_t least = 1) {
  auto value = json_get_or<int64_t>(json, key, otherwise, where);
  if (value < least) fail("{}: \"{}\" is {}, but must be at least {}", where, key, value, least);
  return value;
}

int64_t read_blocks(const Json& json, const char* key, int64_t otherwise, const std::string& where) {
  const int64_t value = read_size(json, key, otherwise, where, 0);
  if (value > kMaxBlocks) fail("{}: \"{}\" is {}, but may be at most {}", where, key, value, kMaxBlocks);
  return value;
}

}  // namespace

void check_known_keys(const Json& object, std::initializer_list<std::string_view> known, const std::string& where) {
  if (!object.is_object()) fail("{}: an object was expected", where);
  for (const auto& [key, value] : object.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("{}: unknown key \"{}\"; known ones are {}", where, key, fmt::join(known, ", "));
}

Json gpt_config_to_json(const models::GptConfig& c) {
  return {{"type", "gpt"},
          {"vocab_size", c.vocab},
          {"num_hiddens", c.width},
          {"num_heads", c.heads},
          {"num_blks", c.blocks},
          {"max_len", c.max_len},
          {"pos", word_of(c.pos, kPositions)},
          {"norm", word_of(c.norm, kNorms)},
          {"act", word_of(c.swiglu, kActs)},
          {"pre_norm", c.pre_norm},
          {"bias", c.bias},
          {"tied_head", c.tied_head},
          {"norm_eps", c.norm_eps},
          {"gelu", word_of(c.gelu_tanh, kGelus)},
          {"rope_pairs", word_of(c.rope_pairs, kPairs)},
          {"checkpoint", c.checkpoint},
          {"dropout", c.dropout}};
}

models::GptConfig gpt_config_from_json(const Json& json, const std::string& where) {
  check_known_keys(json,
                   {"type", "vocab_size", "num_hiddens", "num_heads", "num_blks", "max_len", "pos", "norm", "act", "pre_norm",
                    "bias", "tied_head", "norm_eps", "gelu", "rope_pairs", "checkpoint", "dropout"},
                   where);
  if (json_get_or<std::string>(json, "type", "gpt", where) != "gpt") fail("{}: \"type\" must be \"gpt\"", where);
  models::GptConfig c;
  c.vocab = read_size(json, "vocab_size", c.vocab, where);
  c.width = read_size(json, "num_hiddens", c.width, where);
  c.heads = read_size(json, "num_heads", c.heads, where);
  c.blocks = read_blocks(json, "num_blks", c.blocks, where);
  c.max_len = read_size(json, "max_len", c.max_len, where);
  c.pos = read_word(json, "pos", kPositions, c.pos, where);
  c.norm = read_word(json, "norm", kNorms, c.norm, where);
  c.swiglu = read_word(json, "act", kActs, c.swiglu, where);
  c.pre_norm = json_get_or<bool>(json, "pre_norm", c.pre_norm, where);
  c.bias = json_get_or<bool>(json, "bias", c.bias, where);
  c.tied_head = json_get_or<bool>(json, "tied_head", c.tied_head, where);
  c.norm_eps = json_get_or<double>(json, "norm_eps", c.norm_eps, where);
  c.gelu_tanh = read_word(json, "gelu", kGelus, c.gelu_tanh, where);
  c.rope_pairs = read_word(json, "rope_pairs", kPairs, c.rope_pairs, where);
  c.checkpoint = json_get_or<bool>(json, "checkpoint", c.checkpoint, where);
  c.dropout = json_get_or<double>(json, "dropout", c.dropout, where);
  return c;
}

Json encoder_config_to_json(const models::TransformerEncoderConfig& c) {
  return {{"type", "transformer_encoder"},
          {"inputs", c.inputs},
          {"width", c.width},
          {"outputs", c.outputs},
          {"blocks", c.blocks},
          {"heads", c.heads},
          {"hidden", c.hidden},
          {"max_len", c.max_len},
          {"causal", c.causal},
          {"checkpoint", c.checkpoint},
          {"dropout", c.dropout}};
}

models::TransformerEncoderConfig encoder_config_from_json(const Json& json, const std::string& where) {
  check_known_keys(
      json, {"type", "inputs", "width", "outputs", "blocks", "heads", "hidden", "max_len", "causal", "checkpoint", "dropout"},
      where);
  models::TransformerEncoderConfig c;
  c.inputs = read_size(json, "inputs", c.inputs, where);
  c.width = read_size(json, "width", c.width, where);
  c.outputs = read_size(json, "outputs", c.outputs, where);
  c.blocks = read_blocks(json, "blocks", c.blocks, where);
  c.heads = read_size(json, "heads", c.heads, where);
  c.hidden = read_size(json, "hidden", c.hidden, where);
  c.max_len = read_size(json, "max_len", c.max_len, where);
  c.causal = json_get_or<bool>(json, "causal", c.causal, where);
  c.checkpoint = json_get_or<bool>(json, "checkpoint", c.checkpoint, where);
  c.dropout = json_get_or<double>(json, "dropout", c.dropout, where);
  return c;
}

}  // namespace ws
