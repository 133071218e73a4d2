#include "ladder/task.h"

#include <cmath>

#include "api/json_config.h"
#include "api/model_from_json.h"
#include "io/file.h"
#include "support/error.h"
#include "support/flags.h"

namespace ws::cli {
namespace {

bool is_book(const TaskOptions& o) { return o.preset == "book"; }

Json description_of(const TaskOptions& o) {
  if (o.model == "gpt") return gpt_config_to_json(is_book(o) ? book_gpt(0, 512, 6, o.seq) : book_gpt(0, 128, 4, o.seq));
  if (o.model == "encoder") {
    models::TransformerEncoderConfig config;
    config.width = is_book(o) ? 256 : 128, config.hidden = 4 * config.width, config.max_len = o.seq;
    return encoder_config_to_json(config);
  }
  if (o.model == "mlp") return {{"type", "mlp"}, {"sizes", std::vector<int64_t>(5, is_book(o) ? 512 : 256)}};
  if (has_extension(o.model, ".json")) return parse_json(MappedFile(o.model).text(), o.model);
  fail("unknown model '{}': gpt, encoder, mlp or a FILE.json that describes one", o.model);
}

// Windows of a text. The sampler reads the corpus, which both closures keep.
void add_text(Task& task, const TaskOptions& o) {
  auto corpus = std::make_shared<Corpus>(open_text(o.text, o.vocab, o.seq));
  auto windows = std::make_shared<WindowSampler>(corpus->train(), o.seq, Key(o.seed).fold("windows"));
  task.draw = [corpus, windows](int64_t step, int64_t batch) { return windows->draw(step, batch); };
  // As a loader that keeps nothing: reads and encodes the text again for each batch.
  task.stream = [o](int64_t step, int64_t batch) {
    Corpus fresh = open_text(o.text, o.vocab, o.seq);
    return WindowSampler(fresh.train(), o.seq, Key(o.seed).fold("windows")).draw(step, batch);
  };
  if (static_cast<int64_t>(corpus->validation().size()) > o.seq)
    task.validation = WindowSampler(corpus->validation(), o.seq, Key(0)).spread(64);
  task.config = text_config(*corpus, o.seq);
  task.data = fmt::format("{} tokens of {}", corpus->tokens.size(), corpus->name);
  if (o.model == "gpt") task.description["vocab_size"] = corpus->vocabulary.size();
}

// Random inputs; the targets are a fixed function of them, so that there is something to learn.
Samples taught(Key key, const Shape& inputs, const Tensor& teacher, bool over_time) {
  NoGrad no_grad;
  std::vector<float> values(static_cast<size_t>(inputs.num_elements()));
  init::normal(1.0)(values, inputs, key);
  Tensor X = Tensor::from(values, inputs);
  Tensor y = tanh(matmul(X, teacher));
  return {X, over_time ? y.mean({1}) : y};
}

Tensor make_teacher(int64_t in, int64_t out, uint64_t seed) {
  Shape shape{in, out};
  std::vector<float> values(static_cast<size_t>(in * out));
  init::normal(1.0 / std::sqrt(static_cast<double>(in)))(values, shape, Key(seed).fold("teacher"));
  return Tensor::from(values, shape);
}

void add_taught(Task& task, const Shape& sample, int64_t outputs, uint64_t seed) {
  Tensor teacher = make_teacher(sample.back(), outputs, seed);
  bool over_time = sample.rank() == 2;
  auto draw = [=](Key key, int64_t batch) {
    std::vector<int64_t> dims{batch};
    dims.insert(dims.end(), sample.begin(), sample.end());
    return taught(key, Shape(dims), teacher, over_time);
  };
  task.draw = [=](int64_t step, int64_t batch) { return draw(Key(seed).fold("data").fold(static_cast<uint64_t>(step)), batch); };
  task.validation = draw(Key(seed).fold("validation"), 64);
  task.data = "random inputs with taught targets";
}

}  // namespace

Task make_task(const TaskOptions& o) {
  Task task;
  task.name = o.model;
  task.seed = o.seed;
  task.config = Json::object();
  task.description = description_of(o);
  auto type = json_get<std::string>(task.description, "type", o.model);
  if (type == "gpt") {
    add_text(task, o);
    task.batch = is_book(o) ? 64 : 16;
    task.loss = SoftmaxCrossEntropy();
  } else if (type == "transformer_encoder") {
    auto config = encoder_config_from_json(task.description, o.model);
    add_taught(task, Shape{o.seq, config.inputs}, config.outputs, o.seed);
    task.batch = is_book(o) ? 32 : 16;
    task.loss = MSE();
  } else if (o.model == "mlp") {
    int64_t width = is_book(o) ? 512 : 256;
    add_taught(task, Shape{width}, width, o.seed);
    task.batch = is_book(o) ? 256 : 128;
    task.loss = MSE();
  } else {
    fail("--model {}: the ladder trains a gpt or a transformer_encoder, not a {}", o.model, type);
  }
  task.has_blocks = o.model != "mlp";
  task.item = task.has_blocks ? "tokens" : "samples";
  task.items_per_sample = task.has_blocks ? o.seq : 1;
  return task;
}

std::unique_ptr<Module> Task::make_model(const Setup& setup) const {
  Json wanted = description;
  if (has_blocks) wanted["checkpoint"] = setup.checkpoint;
  auto type = json_get<std::string>(wanted, "type", name);
  if (type == "gpt") return std::make_unique<models::Gpt>(gpt_config_from_json(wanted, name), Key(seed), setup.parts);
  if (type == "transformer_encoder")
    return std::make_unique<models::TransformerEncoder>(encoder_config_from_json(wanted, name), Key(seed), setup.parts);
  return model_from_json(wanted, Key(seed), name);
}

Job::Job(const Task& task, const Setup& setup) : task_(task), setup_(setup), model_(task.make_model(setup)) {
  if (setup_.batch == 0) setup_.batch = task.batch;
  if (setup.muon)
    optimizer_ = std::make_unique<Muon>(MuonOptions{});
  else
    optimizer_ = std::make_unique<AdamW>(AdamWOptions{.lr = 1e-3, .weight_decay = 1e-4});
  TrainerOptions options;
  options.compile = setup.compile;
  options.num_threads = configured_threads();
  options.memory_budget_bytes = setup.memory_budget_bytes;
  if (setup.bf16) options.compute_dtype = DType::bf16;
  options.matmul_precision = setup.matmul_precision;
  trainer_ = std::make_unique<Trainer>(*model_, task.loss, *optimizer_, options);
}

double Job::compile() {
  Samples s = task_.draw(0, setup_.batch);
  trainer_->prepare(s.X, s.y);
  return program().compile_seconds();
}

void Job::step() { step_on(task_.draw(step_, setup_.batch)); }

void Job::step_on(const Samples& batch) {
  losses_.push_back(trainer_->train_step(batch.X, batch.y).item());
  ++step_;
}

double Job::evaluate() { return trainer_->evaluate(task_.validation.X, task_.validation.y, task_.validation.X.dim(0)); }

}  // namespace ws::cli
