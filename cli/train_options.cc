#include "train_options.h"

#include <algorithm>
#include <cmath>

#include "command.h"
#include "io/file.h"
#include "support/error.h"
#include "support/log.h"

namespace ws::cli {
namespace {

// What a resumed run must share with the one it continues.
template <class F>
void each_lasting_option(TrainOptions& o, F&& f) {
  f("model", o.model), f("target", o.target), f("vocab", o.vocab), f("loss", o.loss), f("schedule", o.schedule),
      f("dtype", o.dtype), f("matmul-precision", o.matmul_precision);
  f("optimizer", o.optimizer.name), f("lr", o.optimizer.lr), f("weight-decay", o.optimizer.weight_decay), f("clip", o.clip);
  f("batch", o.batch), f("seq", o.seq), f("width", o.width), f("blocks", o.blocks), f("seed", o.seed_given);
}

// One of them as a run recorded it.
void read_option(const Json& options, const char* name, const std::string& where, std::string& value) {
  value = json_get<std::string>(options, name, where);
}
void read_option(const Json& options, const char* name, const std::string& where, std::optional<double>& value) {
  value = json_get<double>(options, name, where);
}
void read_option(const Json& options, const char* name, const std::string& where, std::optional<uint64_t>& value) {
  if (!options[name].is_number_unsigned()) fail("{}: \"{}\" must be a whole number of at least 0", where, name);
  value = options[name].get<uint64_t>();
}
void read_option(const Json& options, const char* name, const std::string& where, int64_t& value) {
  value = json_get<int64_t>(options, name, where);
  if (value < 1 || value > kMaxBatch) fail("{}: \"{}\" must be from 1 to {}, not {}", where, name, kMaxBatch, value);
}

bool is_given(const std::string& text) { return !text.empty(); }
bool is_given(int64_t size) { return size != 0; }
template <class T>
bool is_given(const std::optional<T>& value) {
  return value.has_value();
}
template <class T>
const T& inside(const T& value) {
  return value;
}
template <class T>
const T& inside(const std::optional<T>& value) {
  return *value;
}

double check_positive(double value, const std::string& option) {
  if (!(value > 0 && value < 1e9)) fail("{} must be a number above 0 and below 1e9, not {}", option, value);
  return value;
}

}  // namespace

void check_options(TrainOptions& o) {
  is_compiled(o.mode);
  if (!o.dtype.empty()) dtype_named(o.dtype);
  if (!o.matmul_precision.empty()) matmul_precision_of(o.matmul_precision);
  if (!o.loss.empty() && o.loss != "mse" && o.loss != "cross_entropy")
    fail("--loss must be mse or cross_entropy, not '{}'", o.loss);
  const auto positive = [](const std::optional<double>& given, const char* option) {
    return given ? check_positive(*given, option) : 0;
  };
  o.epochs = positive(o.epochs_given, "--epochs"), o.minutes = positive(o.minutes_given, "--minutes");
  if (o.steps > 0 && o.epochs > 0) fail("give --steps or --epochs, not both");
  if (o.resume && o.overwrite) fail("give --resume or --overwrite, not both");
  if (o.overwrite && o.out.empty()) fail("--overwrite needs --out DIR, the run to replace");
  if (o.resume && o.out.empty()) fail("--resume needs --out DIR, the run to continue");
  if (o.minutes > 0 && o.steps == 0 && o.epochs == 0 && !o.schedule.empty())
    fail("--schedule needs --steps or --epochs: it spans the whole run");
}

void continue_options(TrainOptions& o, const Json& recorded) {
  each_lasting_option(o, [&](const char* name, auto& value) {
    if (!recorded.contains(name)) return;
    if (is_given(value) && Json(inside(value)) != recorded[name])
      fail("--{} {} contradicts the run in {}, which has {}", name, Json(inside(value)).dump(), o.out, recorded[name].dump());
    read_option(recorded, name, "config.json: options", value);
  });
  if (o.data.empty()) o.data = json_get_or<std::string>(recorded, "data", "", "config.json: options");
}

void continue_length(TrainOptions& o, const Json& recorded) {
  const std::string where = "config.json: options";
  if (recorded.contains("steps"))
    o.planned_steps = std::clamp<int64_t>(json_get<int64_t>(recorded, "steps", where), 1, kMaxSteps);
  else if (recorded.contains("epochs"))
    o.planned_epochs = check_positive(json_get<double>(recorded, "epochs", where), where + ": \"epochs\"");
  if (o.steps > 0 || o.epochs > 0 || (o.minutes > 0 && o.schedule.empty())) return;  // a schedule spans a length, not a time
  o.steps = o.planned_steps, o.epochs = o.planned_epochs;
  if (o.steps == 0 && o.epochs == 0 && recorded.contains("minutes"))
    fail("--resume: the run in {} was to end by --minutes alone; say how long it goes on by --steps, --epochs or --minutes",
         o.out);
}

void set_defaults(TrainOptions& o, bool samples) {
  auto otherwise = [](auto& value, auto standard) {
    if (!is_given(value)) value = standard;
  };
  otherwise(o.data, "builtin");
  otherwise(o.model, samples ? "mlp" : "gpt");
  otherwise(o.dtype, "fp32"), otherwise(o.matmul_precision, "highest");
  bool transformer = o.model == "gpt" || o.model == "encoder";
  otherwise(o.batch, samples ? 128 : 16);
  otherwise(o.width, o.model == "convnet" ? 16 : 256);
  otherwise(o.blocks, transformer ? 4 : 2);
  if (!samples) otherwise(o.seq, 128), otherwise(o.vocab, "letters"), otherwise(o.loss, "cross_entropy");
  otherwise(o.optimizer.name, samples ? "adam" : "adamw");
  const bool decays = o.optimizer.name == "adamw" || o.optimizer.name == "muon";
  if (o.optimizer.weight_decay && !decays && !o.resume)
    fail("--weight-decay is of adamw and muon; the optimizer {} has none", o.optimizer.name);
  otherwise(o.optimizer.lr, default_lr(o.optimizer.name, 1e-3));
  otherwise(o.optimizer.weight_decay, samples ? 0.01 : 1e-4);
  if (o.steps == 0 && o.epochs == 0) {
    if (o.minutes > 0)
      o.steps = kUntilTheTimeIsUp;
    else
      samples ? o.epochs = 10.0 : static_cast<double>(o.steps = 300);
  }
}

void check_idle_options(const TrainOptions& given, const TrainOptions& o, bool samples) {
  for (const auto& [option, is_used] : {std::pair("--seq", given.seq > 0), std::pair("--vocab", !given.vocab.empty())})
    if (samples && is_used) fail("{} is of texts; --data {} holds samples: leave it out", option, o.data);
  if (!given.target.empty() && !has_extension(o.data, ".csv") && !has_extension(o.data, ".tsv"))
    fail("--target names a column of a .csv or .tsv; --data {} has none: leave it out", o.data);
  const auto idle = [](bool is_idle, const char* option, const std::string& why) {
    if (is_idle) note("{} does nothing here: {}", option, why);
  };
  const bool described = has_extension(o.model, ".json");
  idle(described && given.width > 0, "--width", "the sizes are those of " + o.model);
  idle(described && given.blocks > 0, "--blocks", "the sizes are those of " + o.model);
  idle(o.save_every > 0 && o.out.empty(), "--save-every", "there is no --out to save to");
  idle(o.memory_budget > 0 && !is_compiled(o.mode), "--memory-budget", "it is of --mode compiled");
}

Json lasting_options(TrainOptions& o) {
  Json json = {{"data", o.data}};
  each_lasting_option(o, [&](const char* name, const auto& value) {
    if (is_given(value)) json[name] = inside(value);
  });
  if (o.steps > 0 && o.steps != kUntilTheTimeIsUp) json["steps"] = o.steps;
  if (o.epochs > 0) json["epochs"] = o.epochs;
  if (o.minutes > 0) json["minutes"] = o.minutes;
  return json;
}

}  // namespace ws::cli
