// train: trains a model on a text (gpt) or on tensors X and y of a safetensors file, writes metrics as it goes and a checkpoint that
// `train --resume` continues bit for bit and `generate` reads.
#include <algorithm>
#include <cmath>
#include <deque>

#include "api/json_config.h"
#include "api/model_from_json.h"
#include "api/training_state.h"
#include "command.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "io/metrics.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/progress.h"
#include "text_data.h"
#include "workload.h"

namespace ws::cli {
namespace {

constexpr int64_t kUntilTheTimeIsUp = int64_t{1} << 40;  // steps of a run that --minutes ends

struct TrainOptions {
  std::string model = "gpt", data = "builtin", out, mode = "compiled", vocab = "letters", loss, schedule;
  OptimizerOptions optimizer;
  std::optional<double> clip;
  int64_t steps = 0, batch = 0, seq = 128, width = 256, blocks = 4, eval_every = 0, save_every = 0;
  std::optional<double> epochs_given, minutes_given;
  double epochs = 0, minutes = 0;
  uint64_t seed = 0;
  bool resume = false, json = false;
};

// Where batches come from, whatever the data.
struct Source {
  std::function<Samples(int64_t step)> batch;
  Samples validation;  // undefined where there is none
  double steps_per_epoch = 1;
  double items_per_step = 1;
  std::string item;              // "tokens", "samples"
  Json config = Json::object();  // what generate and resume need
};

Source text_source(const TrainOptions& o, int64_t batch, int64_t seq, const Corpus& corpus) {
  Source s;
  auto train = std::make_shared<WindowSampler>(corpus.train(), seq, Key(o.seed).fold("windows"));
  s.batch = [train, batch](int64_t step) { return train->draw(step, batch); };
  if (static_cast<int64_t>(corpus.validation().size()) > seq)
    s.validation = WindowSampler(corpus.validation(), seq, Key(0)).spread(std::max<int64_t>(batch, 64));
  s.items_per_step = static_cast<double>(batch * seq);
  s.steps_per_epoch = std::max(1.0, static_cast<double>(corpus.num_train) / s.items_per_step);
  s.item = "tokens";
  s.config = text_config(corpus, seq);
  return s;
}

// X [N, ..] and y [N, ..] in batches; each epoch in an order of its own.
Source tensor_source(const TrainOptions& o, int64_t batch) {
  Samples all, validation;
  for (auto& [name, tensor] : load_tensors(o.data)) {
    if (name == "X")
      all.X = tensor;
    else if (name == "y")
      all.y = tensor;
    else if (name == "X_val")
      validation.X = tensor;
    else if (name == "y_val")
      validation.y = tensor;
  }
  if (!all.X.defined() || !all.y.defined()) fail("{} must hold the tensors X and y", o.data);
  if (all.X.rank() < 1 || all.y.rank() < 1 || all.X.dim(0) != all.y.dim(0) || all.X.dim(0) < 1)
    fail("{}: X {} and y {} must have the same number of samples, at least one", o.data, all.X.shape().str(),
         all.y.shape().str());
  int64_t n = all.X.dim(0), batches = (n + batch - 1) / batch;
  Source s;
  s.batch = [=, key = Key(o.seed).fold("order")](int64_t step) {
    std::vector<int64_t> order = random_permutation(key.fold(static_cast<uint64_t>(step / batches)), n);
    int64_t begin = step % batches * batch, end = std::min(n, begin + batch);
    std::vector<int32_t> rows;
    for (int64_t i = begin; i < end; ++i) rows.push_back(static_cast<int32_t>(order[static_cast<size_t>(i)]));
    NoGrad no_grad;
    Tensor index = Tensor::from(rows, {end - begin});
    return Samples{gather(all.X, index), gather(all.y, index)};
  };
  if (validation.X.defined() && validation.y.defined()) s.validation = validation;
  s.steps_per_epoch = static_cast<double>(batches);
  s.items_per_step = static_cast<double>(batch);
  s.item = "samples";
  return s;
}

class Run {
 public:
  Run(const TrainOptions& o, Json config, Source source, std::unique_ptr<Module> model, Loss loss, double default_lr,
      double default_decay)
      : o_(o), config_(std::move(config)), source_(std::move(source)), model_(std::move(model)),
        optimizer_(make_optimizer(o.optimizer, default_lr, default_decay)),
        trainer_(*model_, std::move(loss), *optimizer_,
                 {.compile = o.mode == "compiled", .clip_norm = o.clip, .num_threads = configured_threads()}),
        lr_(o.optimizer.lr.value_or(default_lr)) {
    total_ = o.steps > 0 ? o.steps : std::max<int64_t>(1, std::llround(o.epochs * source_.steps_per_epoch));
    schedule_ = make_schedule(o.schedule, lr_, total_, static_cast<double>(total_) / source_.steps_per_epoch);
  }

  int train() {
    if (o_.resume) restore();
    if (!o_.out.empty()) {
      std::error_code problem;
      std::filesystem::create_directories(o_.out, problem);
      if (problem) fail("cannot write {}: {}", o_.out, problem.message());
    }
    InterruptGuard guard;
    double begin = now_seconds();
    int64_t first_step = first_step_ = step_;
    {
      Progress progress("train", total_ == kUntilTheTimeIsUp ? 0 : total_ - first_step, source_.item, source_.items_per_step);
      while (step_ < total_ && !interrupted() && !(o_.minutes > 0 && now_seconds() - begin > 60 * o_.minutes)) {
        one_step();
        if (progress.due()) progress.update(step_ - first_step, recent_loss());
        if (o_.eval_every > 0 && step_ % o_.eval_every == 0) validate();
        if (o_.save_every > 0 && step_ % o_.save_every == 0) save();
      }
      progress.update(step_ - first_step, recent_loss());
      progress.finish();
    }
    seconds_ = now_seconds() - begin;
    trained_ = step_ - first_step;
    bool stopped = interrupted();
    if (!stopped && source_.validation.X.defined()) validate();
    save();
    report();
    if (stopped) {
      std::string of = total_ == kUntilTheTimeIsUp ? "" : fmt::format(" of {}", total_);
      note("stopped at step {}{}{}", step_, of, o_.out.empty() ? "" : "; saved, --resume continues");
      return kInterrupted;
    }
    return 0;
  }

 private:
  void one_step() {
    if (schedule_) {
      double lr = schedule_({static_cast<double>(step_) / source_.steps_per_epoch, step_});
      if (lr != optimizer_->lr()) optimizer_->set_lr(lr);
    }
    Samples batch = source_.batch(step_);
    double loss = trainer_.train_step(batch.X, batch.y).item();
    ++step_;
    if (first_losses_.size() < 20) first_losses_.push_back(loss);
    last_losses_.push_back(loss);
    if (last_losses_.size() > 20) last_losses_.pop_front();
    record({{"step", step_}, {"loss", json_number(loss)}, {"lr", optimizer_->lr()}});
  }

  // Opens metrics.jsonl at the first record, so that a run that fails before its first step leaves none.
  void record(const Json& what) {
    if (o_.out.empty()) return;
    std::string path = o_.out + "/metrics.jsonl";
    if (!metrics_) o_.resume ? metrics_.emplace(path, first_step_) : metrics_.emplace(path);
    metrics_->write(what);
  }

  template <class List>
  static double mean(const List& values) {
    double sum = 0;
    for (double v : values) sum += v;
    return values.empty() ? NAN : sum / static_cast<double>(values.size());
  }
  double recent_loss() const { return mean(last_losses_); }

  void validate() {
    if (!source_.validation.X.defined()) return;
    validation_loss_ = trainer_.evaluate(source_.validation.X, source_.validation.y, source_.validation.X.dim(0));
    record({{"step", step_}, {"validation_loss", json_number(validation_loss_)}});
  }

  Json state() const {
    return {{"step", step_},
            {"seed", o_.seed},
            {"first_losses", first_losses_},
            {"last_losses", std::vector<double>(last_losses_.begin(), last_losses_.end())}};
  }

  void save() const {
    if (o_.out.empty()) return;
    save_checkpoint(o_.out + "/checkpoint", {config_, state(), model_state(*model_), optimizer_state(*optimizer_)});
  }

  void restore() {
    std::string folder = find_checkpoint(o_.out);
    load_checkpoint_model(folder, model_state(*model_));
    load_checkpoint_optimizer(folder, optimizer_state(*optimizer_));
    Json state = load_checkpoint_state(folder);
    step_ = json_get<int64_t>(state, "step", folder + "/state.json");
    if (json_get<int64_t>(state, "seed", folder + "/state.json") != static_cast<int64_t>(o_.seed))
      fail("--resume: the checkpoint was made with --seed {}", state["seed"].dump());
    first_losses_ = state.value("first_losses", std::vector<double>{});
    auto last = state.value("last_losses", std::vector<double>{});
    last_losses_.assign(last.begin(), last.end());
    if (step_ >= total_) fail("--resume: the checkpoint is at step {} already, --steps is {}", step_, total_);
  }

  void report() const {
    Json result = {{"model", o_.model},
                   {"mode", o_.mode},
                   {"steps", step_},
                   {"seconds", seconds_},
                   {"mean_loss_first_20", json_number(mean(first_losses_))},
                   {"mean_loss_last_20", json_number(recent_loss())},
                   {"loss_last", last_losses_.empty() ? Json(nullptr) : json_number(last_losses_.back())}};
    if (!std::isnan(validation_loss_)) result["validation_loss"] = validation_loss_;
    result[source_.item + "_per_s"] = json_number(static_cast<double>(trained_) * source_.items_per_step / seconds_);
    if (!o_.out.empty()) result["checkpoint"] = o_.out + "/checkpoint";
    o_.json ? print_json(result) : print_readable(result);
  }

  const TrainOptions& o_;
  Json config_;
  Source source_;
  std::unique_ptr<Module> model_;
  std::unique_ptr<Optimizer> optimizer_;
  Trainer trainer_;
  double lr_;
  Schedule schedule_;
  std::optional<MetricsWriter> metrics_;
  int64_t total_ = 0, step_ = 0, first_step_ = 0, trained_ = 0;
  double seconds_ = 0, validation_loss_ = NAN;
  std::vector<double> first_losses_;
  std::deque<double> last_losses_;
};

Json model_description(const TrainOptions& o, int64_t vocab) {
  if (o.model.ends_with(".json")) return parse_json(MappedFile(o.model).text(), o.model);
  check_memory(o.blocks, o.width, std::max<int64_t>(o.batch, 1) * o.seq, 12);
  if (o.model == "gpt") return gpt_config_to_json(book_gpt(vocab, o.width, o.blocks, o.seq));
  if (o.model == "encoder") {
    models::TransformerEncoderConfig config;
    config.width = o.width, config.hidden = 4 * o.width, config.blocks = o.blocks, config.max_len = o.seq;
    return encoder_config_to_json(config);
  }
  fail("unknown model '{}': gpt, encoder or a FILE.json that describes one", o.model);
}

Loss loss_of(const TrainOptions& o, bool is_gpt) {
  std::string name = o.loss.empty() ? (is_gpt ? "cross_entropy" : "mse") : o.loss;
  if (name == "mse") return MSE();
  if (name == "cross_entropy") return SoftmaxCrossEntropy();
  fail("--loss must be mse or cross_entropy, not '{}'", name);
}

int train(TrainOptions o) {
  if (o.mode != "loop" && o.mode != "compiled") fail("--mode must be loop or compiled, not '{}'", o.mode);
  auto positive = [](const std::optional<double>& given, const char* option) {
    if (given && !(*given > 0 && *given < 1e9)) fail("{} must be a number above 0 and below 1e9, not {}", option, *given);
    return given.value_or(0);
  };
  o.epochs = positive(o.epochs_given, "--epochs"), o.minutes = positive(o.minutes_given, "--minutes");
  if (o.steps > 0 && o.epochs > 0) fail("give --steps or --epochs, not both");
  if (o.resume && o.out.empty()) fail("--resume needs --out DIR, the run to continue");
  if (o.steps == 0 && o.epochs == 0) {
    if (o.minutes > 0 && !o.schedule.empty()) fail("--schedule needs --steps or --epochs: it spans the whole run");
    o.steps = o.minutes > 0 ? kUntilTheTimeIsUp : 300;
  }

  Json config;
  if (o.resume) config = load_checkpoint_config(find_checkpoint(o.out));
  bool tensors = o.data.ends_with(".safetensors");
  if (tensors) {
    int64_t batch = o.batch > 0 ? o.batch : 32;
    Source source = tensor_source(o, batch);
    if (!o.resume) config = {{"model", model_description(o, 0)}};
    auto model = model_from_json(json_at(config, "model", "config.json"), Key(o.seed), "model");
    if (o.optimizer.name.empty()) o.optimizer.name = "adam";
    return Run(o, config, std::move(source), std::move(model), loss_of(o, false), 1e-3, 0.01).train();
  }
  int64_t batch = o.batch > 0 ? o.batch : 16;
  if (o.resume) {
    const Json& vocabulary = json_at(config, "vocabulary", "config.json");
    o.seq = json_get<int64_t>(config, "block", "config.json");
    Corpus corpus = open_text(o.data,
                              Vocabulary::restore(json_get<std::string>(vocabulary, "kind", "config.json: vocabulary"),
                                                  json_at(vocabulary, "symbols", "config.json").get<std::vector<std::string>>()),
                              o.seq);
    auto model = model_from_json(json_at(config, "model", "config.json"), Key(o.seed), "model");
    if (o.optimizer.name.empty()) o.optimizer.name = "adamw";
    return Run(o, config, text_source(o, batch, o.seq, corpus), std::move(model), loss_of(o, true), 1e-3, 1e-4).train();
  }
  Corpus corpus = open_text(o.data, o.vocab, o.seq);
  Source source = text_source(o, batch, o.seq, corpus);
  config = {{"model", model_description(o, corpus.vocabulary.size())}};
  config.update(source.config);
  auto model = model_from_json(config["model"], Key(o.seed), o.model);
  if (o.optimizer.name.empty()) o.optimizer.name = "adamw";
  return Run(o, config, std::move(source), std::move(model), loss_of(o, true), 1e-3, 1e-4).train();
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* command = add_command(app, "train", "trains a model on a text or on tensors");
  command->add_option("--model", o->model, "gpt, encoder or a FILE.json that describes a model");
  command->add_option("--data", o->data, "a text in UTF-8, 'builtin', or a .safetensors file with X and y");
  command->add_option("--vocab", o->vocab, "letters (28 symbols) or utf8");
  add_number(command, "--steps", o->steps, 1, kMaxSteps, "training steps, in all");
  command->add_option("--epochs", o->epochs_given, "passes over the data, in all");
  command->add_option("--minutes", o->minutes_given, "stop after that time");
  command->add_option("--optimizer", o->optimizer.name, "sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad");
  command->add_option("--lr", o->optimizer.lr, "learning rate");
  command->add_option("--weight-decay", o->optimizer.weight_decay, "of adamw");
  command->add_option("--clip", o->clip, "limit of the gradients' global norm");
  command->add_option("--schedule", o->schedule, "constant, step, cosine, warmup, warmup_cosine");
  command->add_option("--loss", o->loss, "mse or cross_entropy");
  add_number(command, "--batch", o->batch, 1, kMaxBatch, "samples a step");
  add_number(command, "--seq", o->seq, 1, kMaxSeq, "tokens a sample");
  add_number(command, "--width", o->width, 1, kMaxWidth, "features");
  add_number(command, "--blocks", o->blocks, 1, kMaxBlocks, "transformer blocks");
  add_seed(command, o->seed, "of weights and batches");
  command->add_option("--mode", o->mode, "loop or compiled");
  add_number(command, "--eval-every", o->eval_every, 0, kMaxSteps, "steps between validations; 0: at the end");
  add_number(command, "--save-every", o->save_every, 0, kMaxSteps, "steps between checkpoints; 0: at the end");
  command->add_option("--out", o->out, "folder for metrics.jsonl and the checkpoint");
  command->add_flag("--resume", o->resume, "continue the run in --out");
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return train(*o); }; });
}

}  // namespace ws::cli
