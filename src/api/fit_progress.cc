#include "api/fit_progress.h"

#include <filesystem>

#include "api/training_state.h"
#include "io/checkpoint.h"
#include "support/error.h"

namespace ws {
namespace {

constexpr const char* kBest = "best/";  // before the names of the best weights

Tensor doubles(const std::vector<double>& values) {
  return Tensor::from_bytes(values.data(), DType::f64, {static_cast<int64_t>(values.size())});
}

const Tensor* find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
}

std::vector<double> doubles(const NamedTensors& tensors, const std::string& name, const std::string& where) {
  const Tensor* t = find(tensors, name);
  if (!t || t->rank() != 1 || t->dtype() != DType::f64) fail("{} must hold the series \"{}\"", where, name);
  return t->to_vector<double>();
}

Json plan_json(const FitPlan& p) {
  return {{"samples", p.num_samples}, {"batch_size", p.batch_size}, {"accumulate", p.accumulate},
          {"drop_last", p.drop_last}, {"shuffle", p.shuffle},       {"key", p.key}};
}

void check_plan(const Json& state, const FitPlan& plan, const std::string& where) {
  const Json &recorded = json_at(state, "fit", where), wanted = plan_json(plan);
  for (const auto& [name, ours] : wanted.items())
    if (const Json& theirs = json_at(recorded, name, where); theirs != ours)
      fail("resume: the checkpoint was made with {} {}, this fit has {}; give the same to go on ({})", name, theirs.dump(),
           ours.dump(), where);
}

}  // namespace

EarlyStopping::EarlyStopping(const Module& model, const FitOptions& options)
    : patience_(options.patience), min_delta_(options.min_delta) {
  if (patience_) model.collect_state(state_);
}

EarlyStopping::~EarlyStopping() {
  for (size_t i = 0; i < best_values_.size(); ++i) state_[i].set(best_values_[i]);
}

void EarlyStopping::after_epoch(int epoch, double val_loss) {
  if (val_loss < best_ - min_delta_) {  // false for NaN, which is never best
    best_ = val_loss;
    best_epoch_ = epoch;
    waited_ = 0;
    best_values_.clear();
    for (const Variable& v : state_) best_values_.push_back(v.value());  // handles: the next step copies instead of overwriting
  } else {
    ++waited_;
  }
}

void EarlyStopping::save(NamedTensors& into) const {
  into.emplace_back("early_stopping",
                    doubles({best_, static_cast<double>(best_epoch_.value_or(-1)), static_cast<double>(waited_)}));
  for (size_t i = 0; i < best_values_.size(); ++i) into.emplace_back(kBest + state_[i].name(), best_values_[i]);
}

void EarlyStopping::restore(const NamedTensors& from, const std::string& where) {
  std::vector<double> numbers = doubles(from, "early_stopping", where);
  if (numbers.size() != 3) fail("{}: \"early_stopping\" must hold three numbers", where);
  best_ = numbers[0];
  if (numbers[1] >= 0) best_epoch_ = static_cast<int>(numbers[1]);
  waited_ = static_cast<int>(numbers[2]);
  if (!best_epoch_) return;
  for (const Variable& v : state_) {
    const Tensor* best = find(from, kBest + v.name());
    if (!best || !(best->shape() == v.value().shape())) fail("{} lacks the best value of \"{}\"", where, v.name());
    best_values_.push_back(*best);
  }
}

void save_fit(const std::string& folder, const Module& model, const Optimizer& optimizer, const FitPlan& plan,
              const FitProgress& p, const EarlyStopping& early) {
  Json state = {{"fit", plan_json(plan)},
                {"epoch", p.epoch},
                {"batch", p.batch},
                {"first_step_of_epoch", p.first_step_of_epoch},
                {"step", p.steps_done},
                {"skipped_steps", p.history.skipped_steps},
                {"stopped_epoch", p.history.stopped_epoch}};
  if (p.first_lr) state["first_lr"] = *p.first_lr;
  CheckpointContents contents{{{"written_by", "fit"}}, std::move(state), model_state(model), optimizer_state(optimizer), {}};
  const History& h = p.history;
  contents.history = {{"train_loss", doubles(h.train_loss)},
                      {"val_loss", doubles(h.val_loss)},
                      {"lr", doubles(h.lr)},
                      {"step_losses", doubles(h.step_losses)},
                      {"grad_norms", doubles(h.grad_norms)}};
  early.save(contents.history);
  save_checkpoint(folder, contents);
}

FitProgress load_fit(const std::string& folder, const Module& model, const Optimizer& optimizer, const FitPlan& plan,
                     EarlyStopping& early) {
  std::string where = folder + "/state.json";
  Json state = load_checkpoint_state(folder);
  check_plan(state, plan, where);
  NamedTensors series = load_checkpoint_history(folder);
  FitProgress p;
  p.epoch = static_cast<int>(json_get<int64_t>(state, "epoch", where));
  p.batch = json_get<int64_t>(state, "batch", where);
  p.first_step_of_epoch = static_cast<size_t>(json_get<int64_t>(state, "first_step_of_epoch", where));
  p.steps_done = json_get<int64_t>(state, "step", where);
  if (state.contains("first_lr")) p.first_lr = json_get<double>(state, "first_lr", where);
  where = folder + "/history.safetensors";
  p.history.train_loss = doubles(series, "train_loss", where);
  p.history.val_loss = doubles(series, "val_loss", where);
  p.history.lr = doubles(series, "lr", where);
  p.history.step_losses = doubles(series, "step_losses", where);
  p.history.grad_norms = doubles(series, "grad_norms", where);
  p.history.skipped_steps = json_get<int64_t>(state, "skipped_steps", where);
  p.history.stopped_epoch = static_cast<int>(json_get<int64_t>(state, "stopped_epoch", where));
  load_checkpoint_variables(folder, model_state(model), optimizer_state(optimizer));
  early.restore(series, where);
  p.history.best_epoch = early.best_epoch();
  return p;
}

bool holds_checkpoint(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder + "/config.json", ignored);
}

}  // namespace ws
