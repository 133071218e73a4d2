// parity: the loop on one thread and the compiled step on several, from the same weights on the same batches; compares every bit
// of losses, parameters, buffers and optimizer state.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "choices.h"
#include "command.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/progress.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct ParityOptions {
  WorkloadOptions workload;
  std::string optimizer, schedule, dtype = "fp32", matmul_precision = "highest", decay_kind = "l2";
  std::optional<double> lr, clip;
  double decay = 0;
  int64_t steps = 200, memory_budget = 0;
  bool json = false;
};

struct Run {
  std::vector<double> losses;
  std::vector<std::pair<std::string, Tensor>> state;  // values after training
};

// Steps as epochs over a few batches in shuffled order: covers fit's own path and keeps the data small.
int64_t batches_of(int64_t steps) {
  for (int64_t b = std::min<int64_t>(steps, 10); b > 1; --b)
    if (steps % b == 0) return b;
  return std::min<int64_t>(steps, 1);
}

Run train(const ParityOptions& o, bool compile, int threads) {
  set_flag("threads", std::to_string(threads), "--threads");
  Workload w = make_workload(o.workload);
  double lr = o.lr.value_or(default_lr(o.optimizer, w.default_lr));
  auto optimizer = make_optimizer({o.optimizer.empty() ? w.default_optimizer : o.optimizer, lr}, lr, w.default_weight_decay);
  int64_t batches = batches_of(o.steps), epochs = o.steps / batches;
  Trainer trainer(*w.model, w.loss, *optimizer,
                  {.compile = compile,
                   .clip_norm = o.clip,
                   .weight_decay = o.decay,
                   .decay = o.decay_kind == "l2" ? Decay::l2 : Decay::decoupled,
                   .schedule = make_schedule(o.schedule, lr, o.steps, static_cast<double>(epochs)),
                   .num_threads = threads,
                   .compute_dtype = compute_dtype_of(o.dtype),
                   .matmul_precision = matmul_precision_of(o.matmul_precision),
                   .memory_budget_bytes = compile ? o.memory_budget : 0});
  Key key = Key(o.workload.seed).fold("data");
  const char* mode = compile ? "compiled" : "loop";
  std::optional<SlowNote> phase(std::in_place, fmt::format("{}: drawing {} samples", mode, w.batch * batches));
  Samples data = w.draw(key, w.batch * batches);
  phase.emplace(fmt::format("{}: {} steps", mode, o.steps));
  Run run;
  run.losses = trainer.fit(data.X, data.y, {.epochs = static_cast<int>(epochs), .batch_size = w.batch, .key = key}).step_losses;
  std::vector<Variable> variables;
  w.model->collect_state(variables);
  optimizer->collect_state(variables);
  for (const Variable& v : variables) run.state.emplace_back(v.name(), v.value());
  return run;
}

// All NaNs count as equal.
bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0 || (std::isnan(a) && std::isnan(b)); }

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  auto bytes = static_cast<size_t>(a.size()) * size_of(a.dtype());
  if (std::memcmp(a.data(), b.data(), bytes) == 0) return true;
  if (!is_floating(a.dtype())) return false;
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();  // exact for every floating dtype
  return std::equal(x.begin(), x.end(), y.begin(), [](double p, double q) { return same_bits(p, q); });
}

double relative_difference(double a, double b) { return same_bits(a, b) ? 0 : std::fabs(a - b) / std::max(std::fabs(a), 1e-300); }

int parity(const ParityOptions& o) {
  if (o.decay_kind != "l2" && o.decay_kind != "decoupled") fail("--decay-kind must be l2 or decoupled, not '{}'", o.decay_kind);
  int threads = configured_threads();
  Run loop = train(o, false, 1), compiled = train(o, true, threads);

  Json differing = Json::array(), by_step = Json::object();
  for (size_t i = 0; i < loop.losses.size(); ++i)
    if (!same_bits(loop.losses[i], compiled.losses[i])) {
      differing.push_back("loss of step " + std::to_string(i + 1));
      break;
    }
  for (size_t i = 0; i < loop.state.size(); ++i)
    if (!same_bits(loop.state[i].second, compiled.state[i].second)) differing.push_back(loop.state[i].first);
  for (size_t step : {1, 10, 50, 200})
    if (step <= loop.losses.size())
      by_step[std::to_string(step)] = json_number(relative_difference(loop.losses[step - 1], compiled.losses[step - 1]));
  Json result = {{"model", o.workload.model},
                 {"dtype", o.dtype},
                 {"matmul_precision", o.matmul_precision},
                 {"steps", o.steps},
                 {"threads", threads},
                 {"bit_identical", differing.empty()},
                 {"relative_difference", by_step},
                 {"differing", differing},
                 {"compared_tensors", loop.state.size()},
                 {"loss_first", json_number(loop.losses.front())},
                 {"loss_last", json_number(loop.losses.back())}};
  if (o.json) {
    print_json(result);
  } else {
    print_readable(result);
    for (const auto& [step, difference] : by_step.items())
      fmt::print("step {:>4}  relative difference {:.3g}\n", step, difference.get<double>());
    for (const Json& name : differing) fmt::print("differs: {}\n", name.get<std::string>());
  }
  return differing.empty() ? 0 : kUserError;
}

}  // namespace

void add_parity(CLI::App& app, Action& action) {
  auto o = std::make_shared<ParityOptions>();
  CLI::App* command = add_command(app, "parity", "compares the compiled step with the loop, bit for bit");
  command->add_option("--model", o->workload.model, "mlp, encoder, gpt or tiny")->required();
  command->add_option("--optimizer", o->optimizer, "sgd, momentum, nesterov, adam, adamw, muon, rmsprop, adagrad");
  add_real(command, "--lr", o->lr, "learning rate");
  add_real(command, "--clip", o->clip, "limit of the gradients' global norm");
  add_real(command, "--decay", o->decay, "Trainer's weight decay");
  command->add_option("--decay-kind", o->decay_kind, "l2 or decoupled");
  command->add_option("--schedule", o->schedule, "constant, step, cosine, warmup, warmup_cosine");
  add_dtype_option(command, o->dtype);
  add_precision_option(command, o->matmul_precision);
  add_number(command, "--steps", o->steps, 1, kMaxMeasuredSteps, "training steps");
  add_size_options(command, o->workload);
  add_memory_budget(command, o->memory_budget);
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return parity(*o); }; });
}

}  // namespace ws::cli
