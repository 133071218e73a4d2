// generate: continues a prompt with a trained model, token by token.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/model_from_json.h"
#include "api/training_state.h"
#include "choices.h"
#include "command.h"
#include "io/checkpoint.h"
#include "io/corpus.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct GenerateOptions {
  std::string checkpoint, prompt = "and ";
  int64_t tokens = 200, top_k = 0;
  double temperature = 0.8;
  uint64_t seed = 0;
  bool json = false;
};

// Draws from softmax(logits / temperature) over the top_k largest (0: all); temperature 0 takes the largest.
int32_t sample(std::span<const float> logits, const GenerateOptions& o, RandomStream& stream) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (o.temperature == 0) return static_cast<int32_t>(order[0]);
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < order.size()) order.resize(static_cast<size_t>(o.top_k));
  std::vector<double> weights;
  double sum = 0;
  for (size_t token : order) {
    weights.push_back(std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]])) / o.temperature));
    sum += weights.back();
  }
  double at = stream.uniform() * sum;
  for (size_t i = 0; i < order.size(); ++i)
    if ((at -= weights[i]) < 0) return static_cast<int32_t>(order[i]);
  return static_cast<int32_t>(order.back());
}

// One line that names them, as JSON writes them: a line break is "\n".
void warn_of_unknown_symbols(const Vocabulary& vocabulary, const std::string& prompt) {
  constexpr size_t kNamed = 10;
  std::vector<std::string> unknown = vocabulary.unknown_in(prompt);
  if (unknown.empty()) return;
  const std::string more = unknown.size() > kNamed ? fmt::format(" and {} more", unknown.size() - kNamed) : "";
  unknown.resize(std::min(unknown.size(), kNamed));
  for (std::string& symbol : unknown) symbol = Json(symbol).dump();
  note("--prompt: the model's vocabulary lacks {}{}, which it reads as unknown", fmt::join(unknown, ", "), more);
}

int generate(const GenerateOptions& o) {
  if (!(o.temperature >= 0)) fail("--temperature must not be negative, it is {}", o.temperature);
  check_is_text(o.prompt, "--prompt");
  std::string folder = find_checkpoint(o.checkpoint);
  Json config = load_checkpoint_config(folder);
  std::string where = folder + "/config.json";
  if (!config.contains("vocabulary"))
    fail("{} holds no text model, which has a vocabulary: generate needs a gpt that `wholestep train` has trained on a text",
         folder);
  const Json& words = json_at(config, "vocabulary", where);
  Vocabulary vocabulary = Vocabulary::restore(json_get<std::string>(words, "kind", where), json_texts(words, "symbols", where));
  auto block = json_get<int64_t>(config, "block", where);
  if (block < 1 || block > kMaxSeq) fail("{}: \"block\" must be from 1 to {}, not {}", where, kMaxSeq, block);
  auto model = model_from_json(json_at(config, "model", where), Key(0), where);
  load_checkpoint_model(folder, model_state(*model));
  model->eval();
  DType dtype = DType::f32;  // as it was trained
  MatmulPrecision products = MatmulPrecision::highest;
  if (config.contains("options")) {
    dtype = compute_dtype_of(json_get_or<std::string>(config["options"], "dtype", "fp32", where));
    products = matmul_precision_of(json_get_or<std::string>(config["options"], "matmul-precision", "highest", where));
  }

  std::vector<int32_t> tokens = vocabulary.encode(o.prompt);
  if (tokens.empty()) fail("--prompt must not be empty");
  warn_of_unknown_symbols(vocabulary, o.prompt);
  size_t prompt_length = tokens.size();
  std::vector<Variable> state;
  model->collect_state(state);
  // One program for every length: the window is filled up at its end, and a causal model does not look there.
  Compiled forward(
      [&](std::span<const Tensor> in) { return std::vector<Tensor>{(*model)(in[0])}; }, state,
      {.name = "generate", .num_threads = configured_threads(), .compute_dtype = dtype, .matmul_precision = products});
  NoGrad no_grad;
  RandomStream stream(Key(o.seed).fold("generate"));
  double begin = now_seconds();
  for (int64_t i = 0; i < o.tokens; ++i) {
    size_t used = std::min(tokens.size(), static_cast<size_t>(block));
    std::vector<int32_t> window(tokens.end() - static_cast<std::ptrdiff_t>(used), tokens.end());
    window.resize(static_cast<size_t>(block), 0);
    const Tensor inputs[] = {Tensor::from(window, {1, block})};
    std::vector<float> logits = forward(inputs)[0].to_vector<float>();  // [1, block, vocab]
    auto vocab = static_cast<size_t>(vocabulary.size());
    tokens.push_back(sample(std::span(logits).subspan((used - 1) * vocab, vocab), o, stream));
    if (o.json) continue;
    // As they are made; the prompt with the first, which may still fail.
    fmt::print("{}", vocabulary.decode(std::span(tokens).last(i == 0 ? tokens.size() : 1)));
    std::fflush(stdout);
  }
  double seconds = now_seconds() - begin;
  if (o.json)
    print_json({{"prompt", o.prompt},
                {"text", vocabulary.decode(std::span(tokens).subspan(prompt_length))},
                {"tokens", o.tokens},
                {"seconds", seconds}});
  else
    fmt::print("\n");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto o = std::make_shared<GenerateOptions>();
  CLI::App* command = add_command(app, "generate", "continues a prompt with a trained model");
  command->add_option("--checkpoint", o->checkpoint, "folder that train wrote")->required();
  command->add_option("--prompt", o->prompt, "text to continue");
  add_number(command, "--tokens", o->tokens, 1, kMaxSeq, "symbols to write");
  add_real(command, "--temperature", o->temperature, "0 takes the likeliest symbol each time");
  add_number(command, "--top-k", o->top_k, 0, kMaxSeq, "draw from the k likeliest only; 0: all");
  add_seed(command, o->seed, "of the draws");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return generate(*o); }; });
}

}  // namespace ws::cli
