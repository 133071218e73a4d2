// train: trains a model on a text (gpt) or on a data set (mlp, convnet, encoder, or a model described in JSON), writes metrics as it goes
// and a checkpoint that `train --resume` continues bit for bit and `generate` reads.
#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>

#include "api/json_config.h"
#include "api/model_from_json.h"
#include "api/prefetch.h"
#include "api/training_state.h"
#include "choices.h"
#include "command.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "io/metrics.h"
#include "ranks.h"
#include "run_folder.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"
#include "support/progress.h"
#include "text_data.h"
#include "train_data.h"
#include "train_models.h"
#include "train_options.h"
#include "workload.h"

namespace ws::cli {
namespace {

// No run is replaced or joined unasked. The first rank's to say: it may have begun to write by the time that another looks.
void check_folder(const TrainOptions& o) {
  if (o.out.empty() || distributed::rank() != 0) return;
  check_can_keep(o.out);
  const bool saved = holds_saved_run(o.out);
  if (saved && !o.overwrite && holds_ladder(o.out))
    fail("{} holds a ladder{}: give another --out, or replace its checkpoint by --overwrite", o.out,
         o.resume ? ", which --resume cannot continue" : "");
  if (saved && !o.resume && !o.overwrite)
    fail("{} holds a run: continue it by --resume, give another --out, or replace it by --overwrite", o.out);
  if (!saved && o.resume && holds_metrics(o.out))
    fail("{} holds no checkpoint: its run ended before it saved anything; leave --resume out to start anew", o.out);
}

constexpr size_t kRecentSteps =
    20;  // that a loss shown is the mean of, and the result's mean_loss_first_20 and mean_loss_last_20

class Run {
 public:
  Run(const TrainOptions& o, Json config, TrainData data, std::unique_ptr<Module> model, Loss loss)
      : o_(o), config_(std::move(config)), data_(std::move(data)), model_(std::move(model)), loss_(std::move(loss)),
        optimizer_(make_optimizer(o.optimizer, *o.optimizer.lr, *o.optimizer.weight_decay)),
        trainer_(*model_, loss_, *optimizer_,
                 {.compile = is_compiled(o.mode),
                  .clip_norm = o.clip,
                  .num_threads = configured_threads(),
                  .compute_dtype = compute_dtype_of(o.dtype),
                  .matmul_precision = matmul_precision_of(o.matmul_precision),
                  .memory_budget_bytes = is_compiled(o.mode) ? o.memory_budget : 0,
                  .mesh = o.mesh.mesh(),
                  .shard_optimizer = o.mesh.shard_optimizer}) {
    total_ = steps_in(o.steps, o.epochs);
    schedule_ = schedule_over(total_);
    eval_every_ = o.eval_every > 0 ? o.eval_every : data_.item == "samples" ? static_cast<int64_t>(data_.steps_per_epoch) : 0;
  }

  int train() {
    o_.mesh.note_idle();
    std::optional<RunFolder> folder;
    if (writes_files()) {
      folder.emplace(o_.out);
      check_folder(o_);  // another run may have ended there since it was looked at
      if (!o_.resume && !o_.overwrite && holds_metrics(o_.out))
        note("{}/metrics.jsonl is of a run that saved nothing: the first step replaces it", o_.out);
    }
    if (o_.resume) restore();
    check_last_batch();
    InterruptGuard guard;
    double begin = now_seconds();
    int64_t first_step = first_step_ = step_;
    {
      Progress progress("train", total_ == kUntilTheTimeIsUp ? 0 : total_ - first_step, data_.item, data_.items_per_step);
      Prefetcher<Samples> batches(data_.batch, step_, total_);
      while (step_ < total_ && !is_time_to_stop(begin)) {
        one_step(batches.next());
        if (progress.due()) progress.update(step_ - first_step, recent_loss(), recent_loss_is());
        if (eval_every_ > 0 && step_ % eval_every_ == 0) say(progress, validate());
        if (o_.save_every > 0 && step_ % o_.save_every == 0) save();
      }
      progress.update(step_ - first_step, recent_loss(), recent_loss_is());
      progress.finish();
    }
    seconds_ = now_seconds() - begin;
    trained_ = step_ - first_step;
    const int signal = static_cast<int>(distributed::maximum(interrupt_signal()));  // all ranks end alike
    const bool stopped = signal != 0;
    if (!stopped && validated_at_ != step_) validate();
    save();
    report();
    if (stopped) {
      std::string of = total_ == kUntilTheTimeIsUp ? "" : fmt::format(" of {}", total_);
      note("stopped at step {}{}{}", step_, of, o_.out.empty() ? "" : "; saved, --resume continues");
      return exit_code_of(signal);
    }
    return 0;
  }

 private:
  /// Every rank trains and evaluates; the first writes.
  bool writes_files() const { return !o_.out.empty() && distributed::rank() == 0; }
  /// A common decision: all ranks end at one step.
  bool is_time_to_stop(double begin) const {
    return distributed::any(interrupted() || (o_.minutes > 0 && now_seconds() - begin > 60 * o_.minutes));
  }

  /// A layer that cannot take an epoch's last batch says so before the first step.
  void check_last_batch() {
    const int64_t left_over = data_.item == "samples" ? data_.size % o_.batch : 0;
    if (left_over != 1 || o_.batch == 1) return;
    const Samples last = data_.batch(static_cast<int64_t>(data_.steps_per_epoch) - 1);
    try {
      trainer_.prepare(last.X, last.y);
    } catch (const Error& e) {
      fail("--batch {}: the last batch of an epoch has 1 of the {} samples: {}", o_.batch, data_.size,
           naming_file(o_.model, e.what()));
    }
  }

  int64_t steps_in(int64_t steps, double epochs) const {
    return steps > 0 ? steps : std::max<int64_t>(1, std::llround(epochs * data_.steps_per_epoch));
  }
  Schedule schedule_over(int64_t steps) const {
    return make_schedule(o_.schedule, *o_.optimizer.lr, steps, static_cast<double>(steps) / data_.steps_per_epoch);
  }
  Position position(int64_t step) const { return {static_cast<double>(step) / data_.steps_per_epoch, step}; }

  /// A run of another length than planned has the schedule of that length from here on: its rate may jump.
  void note_new_span() const {
    if (!schedule_ || step_ == 0 || (o_.planned_steps == 0 && o_.planned_epochs == 0)) return;
    const int64_t planned = steps_in(o_.planned_steps, o_.planned_epochs);
    const double before = schedule_over(planned)(position(step_ - 1));
    if (before != schedule_(position(step_ - 1)))
      note("--schedule {} spans {} steps now, not {}: the learning rate goes on at {:.3g}, after {:.3g}", o_.schedule, total_,
           planned, schedule_(position(step_)), before);
  }

  static void say(Progress& progress, const std::string& line) {
    if (distributed::rank() == 0) progress.message(line);
  }

  void one_step(const Samples& batch) {
    if (schedule_) {
      double lr = schedule_(position(step_));
      if (lr != optimizer_->lr()) optimizer_->set_lr(lr);
    }
    double loss = loss_of_step(batch);
    ++step_;
    if (first_losses_.size() < kRecentSteps) first_losses_.push_back(loss);
    losses_since_validation_ += loss, ++steps_since_validation_;
    last_losses_.push_back(loss);
    if (last_losses_.size() > kRecentSteps) last_losses_.pop_front();
    record({{"step", step_}, {"loss", json_number(loss)}, {"lr", optimizer_->lr()}});
  }

  double loss_of_step(const Samples& batch) {
    try {
      return with_file_named(o_.model, [&] { return trainer_.train_step(batch.X, batch.y).item(); });
    } catch (const NonFiniteError& e) {
      const std::string advice = step_ > 0                 ? "lower --lr, limit the gradients by --clip, or "
                                 : data_.item == "samples" ? "scale the data to about -1 to 1, or "  // no update was made yet
                                                           : "";
      throw NonFiniteError(fmt::format("{}; {}look where it begins by --nan-check 1", e.what(), advice));
    }
  }

  // Opens metrics.jsonl at the first record, so that a run that fails before its first step leaves none.
  void record(const Json& what) {
    if (!writes_files()) return;
    std::string path = o_.out + "/metrics.jsonl";
    if (!metrics_) {
      if (o_.overwrite) {  // an early end would leave the old checkpoint beside these records
        std::error_code problem;
        std::filesystem::remove_all(o_.out + "/checkpoint", problem);
        if (problem) fail("cannot write {}: {}", o_.out, problem.message());
      }
      o_.resume ? metrics_.emplace(path, first_step_) : metrics_.emplace(path);
    }
    metrics_->write(what);
  }

  template <class List>
  static double mean(const List& values) {
    double sum = 0;
    for (double v : values) sum += v;
    return values.empty() ? NAN : sum / static_cast<double>(values.size());
  }
  double recent_loss() const { return mean(last_losses_); }
  std::string recent_loss_is() const {
    return last_losses_.size() == 1 ? "of the last step" : fmt::format("mean of the last {} steps", last_losses_.size());
  }

  // Returns a line for the terminal.
  std::string validate() {
    double epoch = static_cast<double>(step_) / data_.steps_per_epoch;
    std::string line = data_.item == "samples" ? fmt::format("epoch {:.4g}", epoch) : fmt::format("step {}", step_);
    line += fmt::format(": loss {:.4f}", losses_since_validation_ / static_cast<double>(steps_since_validation_));
    losses_since_validation_ = 0, steps_since_validation_ = 0;
    validated_at_ = step_;
    if (!data_.validation.X.defined()) return line;
    Json what = {{"step", step_}};
    if (data_.is_labels)
      count_right_labels();
    else
      validation_loss_ = trainer_.evaluate(data_.validation.X, data_.validation.y, validation_batch());
    what["validation_loss"] = json_number(validation_loss_);
    line += fmt::format(", validation loss {:.4f}", validation_loss_);
    if (data_.is_labels) {
      what["validation_accuracy"] = accuracy_;
      line += fmt::format(", accuracy {:.2f} %", 100 * accuracy_);
    }
    record(what);
    if (!std::isfinite(validation_loss_))
      fail("the validation loss after step {} is {}: that step's update left no finite parameters, and is not saved; lower --lr",
           step_, validation_loss_);
    return line;
  }

  int64_t validation_batch() const {
    return std::max<int64_t>(o_.batch, data_.item == "tokens" ? data_.validation.X.dim(0) : 256);
  }

  // Loss and accuracy from one prediction.
  void count_right_labels() {
    Tensor logits = trainer_.predict(data_.validation.X, validation_batch());
    {
      NoGrad no_grad;
      validation_loss_ = loss_(logits, data_.validation.y).item();
    }
    std::vector<float> scores = logits.to_vector<float>();
    std::vector<int32_t> labels = data_.validation.y.to_vector<int32_t>();
    auto classes = static_cast<int64_t>(scores.size() / labels.size());
    int64_t right = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      auto row = scores.begin() + static_cast<int64_t>(i) * classes;
      right += std::max_element(row, row + classes) - row == labels[i];
    }
    accuracy_ = static_cast<double>(right) / static_cast<double>(labels.size());
  }

  Json state() const {
    return {{"step", step_},
            {"seed", o_.seed()},
            {"first_losses", first_losses_},
            {"last_losses", std::vector<double>(last_losses_.begin(), last_losses_.end())}};
  }

  /// A step whose loss is finite may still leave parameters that are not.
  void check_parameters() const {
    for (const auto& [name, parameter] : model_state(*model_))
      if (const auto bad = first_not_finite(parameter.value()))
        fail("the update of step {} left {} in {}, and is not saved; lower --lr", step_, bad->value, name);
  }

  void save() const {
    check_parameters();
    if (o_.mesh.shard_optimizer && !o_.out.empty()) distributed::make_whole(optimizer_->rowwise_state());
    if (writes_files())
      save_checkpoint(o_.out + "/checkpoint", {config_, state(), model_state(*model_), optimizer_state(*optimizer_)});
  }

  void restore() {
    std::string folder = find_checkpoint(o_.out);
    trainer_.load(folder);
    Json state = load_checkpoint_state(folder);
    step_ = json_get<int64_t>(state, "step", folder + "/state.json");
    if (json_at(state, "seed", folder + "/state.json") != Json(o_.seed()))
      fail("--seed {} contradicts the run in {}, which has {}", o_.seed(), o_.out, state["seed"].dump());
    first_losses_ = json_numbers(state, "first_losses", folder + "/state.json");
    const std::vector<double> last = json_numbers(state, "last_losses", folder + "/state.json");
    last_losses_.assign(last.begin(), last.end());
    if (step_ < 0) fail("{}/state.json: \"step\" must be at least 0, not {}", folder, step_);
    if (step_ >= total_)
      fail(
          "--resume: the checkpoint is at step {} already, and the run ends at {}; say how far it goes on by --steps or --epochs",
          step_, total_);
    note_new_span();
  }

  void report() const {
    Json result = {{"model", o_.model},
                   {"ranks", distributed::size()},
                   {"mode", o_.mode},
                   {"dtype", o_.dtype},
                   {"matmul_precision", o_.matmul_precision},
                   {"steps", step_},
                   {"seconds", seconds_},
                   {"mean_loss_first_20", json_number(mean(first_losses_))},
                   {"mean_loss_last_20", json_number(recent_loss())},
                   {"loss_last", last_losses_.empty() ? Json(nullptr) : json_number(last_losses_.back())}};
    if (!std::isnan(validation_loss_)) result["validation_loss"] = validation_loss_;
    if (!std::isnan(accuracy_)) result["validation_accuracy"] = accuracy_;
    result[data_.item + "_per_s"] = json_number(static_cast<double>(trained_) * data_.items_per_step / seconds_);
    if (!o_.out.empty()) result["checkpoint"] = o_.out + "/checkpoint";
    o_.json ? print_json(result) : print_readable(result);
  }

  const TrainOptions& o_;
  Json config_;
  TrainData data_;
  std::unique_ptr<Module> model_;
  Loss loss_;
  std::unique_ptr<Optimizer> optimizer_;
  Trainer trainer_;
  Schedule schedule_;
  std::optional<MetricsWriter> metrics_;
  int64_t total_ = 0, step_ = 0, first_step_ = 0, trained_ = 0, eval_every_ = 0, validated_at_ = -1, steps_since_validation_ = 0;
  double seconds_ = 0, validation_loss_ = NAN, accuracy_ = NAN, losses_since_validation_ = 0;
  std::vector<double> first_losses_;
  std::deque<double> last_losses_;
};

Corpus open_corpus(const TrainOptions& o, const Json& config) {
  if (!o.resume) return open_text(o.data, o.vocab, o.seq);
  const Json& vocabulary = json_at(config, "vocabulary", "config.json");
  auto kind = json_get<std::string>(vocabulary, "kind", "config.json: vocabulary");
  auto symbols = json_texts(vocabulary, "symbols", "config.json: vocabulary");
  return open_text(o.data, Vocabulary::restore(kind, symbols), o.seq);
}

int train(TrainOptions o) {
  const TrainOptions given = o;
  check_options(o);
  if (!o.out.empty() && distributed::rank() == 0) check_not_in_use(o.out);
  check_folder(o);
  Json config;
  if (o.resume) {
    config = load_checkpoint_config(find_checkpoint(o.out));
    if (config.contains("block") && o.seq == 0) o.seq = json_get<int64_t>(config, "block", "config.json");
    if (config.contains("options")) continue_options(o, config["options"]), continue_length(o, config["options"]);
  }
  bool samples = is_data_set(o.data);
  set_defaults(o, samples);
  check_learns(o.model, samples, o.data);
  check_idle_options(given, o, samples);
  std::optional<Corpus> corpus;
  TrainData data;
  if (samples) {
    data = sample_data(o.data, o.target, o.seed(), o.batch, !has_extension(o.model, ".json"), o.loss);
  } else {
    if (o.loss != "cross_entropy") fail("--loss {}: a text is learnt by cross_entropy", o.loss);
    corpus.emplace(open_corpus(o, config));
    data = text_data(*corpus, o.seed(), o.batch, o.seq);
  }
  if (!o.resume) {
    ModelRequest request{o.model,      o.width, o.blocks, o.batch, o.seq, corpus ? corpus->vocabulary.size() : data.num_outputs,
                         data.features};
    config = {{"model", describe_model(request)}};
    config.update(data.config);
  } else if (config.contains("size") && config["size"] != Json(data.size)) {
    fail("--resume: {} has {} {}, the run in {} has {}", o.data, data.size, data.item, o.out, config["size"].dump());
  }
  config["options"] = lasting_options(o);
  config["size"] = data.size;
  const Json& description = json_at(config, "model", "config.json");
  auto model = with_file_named(o.model, [&] { return model_from_json(description, Key(o.seed()), o.model); });
  Loss loss = o.loss == "mse" ? Loss(MSE()) : Loss(SoftmaxCrossEntropy());
  return Run(o, config, std::move(data), std::move(model), std::move(loss)).train();
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto o = std::make_shared<TrainOptions>();
  CLI::App* command = add_command(app, "train", "trains a model on a text or on samples");
  command->add_option("--model", o->model, "gpt (text), mlp, convnet, encoder, or a FILE.json that describes a model");
  command->add_option(
      "--data", o->data,
      "a text in UTF-8, 'builtin'; or samples: fashion-mnist, FILE.npz or FILE.safetensors with X and y, FILE.csv "
      "or FILE.tsv, a folder of IDX files");
  command->add_option("--target", o->target, "the column of a .csv or .tsv to predict; default the last");
  command->add_option("--vocab", o->vocab, "letters (28 symbols) or utf8");
  add_number(command, "--steps", o->steps, 1, kMaxSteps, "training steps, in all");
  add_real(command, "--epochs", o->epochs_given, "passes over the data, in all");
  add_real(command, "--minutes", o->minutes_given, "stop after that time");
  command->add_option("--optimizer", o->optimizer.name, "sgd, momentum, nesterov, adam, adamw, muon, rmsprop, adagrad");
  add_real(command, "--lr", o->optimizer.lr, "learning rate");
  add_real(command, "--weight-decay", o->optimizer.weight_decay, "of adamw and muon");
  add_real(command, "--clip", o->clip, "limit of the gradients' global norm");
  command->add_option("--schedule", o->schedule, "constant, step, cosine, warmup, warmup_cosine");
  command->add_option("--loss", o->loss, "mse or cross_entropy");
  add_number(command, "--batch", o->batch, 1, kMaxBatch, "samples a step");
  add_number(command, "--seq", o->seq, 1, kMaxSeq, "tokens a sample");
  add_number(command, "--width", o->width, 1, kMaxWidth, std::string(kWidthHelp) + "; of a convnet its first channels");
  add_number(command, "--blocks", o->blocks, 1, kMaxBlocks, "transformer blocks, hidden layers of an mlp, convolutions");
  auto seed = std::make_shared<uint64_t>(0);
  add_seed(command, *seed, "of weights and batches");
  add_mode_option(command, o->mode);
  add_dtype_option(command, o->dtype);
  add_precision_option(command, o->matmul_precision);
  add_number(command, "--eval-every", o->eval_every, 0, kMaxSteps,
             "steps between validations; 0: each epoch of samples, the end of a text");
  add_number(command, "--save-every", o->save_every, 0, kMaxSteps, "steps between checkpoints; 0: at the end");
  add_memory_budget(command, o->memory_budget);
  command->add_option("--out", o->out, "folder for metrics.jsonl and the checkpoint");
  command->add_flag("--resume", o->resume, "continue the run in --out");
  command->add_flag("--overwrite", o->overwrite, "replace the run in --out, which is refused otherwise");
  add_mesh(command, o->mesh);
  add_json_option(command, o->json);
  command->callback([o, seed, command, &action] {
    refuse_empty_options(command);
    if (command->count("--seed") > 0) o->seed_given = *seed;
    action = [o] { return on_ranks(o->mesh.ranks, [o] { return train(*o); }); };
  });
}

}  // namespace ws::cli
