// bench: median time of one whole training step, batches excluded. Very short steps are timed in blocks, so that reading the clock
// does not count.
#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/communication.h"
#include "choices.h"
#include "command.h"
#include "ranks.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/progress.h"
#include "tensor/overlap.h"
#include "workload.h"

namespace ws::cli {
namespace {

struct BenchOptions {
  WorkloadOptions workload;
  std::string mode = "compiled", dtype = "fp32", matmul_precision = "highest", optimizer;
  int64_t steps = 0, warmup = 3, memory_budget = 0;
  MeshOptions mesh;
  bool json = false;
};

constexpr double kBlockSeconds = 2e-3;  // shortest time worth reading the clock for

int64_t default_steps(const std::string& model) {
  return model == "tiny" ? 100'000 : model == "mlp" ? 60 : model == "encoder" ? 6 : 3;
}

/// What this process keeps of it.
int64_t state_bytes(const Optimizer& optimizer) {
  std::vector<Variable> state;
  optimizer.collect_state(state);
  int64_t bytes = 0;
  for (const Variable& v : state) bytes += v.value().shape().num_elements() * static_cast<int64_t>(size_of(v.value().dtype()));
  return bytes;
}

/// The same step, timed: gradients overlapped with the backward pass, or not.
struct Timed {
  Compiled* program = nullptr;
  std::vector<double> seconds = {};  // by block, of one step
  Communicator::Times communication = {};
  int64_t steps = 0;

  void add(double block_seconds, int64_t block, const Communicator::Times& before) {
    const Communicator::Times now = communicator().times();
    seconds.push_back(block_seconds / static_cast<double>(block));
    communication.exposed_s += now.exposed_s - before.exposed_s;
    communication.total_s += now.total_s - before.total_s;
    steps += block;
  }
  Json json(bool overlap) const {
    const double n = static_cast<double>(steps) * 1e-3;
    return {{"overlap", overlap},
            {"median_ms", median(seconds) * 1e3},
            {"comm_exposed_ms", communication.exposed_s / n},
            {"comm_ms", communication.total_s / n}};
  }
};

int bench(const BenchOptions& o) {
  const bool compiled = is_compiled(o.mode), is_gpt = o.workload.model == "gpt";
  Workload w = make_workload(o.workload);
  auto optimizer =
      make_optimizer({o.optimizer.empty() ? w.default_optimizer : o.optimizer}, w.default_lr, w.default_weight_decay);
  const bool compares = o.mesh.overlap == "both" && distributed::size() > 1 && compiled && communicator().overlaps();
  MeshOptions mesh = o.mesh;
  if (mesh.overlap == "both") mesh.overlap = "auto";
  TrainerOptions options = {.compile = compiled,
                            .num_threads = configured_threads(),
                            .compute_dtype = compute_dtype_of(o.dtype),
                            .matmul_precision = matmul_precision_of(o.matmul_precision),
                            .memory_budget_bytes = o.memory_budget,
                            .mesh = mesh.mesh(),
                            .shard_optimizer = mesh.shard_optimizer};
  Trainer trainer(*w.model, w.loss, *optimizer, options);
  o.mesh.note_idle();
  const Mesh trainer_mesh = options.mesh;
  const bool overlap = overlaps(trainer_mesh);
  std::optional<Trainer> other_trainer;  // on the same model

  Key key = Key(o.workload.seed).fold("data");
  std::optional<SlowNote> phase(std::in_place, fmt::format("drawing {} samples", w.batch));
  Samples batch = w.draw(key.fold(uint64_t{0}), w.batch);
  phase.emplace("the first step");
  double loss_first = trainer.train_step(batch.X, batch.y).item();  // compiles
  Compiled* program = compiled ? &trainer.compiled_step() : nullptr;
  double compile_ms = program ? program->compile_seconds() * 1e3 : NAN;
  std::vector<Tensor> outputs;
  Timed timed{program}, other;
  if (compares) {
    options.mesh.overlap = overlap ? Overlap::off : Overlap::on;
    other_trainer.emplace(*w.model, w.loss, *optimizer, options);
    other_trainer->train_step(batch.X, batch.y);
    other.program = &other_trainer->compiled_step();
  }
  auto step_of = [&](Timed& which) {
    const Tensor inputs[] = {batch.X, batch.y};
    if (which.program) return which.program->run(inputs, outputs);
    outputs.assign(1, trainer.train_step(batch.X, batch.y));
  };
  auto step = [&] { step_of(timed); };
  int64_t steps = o.steps > 0 ? o.steps : default_steps(o.workload.model);
  phase.emplace(fmt::format("{} steps, {} of them timed", o.warmup + 1 + steps, steps));
  for (int64_t i = 0; i < o.warmup; ++i) step();
  double begin = now_seconds();
  step();
  double estimate = distributed::maximum(std::max(now_seconds() - begin, 1e-8));  // all ranks time the same blocks

  int64_t block = estimate >= kBlockSeconds
                      ? 1
                      : std::min(static_cast<int64_t>(std::ceil(kBlockSeconds / estimate)), std::max<int64_t>(steps / 5, 1));
  auto time_block = [&](Timed& which) {
    const Communicator::Times before = communicator().times();
    begin = now_seconds();
    for (int64_t i = 0; i < block; ++i) step_of(which);
    which.add(now_seconds() - begin, block, before);
  };
  for (int64_t done = 0; done < steps; done += block) {
    if (is_gpt) batch = w.draw(key.fold(static_cast<uint64_t>(done + 1)), w.batch);  // fresh windows, not timed
    const bool first = done / block % 2 == 0;                                        // in turns
    if (compares && !first) time_block(other);
    time_block(timed);
    if (compares && first) time_block(other);
  }
  phase.reset();
  const std::vector<double>& seconds = timed.seconds;
  double middle = median(seconds);
  Json result = {{"model", o.workload.model},
                 {"mode", o.mode},
                 {"dtype", o.dtype},
                 {"matmul_precision", o.matmul_precision},
                 {"batch", w.batch}};
  if (w.tokens_per_step) result["seq"] = o.workload.seq;
  result["median_ms"] = middle * 1e3;
  result["min_ms"] = *std::min_element(seconds.begin(), seconds.end()) * 1e3;
  result["steps_per_s"] = 1 / middle;
  result["tokens_per_s"] = w.tokens_per_step ? Json(static_cast<double>(w.tokens_per_step) / middle) : Json(nullptr);
  result["compile_ms"] = json_number(compile_ms);
  result["planned_temp_bytes"] = program ? Json(program->memory_analysis().temporary_bytes) : Json(nullptr);
  result["planned_peak_bytes"] = program ? Json(program->memory_analysis().peak_bytes) : Json(nullptr);
  result["kernels_run_twice"] = program ? Json(program->memory_analysis().num_recomputed) : Json(nullptr);
  result["peak_rss_bytes"] = peak_rss_bytes();
  result["flops"] = program ? Json(program->cost_analysis().flops) : Json(nullptr);
  result["loss_first"] = json_number(loss_first);
  result["loss_last"] = json_number(outputs.at(0).item());
  result["isa"] = isa_name();
  result["threads"] = configured_threads();
  result["parameters"] = w.model->num_parameters();
  result["ranks"] = distributed::size();
  result["state_bytes"] = state_bytes(*optimizer);
  if (distributed::size() > 1) {
    result["all_reduce"] = to_json(measure_all_reduce(communicator()));
    if (overlap) result["bucket_bytes"] = bucket_bytes(trainer_mesh);
    result["communication"] = timed.json(overlap);
  }
  if (compares) {
    result["other_communication"] = other.json(!overlap);
    std::vector<double> ratios;
    for (size_t i = 0; i < seconds.size(); ++i)
      ratios.push_back(overlap ? other.seconds[i] / seconds[i] : seconds[i] / other.seconds[i]);
    result["overlap_speedup"] = median(ratios);
  }
  o.json ? print_json(result) : print_readable(result);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = add_command(app, "bench", "times one whole training step");
  command->add_option("--model", o->workload.model, "mlp, encoder, gpt or tiny")->required();
  add_mode_option(command, o->mode);
  add_dtype_option(command, o->dtype);
  add_precision_option(command, o->matmul_precision);
  add_size_options(command, o->workload);
  add_memory_budget(command, o->memory_budget);
  command->add_option("--optimizer", o->optimizer, "as in train; default sgd, for gpt adamw");
  add_number(command, "--steps", o->steps, 1, kMaxMeasuredSteps, "timed steps");
  add_number(command, "--warmup", o->warmup, 0, kMaxMeasuredSteps, "steps before those");
  add_mesh(command, o->mesh);
  add_json_option(command, o->json);
  command->callback([o, &action] { action = [o] { return on_ranks(o->mesh.ranks, [o] { return bench(*o); }); }; });
}

}  // namespace ws::cli
