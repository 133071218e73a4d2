// R5: data parallel on this machine: k processes under mpirun against one process with the cores that a rank gets.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "analysis/communication.h"
#include "command.h"
#include "io/file.h"
#include "ladder/climb.h"
#include "ranks.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/interrupt.h"
#include "support/log.h"

namespace ws::cli {
namespace {

struct Step {
  std::string of;  // the rung whose step it is
  int64_t batch = 0;
  std::string dtype;
};

class RankBench {
 public:
  RankBench(const Task& task, int steps) : task_(task), steps_(steps) {}

  /// bench's JSON on `ranks` processes of `threads` threads. An Error says what it said.
  Json run(const Step& step, int ranks, int threads, int64_t batch, const std::vector<std::string>& more = {},
           int steps = 0) const {
    std::vector<std::string> arguments = {"bench", "--model", task_.name, "--dtype", step.dtype, "--json"};
    auto add = [&](const char* option, int64_t value) {
      arguments.push_back(option);
      arguments.push_back(std::to_string(value));
    };
    const Json& d = task_.description;
    if (d["type"] == "gpt")
      add("--width", d["num_hiddens"].get<int64_t>()), add("--blocks", d["num_blks"].get<int64_t>());
    else if (d["type"] == "mlp")
      add("--width", d["sizes"][0].get<int64_t>());
    else
      add("--width", encoder_width()), add("--blocks", encoder_blocks());
    if (task_.has_blocks) add("--seq", task_.items_per_sample);
    add("--batch", batch), add("--threads", threads), add("--ranks", ranks), add("--warmup", 1),
        add("--steps", steps > 0 ? steps : steps_);
    arguments.insert(arguments.end(), more.begin(), more.end());
    RanksResult result = run_ranks(ranks, arguments, true);
    if (result.signal != 0) {
      std::raise(result.signal);  // to the ladder's own guard, since it was not there for the first
      throw Stopped("stopped while bench ran on ranks");
    }
    if (result.exit_code != 0) fail("ladder: bench on {} ranks ended with exit code {}", ranks, result.exit_code);
    std::string text = result.output;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return parse_json(text.substr(text.rfind('\n') + 1), "bench on ranks");
  }

 private:
  int64_t encoder_width() const { return task_.description.at("width").get<int64_t>(); }
  int64_t encoder_blocks() const { return task_.description.at("blocks").get<int64_t>(); }
  const Task& task_;
  int steps_;
};

double milliseconds(const Json& bench) { return bench.at("median_ms").get<double>(); }

/// Which of the two ran, and what the other would have given.
std::string overlap_receipt(const Json& row) {
  std::string text =
      row["overlap"].get<bool>()
          ? "gradients travelled in buckets while the backward pass went on"
          : "gradients were summed where the backward pass made them: no rank has a core beside its threads for sending";
  if (!row["overlap_speedup"].is_number()) return text;
  return text + fmt::format(
                    "; in turns, overlapping made the step {:.2f}x as fast, communication stood in its way for {:.2f} ms "
                    "instead of {:.2f} ms",
                    row["overlap_speedup"].get<double>(), row["overlapped_exposed_comm_ms"].get<double>(),
                    row["plain_exposed_comm_ms"].get<double>());
}

}  // namespace

void Climb::data_parallel() {
  if (has_extension(task_.name, ".json")) return note("R5 is left out: it needs --model gpt, encoder or mlp");
  std::vector<Step> steps = {{"R1", task_.batch, "fp32"}};
  if (setup_.batch > task_.batch) steps.push_back({"R3", setup_.batch, setup_.bf16 ? "bf16" : "fp32"});
  bool is_quick = options_.task.preset == "quick";
  RankBench bench(task_, is_quick ? 4 : 3);
  Json rows = Json::array();
  try {
    for (const Step& step : steps)
      for (int ranks : {2, 4}) {
        if (interrupted() || (is_quick && ranks > 2 && step.of != "R1")) break;
        const int threads = std::max(1, configured_threads() / ranks);
        // What each rank does, alone; and what talking costs: then the prediction, then the run.
        const Json one = bench.run(step, 1, threads, step.batch),
                   talk = bench.run(step, ranks, threads, ranks * step.batch, {"--shard-optimizer"}, 1);
        AllReduceCost cost;
        cost.ranks = ranks;
        cost.alpha_s = talk.at("all_reduce").at("alpha_s").get<double>();
        cost.beta_bytes_per_s = talk.at("all_reduce").at("beta_bytes_per_s").get<double>();
        // More ranks than cores share them: a rank's share of the work takes that much longer.
        const double crowd = std::max(1.0, static_cast<double>(ranks * threads) / configured_threads());
        const auto parameters = static_cast<double>(bench_.base->model().num_parameters());
        auto measure = [&](const std::string& scaling, int64_t batch, const Json& alone) {
          const double share = static_cast<double>(batch * task_.items_per_sample) / ranks;
          DataParallelPrediction p = predict_data_parallel(cost, parameters, crowd * milliseconds(alone) * 1e-3, share);
          write_stderr(
              fmt::format("R5 {} on {} ranks, {} scaling: predicted {:.0f} {}/s (t_compute {:.2f} ms, t_comm {:.2f} ms)\n",
                          step.of, ranks, scaling, p.tokens_per_s, task_.item, p.compute_s * 1e3, p.communication_s * 1e3));
          const Json run = bench.run(step, ranks, threads, batch, {"--overlap", "both"});
          const double rate = share * ranks / (milliseconds(run) * 1e-3);
          const double before = static_cast<double>(step.batch * task_.items_per_sample) / (milliseconds(one) * 1e-3);
          const Json& ran = run.at("communication");
          const Json other = run.value("other_communication", Json::object());
          const bool overlap = ran.at("overlap").get<bool>();
          const auto rate_of = [&](const Json& timed) { return share * ranks / (milliseconds(timed) * 1e-3); };
          const auto rate_with = [&](bool wanted) {
            return overlap == wanted ? Json(rate) : other.empty() ? Json(nullptr) : Json(rate_of(other));
          };
          const auto exposed_with = [&](bool wanted) {
            return overlap == wanted ? ran.at("comm_exposed_ms") : other.empty() ? Json(nullptr) : other.at("comm_exposed_ms");
          };
          write_stderr(
              fmt::format("R5 {} on {} ranks, {} scaling: measured {:.0f} {}/s {} overlap{}\n", step.of, ranks, scaling, rate,
                          task_.item, overlap ? "with" : "without",
                          other.empty() ? "" : fmt::format(", {:.0f} {}", rate_of(other), overlap ? "without" : "with")));
          rows.push_back({{"of", step.of},
                          {"ranks", ranks},
                          {"threads_per_rank", threads},
                          {"scaling", scaling},
                          {"batch", batch},
                          {"predicted", p.tokens_per_s},
                          {"tokens_per_s", rate},
                          {"prediction_error", p.tokens_per_s / rate - 1},
                          {"ratio", rate / before},
                          {"predicted_compute_ms", p.compute_s * 1e3},
                          {"predicted_comm_ms", p.communication_s * 1e3},
                          {"alpha_us", cost.alpha_s * 1e6},
                          {"beta_gb_per_s", cost.beta_bytes_per_s * 1e-9},
                          {"overlap", overlap},
                          {"overlapped_tokens_per_s", rate_with(true)},
                          {"plain_tokens_per_s", rate_with(false)},
                          {"overlap_speedup", run.value("overlap_speedup", Json(nullptr))},
                          {"overlapped_exposed_comm_ms", exposed_with(true)},
                          {"plain_exposed_comm_ms", exposed_with(false)},
                          {"predicted_overlapped", share * ranks / p.overlapped_s},
                          {"state_bytes", one.at("state_bytes")},
                          {"sharded_state_bytes", talk.at("state_bytes")},
                          {"loss_last", run.at("loss_last")}});
        };
        measure("weak", ranks * step.batch, one);
        if (step.batch % ranks == 0 && step.of == "R1" && !(is_quick && ranks > 2) && !interrupted())
          measure("strong", step.batch, bench.run(step, 1, threads, step.batch / ranks));
      }
  } catch (const Stopped&) {  // the rows so far are kept
  }
  report_["data_parallel"] = rows;
  if (rows.empty()) return;
  const Json& first = rows[0];
  Json rung = {{"rung", "R5"},
               {"change", "R1 on 2 ranks, weak scaling"},
               {"mode", "compiled"},
               {"dtype", "fp32"},
               {"batch", first["batch"]},
               {"predicted", first["predicted"]},
               {"tokens_per_s", first["tokens_per_s"]},
               {"prediction_error", first["prediction_error"]},
               {"ratio", json_number(first["tokens_per_s"].get<double>() / rate_of_base())},
               {"receipts", Json::array()}};
  rung["receipts"].push_back(
      fmt::format("one rank has {} of {} cores; {:.2f}x of one rank alone; t_comm {:.2f} ms against t_compute {:.2f} ms",
                  first["threads_per_rank"].get<int>(), configured_threads(), first["ratio"].get<double>(),
                  first["predicted_comm_ms"].get<double>(), first["predicted_compute_ms"].get<double>()));
  rung["receipts"].push_back(overlap_receipt(first));
  rung["receipts"].push_back(fmt::format(
      "optimizer state sharded over {} ranks (--shard-optimizer, ZeRO-1): {} a rank instead of {}", first["ranks"].get<int>(),
      bytes_text(first["sharded_state_bytes"].get<double>()), bytes_text(first["state_bytes"].get<double>())));
  rung["receipts"].push_back(
      "the ratio to R1 compares runs of two moments: one process on all cores, then two on half of them each");
  rungs_.push_back(rung);
}

double Climb::rate_of_base() const {
  for (const Json& rung : rungs_)
    if (rung["rung"] == "R1") return rung["tokens_per_s"].is_number() ? rung["tokens_per_s"].get<double>() : NAN;
  return NAN;
}

}  // namespace ws::cli
